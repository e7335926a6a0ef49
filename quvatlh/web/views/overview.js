// Is it healthy, at a glance; then how much, where, and what went wrong last.

import { chart, highest, mean, spark } from "../lib/charts.js";
import { h } from "../lib/dom.js";
import { count, plural, short, span, spanMs, time, title, work } from "../lib/format.js";
import { attempt, bar, button, card, copyable, own, stat, state, table, waiting, when } from "../lib/parts.js";
import { write } from "../lib/query.js";
import { to } from "../lib/router.js";
import * as api from "../lib/api.js";

const OLD_MS = 60_000;
const FEW = 20;
const STRAYS_MAX = 5;
const JUDGED_MAX = 200;

export default function overview(page) {
  // Of the whole cluster, and so not for tokens of a part of it.
  const history = page.may("GET /v1/history") ? page.watch("/v1/history", { everyMs: 5000, slowMs: 2000, topics: ["task"] }) : null;
  const states = page.watch("/v1/tasks?group_by=state", { topics: ["task"], slowMs: 1000 });
  const queues = page.watch(`/v1/queues?sort=-pending&limit=${JUDGED_MAX}`, { topics: ["task", "queue", "worker"], everyMs: 10_000, slowMs: 2000 }); // a page that took too long is short
  const workers = page.watch("/v1/workers", { topics: ["task", "worker", "master"], slowMs: 2000 });
  const cluster = page.watch("/v1/cluster", { topics: ["master", "worker"], everyMs: 3000, slowMs: 2000 });
  const failures = page.watch("/v1/tasks?state=failed&sort=-finished_at&limit=8", { topics: ["task"], slowMs: 2000 });
  let recent = null; // on a node that has few of them

  const counts = () => Object.fromEntries((states.data?.groups ?? []).map((group) => [group.value, group.count]));

  function render() {
    const wait = waiting(...[states, workers, cluster, history].filter(Boolean));
    if (wait) return wait;
    const by = counts();
    const total = Object.values(by).reduce((sum, n) => sum + n, 0);
    if (total > FEW && recent) {
      page.unwatch(recent);
      recent = null;
    }
    return [
      health(cluster.data, workers.data.items, queues.data, by),
      total === 0 ? first(page) : null,
      h("div", { class: "stats" },
        stat("Running", by.running ?? 0, { href: to(["tasks"], { q: "state:running" }), under: load(workers.data.items) }),
        stat("Waiting", by.pending ?? 0, { href: to(["tasks"], { q: "state:pending" }), under: oldest(queues.data?.items) }),
        stat("Scheduled", (by.scheduled ?? 0) + (by.retrying ?? 0), { href: to(["tasks"], { q: "state:scheduled,retrying" }), under: `${short(by.retrying ?? 0)} to be retried` }),
        stat("Failed", by.failed ?? 0, { href: to(["failed"]), tone: by.failed ? "bad" : "", under: history ? lately(history.data, "failed") : "" }),
        history && stat("Started a second", rate(history?.data, "claimed"), { under: `${short(rate(history?.data, "added"))} added` }),
        history && stat("Done a second", rate(history?.data, "succeeded"), { under: lately(history?.data, "succeeded") })),
      history ? charts(history.data) : null,
      h("div", { class: "grid two" },
        queueCard(queues),
        workerCard(workers.data.items, history?.data),
        clusterCard(cluster.data),
        failureCard(failures)),
      total > 0 && total <= FEW ? recentCard(recent ??= page.watch("/v1/tasks?sort=-created_at&limit=5", { topics: ["task"], slowMs: 1000 })) : null,
    ];
  }
  return { title: "Overview", render };
}

// --- health: one sentence, and below it what is wrong ---

