// One queue: how it stands, who shares it, who works for it, how it is set.

import * as api from "../lib/api.js";
import { h } from "../lib/dom.js";
import { count, plural, short, span, spanMs } from "../lib/format.js";
import { matches } from "../lib/globs.js";
import { ask, attempt, bar, button, card, confirm, note, own, pairs, stat, state, waiting, when } from "../lib/parts.js";
import { write } from "../lib/query.js";
import { go, to } from "../lib/router.js";
import { QUEUE, said } from "../lib/settings.js";
import { editQueue, pause } from "./queues.js";

/** So many that wait are counted by key as they change: some milliseconds of the node. More only when a person asks. */
const COUNTED_MAX = 10_000;

export default function queue(page) {
  const name = page.place.parts[1];
  const base = api.path("/v1/queues", name);
  const one = page.watch(base, { topics: ["task", "queue"], slowMs: 500, onData: (data) => follow(data.counts.pending <= COUNTED_MAX) });
  const workers = page.watch("/v1/workers", { topics: ["worker"], slowMs: 1000 });
  const running = page.watch(`/v1/tasks${api.query({ queue: name, state: "running,claimed", group_by: "key" })}`, { topics: ["task"], slowMs: 2000 });
  let pending = null; // by key
  let isFew = false;

  function follow(few) {
    if (few === isFew) return;
    isFew = few;
    page.unwatch(pending);
    pending = few ? counted({ topics: ["task"], slowMs: 2000, counts: true }) : null;
  }

  const counted = (how) => page.watch(`/v1/tasks${api.query({ queue: name, state: "pending", group_by: "key" })}`, how);

  function countOnce() {
    page.unwatch(pending);
    pending = counted({});
    page.redraw();
  }

  function byKey() {
    if (pending?.data === undefined) return pending ? h("small", {}, "counting…") : button("Count what waits", countOnce);
    if (isFew) return null;
    return h("small", {}, "counted ", when(new Date(pending.at).toISOString()), " ", button("Count again", countOnce));
  }

  function actions(data) {
    if (!page.may("PATCH /v1/queues/{name}")) return null;
    return h("div", { class: "actions" },
      button(data.paused ? "Resume" : "Pause", () => pause(data)),
      button("Change…", () => editQueue(data)),
      button("Purge…", () => purge(data), { kind: "danger" }),
      button("Delete", () => remove(data), { kind: "danger" }));
  }

  async function purge(data) {
    const done = await ask({
      title: `Purge ${data.name}?`, text: "What waits becomes deleted; what is over leaves the list. What runs is not touched.", danger: true, submit: "Purge",
      fields: [{ name: "states", label: "Which", kind: "choice", value: "", options: [["", "what waits"], ["failed", "what failed"], ["succeeded,failed,deleted", "all that is over"]] }],
      action: async (values, progress) => {
        const which = values.states ? { states: values.states.split(",") } : {};
        return api.finished(await api.send("POST", `${base}/purge`, which), (bulk) => progress(bulk.done, bulk.matched));
      },
    });
    if (done) note(`${plural(done.done, "task")} purged`);
  }

  async function remove(data) {
    const done = await ask({ title: `Delete ${data.name}?`, text: "Its settings are forgotten. Only where it holds no task, listed ones included.", danger: true, submit: "Delete", action: () => api.send("DELETE", base) });
    if (done) go(["queues"]);
  }

  function render() {
    const wait = waiting(one, workers);
    if (wait) return wait;
    const data = one.data;
    const tasks = (wanted) => to(["tasks"], { q: write({ queue: name, state: wanted }) });
    return [
      h("div", { class: "headline" }, data.paused ? state("paused", "paused: nothing starts") : state("up", "open"), actions(data)),
      h("div", { class: "stats" },
        stat("Waiting", data.counts.pending, { href: tasks("pending"), under: data.oldest_pending_at ? ["oldest ", when(data.oldest_pending_at)] : "none" }),
        stat("Running", data.counts.running + data.counts.claimed, { href: tasks("running,claimed"), under: data.limit === null ? "no limit" : `of ${count(data.limit)}` }),
        stat("Scheduled", data.counts.scheduled + data.counts.retrying, { href: tasks("scheduled,retrying"), under: `${count(data.counts.retrying)} to be retried` }),
        stat("Failed", data.counts.failed, { href: tasks("failed"), tone: data.counts.failed ? "bad" : "", under: `${short(data.rates.failed)} a second` }),
        stat("In a second", data.rates.in, { under: `out ${short(data.rates.out)}` }),
        stat("Wait", times(data.rates.wait, "p50"), { under: `95 of 100 within ${times(data.rates.wait, "p95")}` }),
        stat("Run", times(data.rates.run, "p50"), { under: `95 of 100 within ${times(data.rates.run, "p95")}` })),
      h("div", { class: "grid two" },
        shares(running.data?.groups ?? [], pending?.data?.groups, name, byKey()),
        card("How it is set", {},
          pairs(said(QUEUE, data).map(([label, words]) => [label, label === "Workers" ? data.workers.map((pattern) => h("span", { key: pattern, class: "tag" }, own(pattern))) : own(words)])))),
      attached(page, data, workers),
    ];
  }
  return { title: `Queue ${name}`, heading: () => [h("a", { href: "#/queues" }, "Queues"), " / ", own(name)], render };
}

const times = (given, which) => span(spanMs(given?.[which]));

// --- who shares it ---

