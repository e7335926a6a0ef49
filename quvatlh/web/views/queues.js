// All queues: how deep, how busy, how they are set; and the tree of classes above them.

import * as api from "../lib/api.js";
import { h } from "../lib/dom.js";
import { count, short, span, spanMs } from "../lib/format.js";
import { ask, asking, attempt, bar, button, card, confirm, empty, own, state, table, waiting, when } from "../lib/parts.js";
import { write } from "../lib/query.js";
import { to } from "../lib/router.js";
import { CLASS, QUEUE, changes, filled, withPlugins } from "../lib/settings.js";

export default function queues(page) {
  const list = page.watch("/v1/queues?limit=1000", { topics: ["task", "queue"], slowMs: 1000 });
  const classes = page.watch("/v1/classes", { topics: ["class", "queue"] });

  function render() {
    const wait = waiting(list, classes);
    if (wait) return wait;
    const items = list.data.items;
    return [
      h("div", { class: "tools" }, h("p", { class: "dim" }, "A queue is made by the first task that names it, or here."),
        page.may("PATCH /v1/queues/{name}") ? button("New queue", () => editQueue(null), { kind: "primary" }) : null),
      items.length ? table(columns(page, items), items, { caption: "Queues" }) : empty("There are no queues yet.", h("p", {}, "Every task goes to one; without a name it is ", h("code", {}, "default"), ".")),
      list.data.next ? h("p", { class: "dim" }, `The first ${count(items.length)} of ${count(list.data.total)} by name.`) : null,
      tree(page, classes.data.items, items, list),
    ];
  }
  return { title: "Queues", render };
}

function columns(page, items) {
  const most = Math.max(1, ...items.map((queue) => queue.counts.pending));
  const tasks = (queue, wanted) => to(["tasks"], { q: write({ queue: queue.name, state: wanted }) });
  return [
    { head: "Queue", kind: "grow", cell: (queue) => [h("a", { class: "title", href: to(["queues", queue.name]) }, own(queue.name)), queue.paused ? [" ", state("paused")] : null] },
    { head: "Waiting", kind: "grow", cell: (queue) => h("a", { class: "quiet", href: tasks(queue, "pending") }, bar(queue.counts.pending, most, count(queue.counts.pending))) },
    { head: "Running", kind: "num", cell: (queue) => [count(queue.counts.running + queue.counts.claimed), queue.limit === null ? null : h("span", { class: "dim" }, ` of ${count(queue.limit)}`)] },
    { head: "Failed", kind: "num", cell: (queue) => h("a", { class: queue.counts.failed ? "error" : "quiet", href: tasks(queue, "failed") }, count(queue.counts.failed)) },
    { head: "In/s", kind: "num hide", cell: (queue) => short(queue.rates.in) },
    { head: "Out/s", kind: "num hide", cell: (queue) => short(queue.rates.out) },
    { head: "Wait p95", kind: "num hide", cell: (queue) => span(spanMs(queue.rates.wait?.p95)) },
    { head: "Oldest", kind: "tight hide", cell: (queue) => when(queue.oldest_pending_at) },
    { head: "Rule", kind: "short hide", cell: (queue) => [queue.discipline, queue.rate ? `, ${queue.rate}` : "", queue.weight !== 1 ? `, weight ${queue.weight}` : ""] },
    page.may("PATCH /v1/queues/{name}") ? { head: "", kind: "tight", cell: (queue) => button(queue.paused ? "Resume" : "Pause", () => pause(queue), { label: `${queue.paused ? "Resume" : "Pause"} ${queue.name}` }) } : null,
  ].filter(Boolean);
}

export function pause(queue) {
  const verb = queue.paused ? "resume" : "pause";
  return attempt(`${queue.name} is ${queue.paused ? "going on" : "paused: what runs goes on"}`, () => api.send("POST", api.path("/v1/queues", queue.name, verb)));
}

