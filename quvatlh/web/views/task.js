// One task: what became of it and when, why it waits, what it writes, what it was asked to do, and all that may be done.

import * as api from "../lib/api.js";
import { h } from "../lib/dom.js";
import { ago, count, moment, span, time, title, work } from "../lib/format.js";
import { Log } from "../lib/log.js";
import { bar, card, copyable, json, own, pairs, state, table, waiting, when } from "../lib/parts.js";
import { to } from "../lib/router.js";
import { VERBS, allowed, perform } from "../lib/verbs.js";

const FINISHED = ["succeeded", "failed", "deleted"];
const PLAIN = ["its policy does not want it", "its policy has not said anything yet"]; // says what the verdict says
const VERDICTS = {
  would_run: "would run it", lost: "is out of touch", draining: "is draining", queue: "does not take from its queue",
  adapter: "cannot run its kind of work", tags: "lacks a tag it asks for", policy: "its policy does not bid here",
  bid: "bid for it", slots: "has not enough free slots",
  limit: "has as many of its queue as a worker may", not_asked: "its policy has not been asked here yet",
};

export default function task(page) {
  const id = page.place.parts[1];
  const base = api.path("/v1/tasks", id);
  const one = page.watch(base, { topics: ["task"], id, slowMs: 500, onData: arrived });
  const actions = page.watch(`${base}/actions`, { topics: ["task"], id, slowMs: 500 });
  const log = new Log(page, base, (action) => (actions.data?.items ?? one.data.actions).find((each) => each.id === action)?.finished_at);
  let explained = null;
  let policy = null; // as it is stored, where the task names one
  let bids = null; // what its policy said before it was awarded

  /** Asked only while it waits, or of what a policy chose: otherwise there is nothing to explain. */
  function arrived(data) {
    const waits = !FINISHED.includes(data.state) && data.state !== "running";
    if (waits && !explained) explained = page.watch(`${base}/explain`, { topics: ["task", "worker", "queue"], slowMs: 1000, everyMs: 3000 });
    if (!waits && explained) {
      page.unwatch(explained);
      explained = null;
    }
    if (waits && bids) { // another try, another auction
      page.unwatch(bids);
      bids = null;
    }
    if (!waits && data.policy && !bids) bids = page.watch(`${base}/explain`, {});
    if (data.policy?.name && !policy) policy = page.watch(api.path("/v1/policies", data.policy.name), { everyMs: 60_000 });
    if (data.started_at || data.state === "running") log.begin(data.actions.at(-1)?.id);
  }

  function may(verb, data) {
    const over = FINISHED.includes(data.state);
    const failed = data.state === "failed";
    return { retry: failed || data.state === "retrying", kill: !over && ["claimed", "running"].includes(data.state), relocate: !over, update: !over || failed, delete: !over || failed }[verb];
  }

  function render() {
    const wait = waiting(one);
    if (wait) return wait;
    const data = one.data;
    const all = actions.data?.items ?? data.actions;
    return [
      h("div", { class: "headline" },
        state(data.state), h("span", { class: "dim" }, summary(data)),
        h("div", { class: "actions" }, allowed(page).filter((verb) => may(verb, data)).map((verb) => h("button", {
          key: verb, type: "button", class: VERBS[verb].danger ? "danger" : "", onclick: () => perform(page, verb, { ids: [id] }, "this task") }, VERBS[verb].words)))),
      progress(all),
      explained?.data ? explain(explained.data) : null,
      data.error ? errorCard(data.error, all.findLast((action) => action.finished_at)) : null,
      h("div", { class: "grid two" },
        card("What happened", {}, timeline(data, all)),
        card("What it is", {}, facts(data, explained !== null))),
      log.card(all),
      data.state === "succeeded" && data.result !== null ? card("Result", { wide: true }, json(data.result)) : null,
      "payload" in data ? card("Payload", { wide: true }, json(data.payload)) : null,
      "payload_base64" in data ? card("Payload, as bytes in base64", { wide: true }, json(data.payload_base64)) : null,
      card("Work", { wide: true }, json(data.work)),
      data.policy ? policyCard(data.policy, policy, explained ? null : bids?.data) : null,
      card("Everything that was asked for", { wide: true }, h("details", {}, h("summary", {}, "as the interface tells it"), json(data))),
    ];
  }

  return { title: "Task", heading: () => (one.data ? own(title(one.data)) : "Task"), render };
}

function summary(data) {
  if (data.kind === "service") return ` ${data.live} of ${data.wanted} instances live`;
  if (data.state === "running") return ` for ${span(Date.now() - time(data.started_at))}`;
  if (data.finished_at) return ` ${ago(data.finished_at)}${data.started_at && data.state !== "deleted" ? `, took ${span(time(data.finished_at) - time(data.started_at))}` : ""}`;
  if (data.state === "retrying") return data.eta?.at ? ` next try ${ago(data.eta.at)}` : "";
  if (data.state === "scheduled") return ` due ${ago(data.at)}`;
  return ` for ${span(Date.now() - time(data.at ?? data.created_at))}`;
}

function progress(actions) {
  const last = actions.at(-1);
  if (!last?.progress || last.finished_at) return null;
  const { percent, text } = last.progress;
  return h("div", { class: "card wide" }, bar(percent ?? 0, 100, percent === undefined || percent === null ? "" : `${percent} %`), text ? h("p", {}, own(text)) : null);
}

/** Only where it is wider than what a free slot takes, and than one looks at from afar. */
function range({ at, low, high }) {
  const isWide = time(high) - time(low) > Math.max(1000, Math.abs(time(at) - Date.now()) / 20);
  const [from, to] = [low, high].map((each) => ago(each));
  return isWide && from !== to ? h("span", { class: "dim" }, ` (${from} to ${to})`) : null;
}