/** `pending`: undefined while it is not counted. */
function shares(running, pending, queue, more) {
  const keys = new Map();
  for (const group of running) keys.set(group.value, { key: group.value, running: group.count, pending: 0 });
  for (const group of pending ?? []) keys.set(group.value, { running: 0, key: group.value, ...keys.get(group.value), pending: group.count });
  const rows = [...keys.values()].filter((row) => row.key !== null).sort((a, b) => b.running - a.running || b.pending - a.pending).slice(0, 12);
  const all = running.reduce((sum, group) => sum + group.count, 0);
  return card("Shares by key", { more },
    rows.length ? h("ul", { class: "shares" }, rows.map((row) => h("li", { key: row.key, class: "share" },
      h("a", { href: to(["tasks"], { q: write({ queue, key: row.key }) }) }, own(row.key)),
      bar(row.running, all, all ? `${Math.round((100 * row.running) / all)} %` : "0 %"),
      h("small", {}, `${count(row.running)} running${pending ? `, ${count(row.pending)} waiting` : ""}`)))) : h("p", { class: "dim" }, pending ? "No task of it that waits or runs has a key." : "No task of it that runs has a key."));
}

// --- who works for it: moved by dragging, or by the button ---

function attached(page, queue, workers) {
  const takes = (worker) => matches(worker.queues, queue.name) && matches(queue.workers, worker.name);
  const movable = page.may("PATCH /v1/workers/{name}", "PATCH /v1/queues/{name}");
  const sides = [["Work for it", workers.data.items.filter(takes), true], ["Do not", workers.data.items.filter((worker) => !takes(worker)), false]];
  const move = async (name, on) => {
    const worker = workers.data.items.find((each) => each.name === name);
    if (!worker || takes(worker) === on) return;
    if (on) await attempt(`${name} works for ${queue.name}`, () => attach(queue, worker));
    else await detach(queue, worker, workers.data.items);
    workers.refresh();
  };
  return h("div", { class: "grid two" }, sides.map(([words, list, on]) => h("section", {
    key: words, class: "card", "aria-label": words,
    ondragover: (event) => { event.preventDefault(); event.currentTarget.classList.add("drop"); },
    ondragleave: (event) => event.currentTarget.classList.remove("drop"),
    ondrop: (event) => { event.preventDefault(); event.currentTarget.classList.remove("drop"); if (movable) move(event.dataTransfer.getData("text/plain"), on); },
  },
    h("header", {}, h("h2", {}, `${words} (${list.length})`), on && movable ? h("small", {}, "drag a worker, or use its button") : null),
    list.length ? h("ul", { class: "members" }, list.map((worker) => h("li", { key: worker.name, draggable: movable ? "true" : undefined, ondragstart: (event) => event.dataTransfer.setData("text/plain", worker.name) },
      h("a", { href: to(["workers"], { name: worker.name }), draggable: "false" }, own(worker.name)), " ", state(worker.state), h("small", {}, ` ${worker.slots - worker.free} of ${worker.slots} slots · takes ${worker.queues.join(", ") || "nothing"}`),
      movable ? button(on ? "Detach" : "Attach", () => move(worker.name, !on), { label: `${on ? "Detach" : "Attach"} ${worker.name}` }) : null))) : h("p", { class: "dim" }, "none"))));
}

async function attach(queue, worker) {
  if (!matches(worker.queues, queue.name)) await api.send("PATCH", api.path("/v1/workers", worker.name), { queues: [...worker.queues, queue.name] });
  if (!matches(queue.workers, worker.name)) await api.send("PATCH", api.path("/v1/queues", queue.name), { workers: [...queue.workers, worker.name] });
}

/** By the worker's own list where the queue stands in it; else by the queue's: a pattern cannot leave one out, so that the names
 *  of the others that it takes stand in its place. Null: nothing of the queue's is changed. */
function without(queue, worker, workers) {
  if (!matches(worker.queues.filter((pattern) => pattern !== queue.name), queue.name)) return null;
  const stays = queue.workers.filter((pattern) => !matches([pattern], worker.name));
  const gone = queue.workers.filter((pattern) => matches([pattern], worker.name) && pattern !== worker.name);
  const named = workers.map((each) => each.name).filter((name) => name !== worker.name && matches(gone, name) && !matches(stays, name));
  return { workers: [...stays, ...named], gone, named };
}

const instead = ({ named }) => (named.length ? `It will name those that there are now instead: ${named.join(", ")}.` : "It will do without.");

async function detach(queue, worker, workers) {
  const left = without(queue, worker, workers);
  if (left && !workers.some((each) => each.name !== worker.name && matches(left.workers, each.name) && matches(each.queues, queue.name))) {
    note("It is the last one: pause the queue instead.", "bad");
    return;
  }
  const change = async () => {
    const rest = worker.queues.filter((pattern) => pattern !== queue.name);
    if (rest.length < worker.queues.length) await api.send("PATCH", api.path("/v1/workers", worker.name), { queues: rest });
    if (left) await api.send("PATCH", api.path("/v1/queues", queue.name), { workers: left.workers });
  };
  const words = `${worker.name} does not work for ${queue.name}`;
  if (!left?.gone.length) await attempt(words, change);
  else if (await confirm(`Detach ${worker.name}?`, `The queue takes workers by ${left.gone.join(" ")}, which cannot leave one out. ${instead(left)} A worker that joins later will not work for it until it is attached here.`, "Detach", change, { danger: false })) note(words);
}