function health(cluster, workers, page, by) {
  const queues = page?.items;
  const wrong = [];
  const lost = cluster.nodes.filter((node) => node.state === "lost");
  const full = cluster.nodes.filter((node) => node.state === "disk_full");
  const up = workers.filter((worker) => worker.state === "up");
  const down = workers.filter((worker) => worker.state === "lost" && worker.role !== "pull"); // those come and go as they like
  if (!cluster.master) wrong.push(["bad", "No master is known: nothing is added or started until one is elected."]);
  if (lost.length) wrong.push(["bad", [`${plural(lost.length, "node")} out of touch: `, names(lost)]]);
  if (cluster.clock && cluster.clock.behind !== "0s") wrong.push(["warn", `Log time stands still, the clocks are ${span(spanMs(cluster.clock.behind))} behind it: nothing becomes due.`]);
  if (full.length) wrong.push(["bad", ["No room on the disk of ", names(full), ": no task is taken there."]]);
  if (!up.length) wrong.push(["bad", workers.length ? "No worker is up: nothing starts." : "There is no worker yet: nothing starts."]);
  else if (down.length) wrong.push(["warn", [`${plural(down.length, "worker")} lost: `, names(down)]]);
  for (const queue of queues ?? []) {
    if (queue.paused && queue.counts.pending) wrong.push(["warn", [link(queue), ` is paused, ${plural(queue.counts.pending, "task")} waiting.`]]);
    else if (queue.oldest_placeable_at && Date.now() - time(queue.oldest_placeable_at) > OLD_MS) {
      wrong.push(["warn", [link(queue), `: the oldest task has waited for ${span(Date.now() - time(queue.oldest_placeable_at))}.`]]);
    }
  }
  const strays = up.length ? (queues ?? []).filter((queue) => queue.unplaceable && !queue.paused).map(homeless) : [];
  const rest = page?.next && waitingIn(queues.at(-1)) ? `Judged are the ${plural(queues.length, "queue")} in which most waits, of ${count(page.total)}.` : "";
  const tone = wrong.some(([each]) => each === "bad") ? "bad" : wrong.length ? "warn" : "ok";
  const words = { ok: strays.length || rest ? "All is well, but note this" : "All is well", warn: "It works, but look at this", bad: "Something is wrong" }[tone];
  const nodes = cluster.nodes.length;
  return h("section", { class: `health tone-${tone}`, "aria-label": "Health", role: "status" },
    h("p", { class: "lead" }, h("i", { "aria-hidden": "true" }), h("strong", {}, words),
      h("span", { class: "dim" }, ` · ${plural(nodes - lost.length, "node")}${lost.length ? ` of ${nodes}` : ""}, ${plural(up.length, "worker")} up, ${plural(by.running ?? 0, "task")} running`)),
    wrong.length ? h("ul", {}, wrong.slice(0, 6).map(([each, text], i) => h("li", { key: i, class: `tone-${each}` }, text))) : null,
    strays.length ? h("ul", {}, strays.slice(0, STRAYS_MAX).map((text, i) => h("li", { key: i }, text)),
      strays.length > STRAYS_MAX ? h("li", { key: "more" }, `The same in ${plural(strays.length - STRAYS_MAX, "more queue", "more queues")}.`) : null) : null,
    rest ? h("p", { class: "dim" }, rest) : null);
}

/** Such a task waits until a worker comes that may have it, or it is changed: nothing of the cluster is the worse for it. */
function homeless(queue) {
  const { count: n, at_least: isPart, lacks } = queue.unplaceable;
  const all = h("a", { href: waits(queue, lacks.length === 1 ? lacks[0] : {}) }, `${isPart ? "at least " : ""}${plural(n, "task")}`);
  const why = lacks.map((lack, i) => [i ? "; " : "", LACKS[lack.what](lack.value), lacks.length > 1 ? [" (", h("a", { href: waits(queue, lack), "aria-label": `${plural(lack.count, "task")} of ${queue.name} for want of ${lack.what} ${lack.value ?? ""}` }, count(lack.count)), ")"] : null]);
  return [link(queue), ": ", all, ` ${n === 1 ? "waits" : "wait"} for a worker that there is not: no worker that is up `, why, "."];
}

const waits = (queue, lack) => to(["tasks"], { q: write({ queue: queue.name, state: "pending", ...(lack.what === "tag" ? { tag: lack.value } : {}) }) });
const LACKS = {
  queue: () => "takes tasks of this queue",
  adapter: (name) => ["runs ", own(name)],
  tag: (pattern) => ["has the tag ", h("span", { class: "tag" }, own(pattern))],
  worker: (name) => ["is the one they are pinned to, ", own(name)],
  slots: (n) => `has ${n} slots`,
  all: () => "has all that they ask for together",
};

