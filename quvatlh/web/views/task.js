// One task: what became of it and when, why it waits, what it writes, what it was asked to do, and all that may be done.

import * as api from "../lib/api.js";
import { h } from "../lib/dom.js";
import { ago, moment, span, time, title, work } from "../lib/format.js";
import { bar, button, card, copyable, json, own, pairs, state, table, tabs, waiting, when } from "../lib/parts.js";
import { to } from "../lib/router.js";
import { VERBS, allowed, perform } from "../lib/verbs.js";

const LINES_MAX = 4000;
const LINE_CHARS_MAX = 4000;
const FINISHED = ["succeeded", "failed", "deleted"];
const VERDICTS = {
  would_run: "would run it", lost: "is out of touch", draining: "is draining", queue: "does not take from its queue",
  adapter: "cannot run its kind of work", tags: "lacks a tag it asks for", policy: "its policy does not bid here",
  slots: "has not enough free slots", not_asked: "its policy has not been asked here yet",
};

export default function task(page) {
  const id = page.place.parts[1];
  const base = api.path("/v1/tasks", id);
  const one = page.watch(base, { topics: ["task"], id, onData: arrived });
  const actions = page.watch(`${base}/actions`, { topics: ["task"], id });
  const log = new Log(page, base);
  let explained = null;

  /** Asked only while it waits: otherwise there is nothing to explain. */
  function arrived(data) {
    const waits = !FINISHED.includes(data.state) && data.state !== "running";
    if (waits && !explained) explained = page.watch(`${base}/explain`, { topics: ["task", "worker", "queue"], slowMs: 1000, everyMs: 3000 });
    if (!waits && explained) {
      explained.stop();
      explained = null;
    }
    if (data.started_at || data.state === "running") log.begin(data.actions.at(-1)?.id);
  }

  function may(verb, data) {
    const over = FINISHED.includes(data.state);
    const failed = data.state === "failed";
    return { retry: failed, kill: !over && ["claimed", "running"].includes(data.state), relocate: !over, update: !over || failed, delete: !over || failed }[verb];
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
      data.error ? card("Error", { tone: "bad", wide: true }, h("p", {}, h("strong", {}, own(data.error.code))), data.error.text ? json(data.error.text) : null, details(data.error)) : null,
      h("div", { class: "grid two" },
        card("What happened", {}, timeline(data, all)),
        card("What it is", {}, facts(data))),
      log.card(all),
      data.state === "succeeded" && data.result !== null ? card("Result", { wide: true }, json(data.result)) : null,
      "payload" in data ? card("Payload", { wide: true }, json(data.payload)) : null,
      "payload_base64" in data ? card("Payload, as bytes in base64", { wide: true }, json(data.payload_base64)) : null,
      card("Work", { wide: true }, json(data.work)),
      data.policy ? card("Policy", { wide: true }, json(data.policy.name ? `stored as ${data.policy.name}` : data.policy)) : null,
      card("Everything that was asked for", { wide: true }, h("details", {}, h("summary", {}, "as the interface tells it"), json(data))),
    ];
  }

  return { title: "Task", heading: () => (one.data ? own(title(one.data)) : "Task"), render };
}

function summary(data) {
  if (data.kind === "service") return ` ${data.live} of ${data.wanted} instances live`;
  if (data.state === "running") return ` for ${span(Date.now() - time(data.started_at))}`;
  if (data.finished_at) return ` ${ago(data.finished_at)}${data.started_at ? `, took ${span(time(data.finished_at) - time(data.started_at))}` : ""}`;
  if (data.state === "scheduled" || data.state === "retrying") return ` due ${ago(data.at)}`;
  return ` for ${span(Date.now() - time(data.at ?? data.created_at))}`;
}

function progress(actions) {
  const last = actions.at(-1);
  if (!last?.progress || last.finished_at) return null;
  const { percent, text } = last.progress;
  return h("div", { class: "card wide" }, bar(percent ?? 0, 100, percent === undefined || percent === null ? "" : `${percent} %`), text ? h("p", {}, own(text)) : null);
}

function explain(told) {
  return card("Why it is not running", { wide: true, tone: "warn" },
    h("p", { class: "lead" }, own(told.text)),
    pairs([
      told.position !== null && told.position !== undefined ? ["Before it", `${told.position}`] : null,
      told.eta?.at ? ["Expected", [when(told.eta.at), told.eta.low ? h("span", { class: "dim" }, ` (${ago(told.eta.low)} to ${ago(told.eta.high)})`) : null]] : null,
      told.holders?.length ? ["Held by", told.holders.slice(0, 5).map((holder, i) => [i ? ", " : "", h("a", { key: holder, href: to(["tasks", holder]) }, own(holder))])] : null,
    ]),
    told.workers.length ? table([
      { head: "Worker", cell: (one) => h("a", { href: to(["workers"], { name: one.name }) }, own(one.name)) },
      { head: "Answer", kind: "grow", cell: (one) => [VERDICTS[one.verdict] ?? one.verdict, one.detail ? h("span", { class: "dim" }, ": ", own(typeof one.detail === "string" ? one.detail : JSON.stringify(one.detail))) : null] },
    ], told.workers.slice(0, 50), { caption: "What each worker says" }) : null);
}