export async function editQueue(queue) {
  const still = asking();
  let workers = [];
  try {
    workers = (await api.get("/v1/workers")).items;
  } catch {
    // what is asked for next tells it
  }
  if (!still()) return undefined;
  return ask({
    title: queue ? `Queue ${queue.name}` : "New queue",
    text: queue ? "Changes hold from now on, also for what waits already." : "",
    fields: [...(queue ? [] : [{ name: "name", label: "Name" }]), ...filled(withPlugins(QUEUE, workers), queue ?? { weight: 1, workers: ["*"], discipline: "priority" })],
    submit: queue ? "Change" : "Make",
    action: (values) => api.send("PATCH", api.path("/v1/queues", queue ? queue.name : values.name.trim()), { ...(queue ? {} : { weight: 1 }), ...changes(QUEUE, values, queue ?? { weight: 1, workers: ["*"] }) }),
  });
}

// --- the tree of classes ---

function tree(page, classes, queues, list) {
  const children = (name) => classes.filter((one) => one.parent === name);
  const inside = (name) => queues.filter((queue) => queue.class === name);
  const used = (name) => inside(name).reduce((sum, queue) => sum + (queue.counts.running + queue.counts.claimed), 0) + children(name).reduce((sum, one) => sum + used(one.name), 0);
  const started = (name) => inside(name).reduce((sum, queue) => sum + queue.rates.out, 0) + children(name).reduce((sum, one) => sum + started(one.name), 0);
  const rows = [];
  const walk = (name, depth) => {
    for (const one of children(name)) {
      rows.push({ ...one, depth, use: one.of === "slots" ? used(one.name) : started(one.name), queues: inside(one.name) });
      walk(one.name, depth + 1);
    }
  };
  walk(null, 0);
  /** How far it can go: no further than what is above it, and a root no further than its rate, for nobody lends to it. */
  const reach = (one) => {
    const above = classes.find((each) => each.name === one.parent);
    return above ? Math.min(one.ceil ?? Infinity, reach(above)) : one.rate;
  };
  const unit = (one) => (one.of === "slots" ? "" : "/s");
  return card("Classes", { wide: true, more: page.may("PATCH /v1/classes/{name}") ? button("New class", () => editClass(null)) : null },
    rows.length ? table([
      { head: "Class", kind: "grow", cell: (one) => h("span", { style: { "padding-left": `${one.depth * 18}px` } }, one.depth ? h("span", { class: "dim" }, "└\u00a0") : null, own(one.name)) },
      { head: "Use", kind: "grow", cell: (one) => bar(one.use, reach(one), `${short(one.use)}${unit(one)}`, one.parent && one.use > one.rate ? "warn" : "") },
      { head: "Rate", kind: "num", cell: (one) => `${short(one.rate)}${unit(one)}` },
      { head: "Ceiling", kind: "num", cell: (one) => (one.ceil === null ? "–" : h("span", one.parent === null ? { class: "dim", title: "a class without a parent ends at its rate: nobody lends to it" } : {}, `${short(one.ceil)}${unit(one)}`)) },
      { head: "Queues", kind: "grow hide", cell: (one) => one.queues.map((queue, i) => [i ? ", " : "", h("a", { key: queue.name, href: to(["queues", queue.name]) }, own(queue.name))]) },
      page.may("PATCH /v1/classes/{name}") ? { head: "", kind: "tight", cell: (one) => h("div", { class: "actions" }, button("Change", () => editClass(one), { label: `Change class ${one.name}` }), button("Delete", () => removeClass(one), { kind: "danger", label: `Delete class ${one.name}` })) } : null,
    ].filter(Boolean), rows, { caption: "Classes of queues" })
      : h("p", { class: "dim" }, "Queues share by their weights. With classes they get what they are sure of, and borrow what others leave."));
}

function editClass(one) {
  return ask({
    title: one ? `Class ${one.name}` : "New class",
    fields: [...(one ? [] : [{ name: "name", label: "Name" }]), ...filled(CLASS, one ?? { burst: 1, priority: 0 })],
    submit: one ? "Change" : "Make",
    action: (values) => api.send("PATCH", api.path("/v1/classes", one ? one.name : values.name.trim()), { ...(one ? {} : { burst: 1 }), ...changes(CLASS, values, one ?? {}) }),
  });
}

function removeClass(one) {
  return confirm(`Delete class ${one.name}?`, "Only where no queue and no other class hangs on it.", "Delete", () => api.send("DELETE", api.path("/v1/classes", one.name)));
}
