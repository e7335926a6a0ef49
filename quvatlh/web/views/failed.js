// What failed for good, in groups: how many, and when; a whole group is retried, moved or deleted at once.

import * as api from "../lib/api.js";
import { bars } from "../lib/charts.js";
import { h } from "../lib/dom.js";
import { count, plural, title } from "../lib/format.js";
import { bar, button, empty, opener, own, table, tabs, waiting, when } from "../lib/parts.js";
import { write } from "../lib/query.js";
import { to } from "../lib/router.js";
import { moveFailed, perform } from "../lib/verbs.js";

const BY = ["error", "queue", "name", "group", "worker"];
const PARTS = 24;
const PART_MS = 3_600_000;
const SHOWN = 20;
const OLD_MS = 10_000;

export default function failed(page) {
  const may = (verb) => page.may(`POST /v1/tasks/${verb}`);
  const mayAny = () => ["retry", "update", "delete"].some(may);
  const by = () => (BY.includes(page.place.query.by) ? page.place.query.by : "error");
  const open = () => page.place.query.open;
  const groups = page.watch("/v1/tasks?state=failed&group_by=error", { topics: ["task"], slowMs: 2000, counts: true });
  const trend = page.watch(trends(), { topics: ["task"], slowMs: 5000, everyMs: 60_000, counts: true, onData: () => trend.move(trends(), { keep: true }) });
  let inside = null;
  moved(page.place);

  function moved(place) {
    groups.move(`/v1/tasks?state=failed&group_by=${by()}`);
    trend.move(trends());
    page.unwatch(inside);
    inside = place.query.open === undefined ? null : page.watch(`/v1/tasks${api.query({ state: "failed", [by()]: open(), sort: "-finished_at", limit: SHOWN })}`, { topics: ["task"] });
  }

  function trends() {
    const end = Math.ceil(Date.now() / PART_MS) * PART_MS;
    const [from, until] = [end - PARTS * PART_MS, end].map((ms) => new Date(ms).toISOString());
    return `/v1/tasks${api.query({ state: "failed", group_by: by(), parts: PARTS, finished_after: from, finished_before: until })}`;
  }

  function spark(value) {
    const parts = trend.data?.groups.find((group) => group.value === value)?.parts ?? new Array(PARTS).fill(0);
    const failed = parts.reduce((sum, n) => sum + n, 0);
    return bars(parts, `${count(failed)} in the last ${PARTS} hours, ${count(parts.at(-1))} in this one`);
  }

  /** All of a group: by its filter, so that one that is not shown is in it, too. */
  const whole = (value) => ({ match: { state: ["failed"], [by()]: value } });

  async function change(done) {
    if (!(await done)) return;
    for (const each of [groups, trend, inside]) each?.refresh();
  }

  const retry = (which, words) => change(perform(page, "retry", which, words));
  const move = (which, words) => change(moveFailed(which, words));
  const remove = (which, words) => change(perform(page, "delete", which, words));

  function heading(value) {
    if (value === null) return h("span", { class: "dim" }, "none");
    const isOpen = open() === value;
    return h("a", { class: "title", href: to(["failed"], { by: by(), open: isOpen ? undefined : value }), "aria-expanded": String(isOpen) }, opener(isOpen), own(value));
  }

  function actions(value, number) {
    if (value === null) return h("span", { class: "dim" }, `no ${by()}: group them otherwise`);
    const words = `all ${plural(number, "task")} of ${by()} ${value}`;
    return h("div", { class: "actions" },
      may("retry") ? button("Retry", () => retry(whole(value), words), { label: `Retry all of ${value}` }) : null,
      may("update") ? button("Move…", () => move(whole(value), words), { label: `Move all of ${value}` }) : null,
      may("delete") ? button("Delete", () => remove(whole(value), words), { kind: "danger", label: `Delete all of ${value}` }) : null);
  }

  function render() {
    const wait = waiting(groups);
    const items = groups.data?.groups ?? [];
    const most = Math.max(1, ...items.map((group) => group.count));
    return [
      h("div", { class: "tools" }, h("span", { class: "dim" }, "Grouped by"), tabs(BY, by(), (name) => page.show({ by: name, open: undefined }))),
      wait ?? (items.length ? table([
        { head: by()[0].toUpperCase() + by().slice(1), kind: "grow", cell: (group) => heading(group.value) },
        { head: "Tasks", kind: "grow", cell: (group) => bar(group.count, most, count(group.count), "bad") },
        { head: `Last ${PARTS} hours`, kind: "hide", cell: (group) => spark(group.value) },
        mayAny() ? { head: "", kind: "", cell: (group) => actions(group.value, group.count) } : null,
      ].filter(Boolean), items, { key: (group) => String(group.value), caption: "Failed tasks in groups" }) : empty("Nothing has failed.", h("p", {}, "What fails for good is kept here, for 30 days unless its queue says otherwise."))),
      groups.dirty && Date.now() - groups.at > OLD_MS ? h("p", { class: "dim" }, "There are so many that they were last counted ", when(new Date(groups.at).toISOString()), ".") : null,
      groups.data?.partial || trend.data?.partial ? h("p", { class: "dim" }, "There are so many that only the youngest were counted.") : null,
      inside ? members() : null,
    ];
  }

  function members() {
    const wait = waiting(inside);
    if (wait) return wait;
    const number = groups.data?.groups.find((group) => group.value === open())?.count;
    return h("section", { class: "card", "aria-label": `Tasks of ${open()}` },
      h("header", {}, h("h2", {}, own(open())), h("a", { href: to(["tasks"], { q: write({ state: "failed", [by()]: open() }) }) }, "all of them, to search and select")),
      mayAny() && number ? actions(open(), number) : null,
      inside.data.items.length === 0 ? h("p", { class: "dim" }, "None any more.") : table([
        { head: "Task", kind: "grow", cell: (task) => h("a", { href: to(["tasks", task.id]) }, own(title(task))) },
        { head: "Queue", kind: "hide", cell: (task) => own(task.queue) },
        { head: "Error", kind: "grow", cell: (task) => [h("strong", {}, own(task.error?.code)), " ", own(task.error?.text.slice(0, 300))] },
        { head: "Tries", kind: "num hide", cell: (task) => task.attempts },
        { head: "When", kind: "tight", cell: (task) => when(task.finished_at) },
        mayAny() ? { head: "", kind: "tight", cell: (task) => h("div", { class: "actions" },
          may("retry") ? button("Retry", () => retry({ ids: [task.id] }, "this task"), { label: `Retry ${task.id}` }) : null,
          may("delete") ? button("Delete", () => remove({ ids: [task.id] }, "this task"), { kind: "danger", label: `Delete ${task.id}` }) : null) } : null,
      ].filter(Boolean), inside.data.items, { key: (task) => task.id, caption: "Failed tasks of the group" }));
  }

  return { title: "Failed", render, moved };
}
