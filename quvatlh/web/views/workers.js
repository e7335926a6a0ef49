// Workers: what each is, how busy it is and was, what it runs; drained and changed here.

import * as api from "../lib/api.js";
import { chart, spark } from "../lib/charts.js";
import { h } from "../lib/dom.js";
import { bytes, plural, spanMs, title, took } from "../lib/format.js";
import { ask, attempt, bar, button, card, confirm, empty, opener, own, pairs, state, table, waiting } from "../lib/parts.js";
import { write } from "../lib/query.js";
import { to } from "../lib/router.js";
import { changes, filled } from "../lib/settings.js";

/** So many jobs, and so many instances of services, are shown of what a worker runs. */
const SHOWN_MAX = 50;

export default function workers(page) {
  const list = page.watch("/v1/workers", { topics: ["task", "worker"], everyMs: 5000, slowMs: 500 });
  const history = page.may("GET /v1/history") ? page.watch("/v1/history", { everyMs: 5000, slowMs: 5000 }) : null;
  let running = null;
  let instances = null; // of services: a list of tasks tells of each only where it began last
  let load = null; // of its machine
  let shown = "";
  moved(page.place);

  function moved(place) {
    if (place.query.name === shown) return;
    shown = place.query.name ?? "";
    page.unwatch(running, instances, load);
    running = shown ? page.watch(`/v1/tasks${api.query({ worker: shown, kind: "job", state: "running,claimed", limit: SHOWN_MAX })}`, { topics: ["task"] }) : null;
    instances = shown ? page.watch(`/v1/actions${api.query({ worker: shown, kind: "service", limit: SHOWN_MAX })}`, { topics: ["task"] }) : null;
    load = shown ? page.watch(api.path("/v1/workers", shown, "load"), { everyMs: 5000 }) : null;
  }

  function render() {
    const wait = waiting(list);
    if (wait) return wait;
    const items = list.data.items;
    const one = items.find((worker) => worker.name === shown);
    if (!items.length) return empty("There are no workers.", h("p", {}, "Every node is one, unless it was started with no slots; ", h("code", {}, "quvatlh run --role worker --server URL"), " adds one without a replica."));
    return [
      table([
        { head: "Worker", kind: "grow", cell: (worker) => h("a", { class: "title", href: to(["workers"], { name: worker.name === shown ? undefined : worker.name }), "aria-expanded": String(worker.name === shown) }, opener(worker.name === shown), own(worker.name)) },
        { head: "Is", cell: (worker) => state(worker.state) },
        { head: "Slots", kind: "grow", cell: (worker) => (worker.state === "lost" ? "–" : bar(worker.slots - worker.free, worker.slots, `${worker.slots - worker.free} of ${worker.slots}`)) },
        { head: "Processors", kind: "wide", cell: (worker) => (worker.load ? bar(worker.load.cpu_load, 1, percent(100 * worker.load.cpu_load)) : "–") },
        { head: "Memory", kind: "wide", cell: (worker) => (worker.load ? bar(used(worker.load), 1, percent(100 * used(worker.load))) : "–") },
        history && { head: "Last hour", kind: "wide", cell: (worker) => spark(history.data?.live[worker.name] ?? [0, 0], `actions of ${worker.name} in the last hour`) },
        { head: "Queues", kind: "hide", cell: (worker) => worker.queues.map((pattern) => h("span", { key: pattern, class: "tag" }, own(pattern))) },
        { head: "Tags", kind: "grow hide", cell: (worker) => chosen(worker).map((tag) => h("span", { key: tag, class: "tag" }, own(tag))) },
        page.may("PATCH /v1/workers/{name}") ? { head: "", kind: "tight", cell: (worker) => drainButton(worker) } : null,
      ].filter(Boolean), items, { caption: "Workers" }),
      shown && !one ? h("p", { class: "problem" }, "There is no worker ", own(shown), ".") : null,
      one ? detail(page, one, { running, instances, load }) : null,
    ];
  }
  return { title: "Workers", render, moved };
}

/** Of the list: those that somebody gave it; what it found out about its machine stands on its own page. */
const chosen = (worker) => given(worker).filter((tag) => !found(worker.facts).has(tag));
const found = (facts) => new Set([...Object.entries(facts).map(([name, value]) => `${name}=${value}`), `memory_gib=${Math.floor(facts.memory_bytes / 2 ** 30)}`]);

/** Without those that every worker has. */
const given = (worker) => worker.tags.filter((tag) => tag !== `worker=${worker.name}` && tag !== `node=${worker.node}`);