const link = (queue) => h("a", { href: to(["queues", queue.name]) }, "queue ", own(queue.name));
const names = (items) => items.map((item, i) => [i ? ", " : "", own(item.name)]);

// --- a fresh node ---

function first(page) {
  const add = () => attempt("added: it appears below", () => api.send("POST", "/v1/events", { event: "ADD", tasks: [{ name: "hello", work: { command: ["echo", "hello from the dashboard"] } }] }));
  return card("Nothing has been added yet", { wide: true },
    h("p", {}, "A task is a command, and where and when it may run. From a shell on this machine:"),
    copyable("quvatlh add -- echo hello"),
    h("p", {}, "From anywhere, over HTTP, with a token:"),
    copyable(`curl ${location.origin}/v1/events -H "Authorization: Bearer $QUVATLH_TOKEN" -H 'Content-Type: application/json' -d '{"event":"ADD","tasks":[{"work":{"command":["echo","hello"]}}]}'`),
    page.may("POST /v1/events") && page.reaches("default", "default") ? h("p", {}, "Or ", button("add one from here", add, { kind: "primary" }), " and see it appear.") : null);
}

// --- numbers ---

const lastOf = (history, name, slots) => (history?.counts?.[name] ?? []).slice(-slots);
/** In five minutes, or as long as the node remembers. */
function lately(history, name) {
  const some = lastOf(history, name, 60).filter((n) => n !== null);
  return `${short(some.reduce((sum, n) => sum + n, 0))} in ${span(some.length * (spanMs(history?.step) ?? 5000))}`;
}

/** A second, over the last half minute without the slot that is being filled. */
function rate(history, name) {
  const some = lastOf(history, name, 7).slice(0, -1);
  const stepMs = spanMs(history?.step) ?? 5000;
  return some.length ? (mean(some) ?? 0) / (stepMs / 1000) : 0;
}

function load(workers) {
  const up = workers.filter((worker) => worker.state === "up");
  const slots = up.reduce((sum, worker) => sum + worker.slots, 0);
  const free = up.reduce((sum, worker) => sum + worker.free, 0);
  return `${short(slots - free)} of ${plural(slots, "slot")} taken`;
}

function oldest(queues) {
  const since = (queues ?? []).map((queue) => time(queue.oldest_pending_at)).filter(Boolean);
  return since.length ? `oldest for ${span(Date.now() - Math.min(...since))}` : "none for long";
}

function charts(history) {
  const stepMs = spanMs(history.step);
  const spanned = { spanMs: stepMs * Math.max(1, (history.counts.added ?? []).length), fromMs: time(history.from), stepMs };
  const perSecond = (name) => (history.counts[name] ?? []).slice(0, -1).map((n) => (n === null ? null : n / (stepMs / 1000)));
  return h("div", { class: "charts" },
    chart("Tasks a second", [
      { name: "added", values: perSecond("added"), tone: "accent" },
      { name: "done", values: perSecond("succeeded"), tone: "ok" },
      { name: "failed", values: perSecond("failed"), tone: "bad", pick: highest },
    ], spanned),
    chart("Wait until the start", [
      { name: "95 of 100", values: history.waits.wait_p95_ms.slice(0, -1), tone: "warn", pick: highest },
      { name: "half", values: history.waits.wait_p50_ms.slice(0, -1), tone: "accent" },
    ], { ...spanned, unit: span }),
    chart("Running", [{ name: "running", values: sum(history.tasks, "running", "claimed"), tone: "accent", fill: true }], spanned),
    chart("Waiting", [
      { name: "ready", values: history.tasks.pending, tone: "warn", fill: true },
      { name: "for a time", values: sum(history.tasks, "scheduled", "retrying"), tone: "dim" },
    ], spanned));
}

const sum = (columns, one, other) => columns[one].map((n, i) => (n === null ? null : n + columns[other][i]));

// --- lists ---