function details(error) {
  const rest = Object.entries(error).filter(([name, value]) => name !== "code" && name !== "text" && value);
  return rest.map(([name, value]) => h("div", { key: name }, h("h3", {}, name), json(value)));
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

function facts(data) {
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
    data.eta?.at ? ["Expected", when(data.eta.at)] : null,
    ["Runs", h("code", {}, work(data.work))],
  ]);
}

// --- the log, as it is written ---

class Log {
  constructor(page, base) {
    this.page = page;
    this.base = base;
    this.stream = "stdout";
    this.action = undefined;
    this.wanted = undefined;
    this.lines = [];
    this.rest = "";
    this.dropped = 0;
    this.words = "";
    this.stopper = null;
    this.sticks = true;
    page.onStop(() => this.stopper?.abort());
  }

  /** The newest action is shown, unless the person chose one. */
  begin(newest) {
    if (this.wanted === undefined && newest !== undefined && newest !== this.action) this.follow(newest);
    else if (this.action === undefined) this.follow(newest);
  }

  choose(stream, action) {
    this.stream = stream;
    if (action !== undefined) this.wanted = action;
    this.follow(action ?? this.action);
  }

  async follow(action) {
    this.stopper?.abort();
    const stopper = (this.stopper = new AbortController());
    this.action = action;
    this.lines = [];
    this.rest = "";
    this.dropped = 0;
    this.words = "";
    let offset = 0;
    for (let tries = 0; tries < 100 && this.stopper === stopper; tries += 1) {
      try {
        const response = await api.open(`${this.base}/log${api.query({ stream: this.stream, action, follow: 1, offset })}`, stopper.signal);
        const first = Number(response.headers.get("Quvatlh-Offset") ?? offset);
        if (first > offset) this.words = "what stood before is no longer kept";
        if (response.headers.get("Quvatlh-Log") === "tail") this.words = "its worker is gone: this is the end that is left";
        offset = first;
        const reader = response.body.getReader();
        const decoder = new TextDecoder();
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          offset += value.length;
          this.take(decoder.decode(value, { stream: true }));
        }
        if (this.stopper === stopper) this.page.redraw();
        return;
      } catch (error) {
        if (this.stopper !== stopper || error.name === "AbortError") return;
        if (error.status >= 400 && error.status < 500) {
          this.words = error.message;
          this.page.redraw();
          return;
        }
        await new Promise((resolve) => setTimeout(resolve, 1000)); // the node is away: go on at the next byte
      }
    }
  }

  take(text) {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop().slice(-LINE_CHARS_MAX);
    for (const line of lines) this.lines.push(line.length > LINE_CHARS_MAX ? `${line.slice(0, LINE_CHARS_MAX)}…` : line);
    const over = this.lines.length - LINES_MAX;
    if (over > 0) {
      this.lines.splice(0, over);
      this.dropped += over;
    }
    this.page.live.onChange(true);
  }

  card(actions) {
    if (this.action === undefined) return null;
    const text = [...this.lines, this.rest].join("\n");
    const whole = `${this.base}/log${api.query({ stream: this.stream, action: this.action })}`;
    const stick = (element) => {
      this.place = element;
      element.scrollTop = element.scrollHeight;
    };
    if (this.place && this.sticks) requestAnimationFrame(() => { this.place.scrollTop = this.place.scrollHeight; });
    return card("Log", {
      wide: true,
      more: h("div", { class: "actions" },
        tabs(["stdout", "stderr"], this.stream, (stream) => this.choose(stream)),
        actions.length > 1 ? h("select", { "aria-label": "Try", onchange: (event) => this.choose(this.stream, event.target.value) },
          actions.map((action) => h("option", { key: action.id, value: action.id, selected: action.id === this.action }, `try ${action.attempt}, ${action.worker}`))) : null,
        h("a", { href: whole, download: "", class: "button" }, "Save")) },
      this.words ? h("p", { class: "dim" }, this.words) : null,
      this.dropped ? h("p", { class: "dim" }, `the last ${LINES_MAX} lines; ${this.dropped} before them are in the file`) : null,
      h("pre", { class: "log", tabindex: "0", "aria-label": this.stream, made: stick, onscroll: (event) => { const e = event.target; this.sticks = e.scrollHeight - e.scrollTop - e.clientHeight < 30; } },
        text || h("span", { class: "dim" }, "nothing written")));
  }
}
