// What failed for good, in groups: how many, since when; a whole group is retried or deleted at once.

import * as api from "../lib/api.js";
import { bars } from "../lib/charts.js";
import { h } from "../lib/dom.js";
import { ago, count, plural, time, title } from "../lib/format.js";
import { ask, bar, button, empty, note, own, table, tabs, waiting, when } from "../lib/parts.js";
import { write } from "../lib/query.js";
import { to } from "../lib/router.js";
import { perform } from "../lib/verbs.js";

const BY = ["error", "queue", "name"];
const BINS = 24;
const SAMPLE = 200;

export default function failed(page) {
  const by = () => (BY.includes(page.place.query.by) ? page.place.query.by : "error");
  const open = () => page.place.query.open;
  const groups = page.watch("/v1/tasks?state=failed&group_by=error", { topics: ["task"], slowMs: 2000 });
  const recent = page.watch(`/v1/tasks?state=failed&sort=-finished_at&limit=${SAMPLE}`, { topics: ["task"], slowMs: 5000 });
  let inside = null;
  moved(page.place);

  function moved(place) {
    groups.move(`/v1/tasks?state=failed&group_by=${by()}`);
    page.unwatch(inside);
    inside = place.query.open === undefined ? null : page.watch(`/v1/tasks${api.query({ state: "failed", [by()]: open(), sort: "-finished_at", limit: 20 })}`, { topics: ["task"] });
  }

  const valueOf = (task) => (by() === "error" ? task.error?.code : task[by()]);

  function spark(value) {
    const items = recent.data?.items ?? [];
    const since = Math.min(Date.now() - 3_600_000, items.length === SAMPLE ? time(items.at(-1).finished_at) : Date.now() - 3_600_000);
    const found = new Array(BINS).fill(0);
    for (const task of items) {
      const at = Math.floor((BINS * (time(task.finished_at) - since)) / (Date.now() - since));
      if (valueOf(task) === value && at >= 0) found[Math.min(at, BINS - 1)] += 1;
    }
    return bars(found, `failures since ${ago(new Date(since).toISOString())}`);
  }

  async function retry(group) {
    if (await perform(page, "retry", { match: { state: ["failed"], [by()]: group.value } }, `all ${plural(group.count, "task")} of ${by()} ${group.value}`)) {
      groups.refresh();
      recent.refresh();
      inside?.refresh();
    }
  }

  /** From the list: a task that is over is not deleted by the verb, which is for what may still run. */
  async function purge(group) {
    const done = await ask({
      title: `Delete ${plural(group.count, "failed task")} of queue ${group.value}?`, text: "They leave the list for good, with what they wrote.", submit: "Delete", danger: true,
      action: async (_, progress) => api.finished(await api.send("POST", `${api.path("/v1/queues", group.value)}/purge`, { states: ["failed"] }), (bulk) => progress(bulk.done, bulk.matched)),
    });
    if (!done) return;
    note(`${plural(done.done, "task")} deleted`);
    groups.refresh();
    recent.refresh();
    inside?.refresh();
  }

  function render() {
    const wait = waiting(groups);
    const items = groups.data?.groups ?? [];
    const most = Math.max(1, ...items.map((group) => group.count));
    return [
      h("div", { class: "tools" }, h("span", { class: "dim" }, "Grouped by"), tabs(BY, by(), (name) => page.show({ by: name, open: undefined }))),
      wait ?? (items.length ? table([
        { head: by()[0].toUpperCase() + by().slice(1), kind: "grow", cell: (group) => h("a", { class: "title", href: to(["failed"], { by: by(), open: open() === group.value ? undefined : group.value }), "aria-expanded": String(open() === group.value) }, open() === group.value ? "▾ " : "▸ ", group.value === null ? h("span", { class: "dim" }, "none") : own(group.value)) },
        { head: "Tasks", kind: "grow", cell: (group) => bar(group.count, most, count(group.count), "bad") },
        { head: "Last hour and before", kind: "hide", cell: (group) => spark(group.value) },
        page.mayChange ? { head: "", kind: "", cell: (group) => (group.value === null ? null : h("div", { class: "actions" },
          button("Retry", () => retry(group), { label: `Retry all of ${group.value}` }),
          by() === "queue" ? button("Delete", () => purge(group), { kind: "danger", label: `Delete all of ${group.value}` }) : null)) } : null,
      ].filter(Boolean), items, { key: (group) => String(group.value), caption: "Failed tasks in groups" }) : empty("Nothing has failed.", h("p", {}, "What fails for good is kept here, for 30 days unless its queue says otherwise."))),
      groups.data?.partial ? h("p", { class: "dim" }, "There are so many that only the youngest were counted.") : null,
      inside ? members() : null,
    ];
  }

  function members() {
    const wait = waiting(inside);
    if (wait) return wait;
    return h("section", { class: "card", "aria-label": `Tasks of ${open()}` },
      h("header", {}, h("h2", {}, own(open())), h("a", { href: to(["tasks"], { q: write({ state: "failed", [by()]: open() }) }) }, "all of them, to search and select")),
      inside.data.items.length === 0 ? h("p", { class: "dim" }, "None any more.") : table([
        { head: "Task", kind: "grow", cell: (task) => h("a", { href: to(["tasks", task.id]) }, own(title(task))) },
        { head: "Queue", kind: "hide", cell: (task) => own(task.queue) },
        { head: "Error", kind: "grow", cell: (task) => [h("strong", {}, own(task.error?.code)), " ", own(task.error?.text.slice(0, 300))] },
        { head: "Tries", kind: "num hide", cell: (task) => task.attempts },
        { head: "When", kind: "tight", cell: (task) => when(task.finished_at) },
        page.mayChange ? { head: "", kind: "tight", cell: (task) => button("Retry", () => perform(page, "retry", { ids: [task.id] }, "this task"), { label: `Retry ${task.id}` }) } : null,
      ].filter(Boolean), inside.data.items, { key: (task) => task.id, caption: "Failed tasks of the group" }));
  }

  return { title: "Failed", render, moved };
}