function explain(told) {
  return card("Why it is not running", { wide: true, tone: "warn" },
    h("p", { class: "lead" }, own(told.text)),
    pairs([
      told.change ? ["What would change it", own(told.change)] : null,
      told.position !== null && told.position !== undefined ? ["Before it", told.position ? count(told.position) : "none: it is the next"] : null,
      told.eta?.at ? ["Expected", [when(told.eta.at), range(told.eta)]] : null,
      told.holders?.length ? ["Held by", told.holders.slice(0, 5).map((holder, i) => [i ? ", " : "", h("a", { key: holder, href: to(["tasks", holder]) }, own(holder))])] : null,
    ]),
    answers(told.workers, "What each worker says"));
}

function answers(workers, caption) {
  return workers.length ? table([
    { head: "Worker", cell: (one) => h("a", { href: to(["workers"], { name: one.name }) }, own(one.name)) },
    { head: "Answer", kind: "grow", cell: (one) => [VERDICTS[one.verdict] ?? one.verdict, typeof one.score === "number" ? `, ${one.verdict === "bid" ? "with" : "bids"} ${Number(one.score.toPrecision(4))}` : null, one.detail && !PLAIN.includes(one.detail) ? h("span", { class: "dim" }, ": ", own(typeof one.detail === "string" ? one.detail : JSON.stringify(one.detail))) : null] },
  ], workers.slice(0, 50), { caption }) : null;
}

/** `told`: of a task that does not wait any more. */
function policyCard(given, stored, told) {
  const said = told?.workers.length ? [h("p", {}, "What it had said when the task was given away, to the best bid that had room:"), answers(told.workers, "What the policy said")] : null;
  if (!given.name) return card("Policy", { wide: true }, json(given), said);
  return card("Policy", { wide: true }, h("p", {}, "Stored as ", own(given.name), stored?.data ? h("span", { class: "dim" }, `, changed ${ago(stored.data.at)}`) : null),
    stored?.data ? json(stored.data.source) : stored?.error ? h("p", { class: "problem" }, own(stored.error.message)) : null, said);
}

/** A traceback is the end of what it wrote: shown where one looks for it. */
function errorCard(error, last) {
  const rest = Object.entries(error).filter(([name, value]) => name !== "code" && name !== "text" && value);
  return card("Error", { tone: "bad", wide: true }, h("p", {}, h("strong", {}, own(error.code))), error.text ? json(error.text) : null,
    last?.output_tail ? [h("h3", {}, "The last that it wrote"), json(last.output_tail)] : null,
    rest.map(([name, value]) => h("div", { key: name }, h("h3", {}, name), json(value))));
}

// --- the timeline ---

function timeline(data, actions) {
  const steps = [{ at: data.created_at, words: ["added to ", h("a", { href: to(["queues", data.queue]) }, own(data.queue))], tone: "accent" }];
  if (data.at && time(data.at) - time(data.created_at) > 1000) steps.push({ at: data.at, words: "due", tone: "dim" });
  for (const action of actions) {
    const place = ["on ", h("a", { href: to(["workers"], { name: action.worker }) }, own(action.worker))];
    if (action.started_at) steps.push({ at: action.started_at, words: [`try ${action.attempt} began `, place], tone: "accent" });
    else if (!action.finished_at) steps.push({ at: null, words: [`try ${action.attempt} claimed `, place], tone: "accent" });
    if (action.finished_at) {
      const why = [action.error ? own(action.error.code) : null, action.exit_code ? `exit status ${action.exit_code}` : null, action.signal ? `signal ${action.signal}` : null].filter(Boolean);
      steps.push({
        at: action.finished_at, tone: action.state === "succeeded" ? "ok" : "bad",
        words: [`try ${action.attempt} ${action.state}`, why.length ? [": ", why.map((each, i) => [i ? ", " : "", each])] : null,
          action.started_at ? h("span", { class: "dim" }, ` after ${span(time(action.finished_at) - time(action.started_at))}`) : null],
      });
    }
  }
  if (data.finished_at) steps.push({ at: data.finished_at, words: data.state, tone: data.state === "succeeded" ? "ok" : "bad" });
  else if (data.expires) steps.push({ at: data.expires, words: "expires, if it has not begun by then", tone: "dim" });
  return h("ol", { class: "timeline" }, steps.map((step, i) => h("li", { key: i, class: `tone-${step.tone}` },
    h("i", { "aria-hidden": "true" }), h("span", {}, step.words), step.at ? h("time", { datetime: step.at, title: step.at }, moment(step.at), " ", h("small", {}, ago(step.at))) : null)));
}

/** When it is expected is told by who explains, where it is explained: he knows of workers, too. */
function facts(data, isExplained) {
  return pairs([
    ["Id", copyable(data.id)],
    ["Group", h("a", { href: to(["services"], { group: data.group }) }, own(data.group))],
    data.name !== data.id ? ["Name", own(data.name)] : null,
    ["Kind", data.kind],
    data.key ? ["Key", own(data.key)] : null,
    data.priority ? ["Priority", String(data.priority)] : null,
    data.limit ? ["Limit", String(data.limit)] : null,
    data.tags.length ? ["Tags", data.tags.map((tag) => h("span", { key: tag, class: "tag" }, own(tag)))] : null,
    ["Tries", `${data.attempts}${data.retry ? ` of ${data.retry.attempts}` : ""}`],
    data.timeout ? ["Timeout", data.timeout] : null,
    ["Lease", data.lease],
    ["Delivery", data.delivery],
    data.eta?.at && !isExplained ? ["Expected", when(data.eta.at)] : null,
    ["Runs", h("code", {}, work(data.work))],
  ]);
}