function queueCard(queues) {
  if (queues.error?.code === "not_found") return null;
  const items = [...(queues.data?.items ?? [])].sort((a, b) => waitingIn(b) - waitingIn(a) || a.name.localeCompare(b.name)).slice(0, 8);
  const most = Math.max(1, ...items.map(waitingIn));
  return card("Queues by depth", { more: h("a", { href: to(["queues"]) }, "all queues") },
    items.length ? table([
      { head: "Queue", kind: "grow", cell: (queue) => [h("a", { href: to(["queues", queue.name]) }, own(queue.name)), queue.paused ? [" ", state("paused")] : null] },
      { head: "Waiting", kind: "grow", cell: (queue) => bar(waitingIn(queue), most, count(waitingIn(queue))) },
      { head: "Running", kind: "num", cell: (queue) => count(queue.counts.running + queue.counts.claimed) },
      { head: "In/s", kind: "num hide", cell: (queue) => short(queue.rates?.in ?? 0) },
      { head: "Out/s", kind: "num hide", cell: (queue) => short(queue.rates?.out ?? 0) },
    ], items, { caption: "Queues by depth" }) : h("p", { class: "dim" }, "A queue is made by the first task that names it."));
}

const waitingIn = (queue) => queue.counts.pending;

function workerCard(workers, history) {
  const items = [...workers].sort((a, b) => (b.slots - b.free) / (b.slots || 1) - (a.slots - a.free) / (a.slots || 1) || a.name.localeCompare(b.name)).slice(0, 8);
  return card("Workers by load", { more: h("a", { href: to(["workers"]) }, "all workers") },
    table([
      { head: "Worker", kind: "grow", cell: (worker) => [h("a", { href: to(["workers"], { name: worker.name }) }, own(worker.name)), worker.state === "up" ? null : [" ", state(worker.state)]] },
      { head: "Slots", kind: "grow", cell: (worker) => (worker.state === "lost" ? "–" : bar(worker.slots - worker.free, worker.slots, `${worker.slots - worker.free} of ${worker.slots}`)) },
      history && { head: "Last hour", cell: (worker) => spark(history.live[worker.name] ?? [0, 0], `actions of ${worker.name} in the last hour`) },
    ].filter(Boolean), items, { caption: "Workers by load" }));
}

function clusterCard(cluster) {
  return card("Master and replicas", { more: h("a", { href: to(["cluster"]) }, "cluster") },
    table([
      { head: "Node", kind: "grow", cell: (node) => [own(node.name), node.name === cluster.node ? h("span", { class: "dim" }, " (this page)") : null] },
      { head: "Is", cell: (node) => (node.name === cluster.master ? state("master") : node.state === "up" ? state("replica") : state(node.state)) },
      { head: "Behind", kind: "num", cell: (node) => (node.name === cluster.master ? "–" : node.lag === null ? h("span", { class: "dim", title: "only the master knows" }, "–") : count(node.lag)) },
    ], cluster.nodes, { key: (node) => node.id, caption: "Master and replicas" }),
    h("p", { class: "dim" }, `term ${count(cluster.term)}, entry ${count(cluster.index)}`));
}

function failureCard(failures) {
  const items = failures.data?.items ?? [];
  return card("Recent failures", { more: h("a", { href: to(["failed"]) }, "all failed") },
    items.length ? table([
      { head: "Task", kind: "grow", cell: (task) => h("a", { href: to(["tasks", task.id]) }, own(title(task))) },
      { head: "Error", kind: "grow", cell: (task) => h("span", { class: "error" }, own(task.error?.code), " ", h("span", { class: "dim" }, own(task.error?.text.split("\n", 1)[0]))) },
      { head: "When", kind: "tight", cell: (task) => when(task.finished_at) },
    ], items, { key: (task) => task.id, caption: "Recent failures" }) : h("p", { class: "dim" }, "None is listed: nothing has failed, or it is long ago."));
}

function recentCard(recent) {
  return card("Last added", { wide: true, more: h("a", { href: to(["tasks"]) }, "all tasks") },
    table([
      { head: "Task", kind: "grow", cell: (task) => h("a", { href: to(["tasks", task.id]) }, own(title(task))) },
      { head: "State", cell: (task) => state(task.state) },
      { head: "Runs", kind: "grow hide", cell: (task) => h("code", {}, work(task.work)) },
      { head: "Added", kind: "tight", cell: (task) => when(task.created_at) },
    ], recent.data?.items ?? [], { key: (task) => task.id, caption: "Last added" }));
}