const told = (name, value) => (name.endsWith("_bytes") && value >= 2 ** 30 ? `${(value / 2 ** 30).toFixed(1)} GiB` : String(value));

function drainButton(worker) {
  if (worker.state === "lost") return null;
  const draining = worker.state === "draining";
  const send = () => api.send("POST", api.path("/v1/workers", worker.name, draining ? "undrain" : "drain"));
  if (draining) return button("Undrain", () => attempt(`${worker.name} takes work again`, send), { label: `Undrain ${worker.name}`, key: "drain" });
  return button("Drain", () => confirm(`Drain ${worker.name}?`, "It finishes what it has and takes nothing new. Services move away.", "Drain", send, { danger: false }), { label: `Drain ${worker.name}`, key: "drain" });
}

const FIELDS = [
  { name: "slots", label: "Slots", kind: "number", hint: "how many actions run at once" },
  { name: "queues", label: "Queues", list: true, hint: "patterns, separated by spaces" },
  { name: "tags", label: "Tags", list: true, hint: "separated by spaces" },
];

function edit(worker) {
  const before = { slots: worker.slots, queues: worker.queues, tags: given(worker) };
  return ask({
    title: `Worker ${worker.name}`, submit: "Change", text: "It holds until the worker is stopped in order, or started anew with another configuration: what is to last stands there.",
    fields: filled(FIELDS, before),
    action: (values) => api.send("PATCH", api.path("/v1/workers", worker.name), changes(FIELDS, values, before)),
  });
}

const percent = (value) => (value === null ? "–" : `${Math.round(value)} %`);
const used = (load) => 1 - load.memory_free_bytes / Math.max(1, load.memory_total_bytes);

/** Of its machine, not of its slots: whatever else runs there. */
function machine(worker, hour) {
  const stepMs = spanMs(hour.step);
  const overMs = stepMs * hour.cpu.length;
  return h("div", { class: "charts" },
    chart(`Machine of ${worker.name}, in percent`, [
      { name: "processors", values: hour.cpu, tone: "accent", fill: true },
      { name: "memory", values: hour.memory, tone: "info" },
    ], { spanMs: overMs, fromMs: Date.now() - overMs, stepMs, unit: percent, axis: String, least: 100, newest: (values) => values.at(-1) }));
}

function detail(page, worker, { running, instances, load }) {
  const served = (instances.data?.items ?? []).map((action) => ({ ...action, id: action.task, action: action.id }));
  const jobs = running.data?.items ?? [];
  const tasks = [...served, ...jobs];
  const more = [[served, instances.data, "instance"], [jobs, running.data, "job"]].filter(([, data]) => data?.next)
    .map(([items, data, word]) => (data.total === null ? `${items.length} ${word}s` : `${items.length} of ${plural(data.total, word)}`));
  return [load.data?.cpu.length ? machine(worker, load.data) : null, h("div", { class: "grid two" },
    card(own(worker.name), { label: worker.name, more: page.may("PATCH /v1/workers/{name}") ? button("Change…", () => edit(worker)) : null },
      pairs([
        ["Is", state(worker.state)],
        ["Node", own(worker.node)],
        ["Role", worker.role === "node" ? "node, with a replica" : "worker alone"],
        ["Runs", worker.adapters.join(", ")],
        worker.load && ["Memory", `${bytes(worker.load.memory_free_bytes)} of ${bytes(worker.load.memory_total_bytes)} free`],
        worker.load && ["Disk", `${bytes(worker.load.disk_free_bytes)} free`],
        ["Queues", worker.queues.map((pattern) => h("span", { key: pattern, class: "tag" }, own(pattern)))],
        ["Tags", worker.tags.map((tag) => h("span", { key: tag, class: "tag" }, own(tag)))],
        ...Object.entries(worker.facts).filter(([, value]) => typeof value !== "object" || value === null).map(([name, value]) => [own(name), own(told(name, value))]),
      ])),
    card("Runs now", { more: h("a", { href: to(["tasks"], { q: write({ worker: worker.name }) }) }, "all its tasks") },
      tasks.length ? table([
        { head: "Task", kind: "grow", cell: (task) => h("a", { href: to(["tasks", task.id]) }, own(title(task)), task.action ? h("small", {}, " instance") : null) },
        { head: "State", cell: (task) => state(task.state) },
        { head: "For", kind: "num", cell: (task) => took(task) },
      ], tasks, { key: (task) => task.action ?? task.id, caption: "What it runs now" }) : h("p", { class: "dim" }, "nothing"),
      more.length ? h("p", { class: "dim" }, `Shown: ${more.join(", ")}.`) : null))];
}
