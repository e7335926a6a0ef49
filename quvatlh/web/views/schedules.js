// Schedules: what they add and when; the ledger of one as a strip of slots; paused, run, changed, deleted.

import * as api from "../lib/api.js";
import { read } from "../lib/cron.js";
import { h } from "../lib/dom.js";
import { moment, work } from "../lib/format.js";
import { ask, attempt, button, card, confirm, empty, json, note, opener, own, pairs, state, table, waiting, when } from "../lib/parts.js";
import { to } from "../lib/router.js";

const SLOTS = 200;

export default function schedules(page) {
  const list = page.watch("/v1/schedules", { topics: ["schedule"], everyMs: 30_000 });
  let open = null;
  moved(page.place);

  function moved(place) {
    const name = place.query.name;
    if (open?.name === name) return;
    page.unwatch(...(open?.resources ?? []));
    open = null;
    if (name === undefined) return;
    const one = page.watch(api.path("/v1/schedules", name), { topics: ["schedule"], everyMs: 30_000 });
    const ledger = page.watch(`${api.path("/v1/schedules", name)}/ledger?limit=${SLOTS}`, { topics: ["schedule"], slowMs: 1000 });
    open = { name, one, ledger, resources: [one, ledger] };
  }

  function render() {
    const wait = waiting(list);
    if (wait) return wait;
    const items = list.data.items;
    return [
      page.may("PUT /v1/schedules/{name}") ? h("div", { class: "tools" }, button("New schedule", () => edit(null), { kind: "primary" })) : null,
      items.length ? table([
        { head: "Schedule", kind: "grow", cell: (one) => [h("a", { class: "title", href: to(["schedules"], { name: open?.name === one.name ? undefined : one.name }), "aria-expanded": String(open?.name === one.name) }, opener(open?.name === one.name), own(one.name)), h("small", { class: "narrow-only" }, own(one.text || rule(one)))] },
        { head: "Rule", kind: "grow hide", cell: (one) => [own(one.text || rule(one)), one.cron ? [" ", h("code", { class: "dim line" }, one.cron)] : null] },
        { head: "Next", kind: "tight", cell: (one) => (one.paused ? state("paused") : when(one.next[0])) },
        { head: "Last", kind: "tight hide", cell: (one) => when(one.last_slot) },
        page.may("PUT /v1/schedules/{name}") ? { head: "", kind: "", cell: (one) => h("div", { class: "actions" }, button("Run now", () => run(one), { label: `Run ${one.name} now` }), button(one.paused ? "Resume" : "Pause", () => pause(one), { label: `${one.paused ? "Resume" : "Pause"} ${one.name}` })) } : null,
      ].filter(Boolean), items, { caption: "Schedules" })
        : empty("There are no schedules.", h("p", {}, "One adds a task at each of its times, and neither misses nor doubles one: ", h("code", {}, "quvatlh cron add nightly '0 3 * * *' -- ./backup"))),
      open ? detail(page, open) : null,
    ];
  }
  return { title: "Schedules", render, moved };
}

const rule = (one) => (one.every ? `every ${one.every}` : read(one.cron ?? ""));

async function run(one) {
  try {
    const done = await api.send("POST", api.path("/v1/schedules", one.name, "run"));
    note(done.task ? `added ${done.task}` : `nothing was added: ${done.why}`);
  } catch (error) {
    note(error.message, "bad");
  }
}

function pause(one) {
  return attempt(`${one.name} ${one.paused ? "goes on" : "is paused: its slots are none meanwhile"}`, () => api.send("POST", api.path("/v1/schedules", one.name, one.paused ? "resume" : "pause")));
}

function edit(one) {
  const task = one ? Object.fromEntries(Object.entries(one.task).filter(([, value]) => value !== null)) : { work: { command: ["echo", "hello"] } };
  return ask({
    title: one ? `Schedule ${one.name}` : "New schedule", submit: one ? "Change" : "Make",
    fields: [
      ...(one ? [] : [{ name: "name", label: "Name" }]),
      { name: "rule", label: "When", value: one ? one.cron ?? `@every ${one.every}` : "0 3 * * *", hint: (text) => (text.startsWith("@every") ? `every${text.slice(6)}` : read(text) || "minute hour day month weekday, or @every 10m") },
      { name: "zone", label: "Time zone", value: one?.zone ?? "UTC" },
      { name: "overlap", label: "While the last one has not finished", kind: "choice", value: one?.overlap ?? "skip", options: [["skip", "skip the slot"], ["allow", "run both"], ["queue", "run it after"], ["replace", "replace the last one"]] },
      { name: "catchup", label: "Slots that were missed", kind: "choice", value: one?.catchup ?? "last", options: [["last", "run the last"], ["skip", "run none"], ["all", "run all, in turn unless they may overlap"]] },
      { name: "task", label: "Task, as JSON", kind: "text", rows: "9", value: JSON.stringify(task, null, 2) },
    ],
    action: (values) => {
      let given;
      try {
        given = JSON.parse(values.task);
      } catch (error) {
        throw new Error(`The task is no JSON: ${error.message}`);
      }
      const when = values.rule.startsWith("@every") ? { every: values.rule.slice(6).trim() } : { cron: values.rule.trim(), zone: values.zone.trim() };
      return api.send("PUT", api.path("/v1/schedules", one ? one.name : values.name.trim()), { ...when, task: given, overlap: values.overlap, catchup: values.catchup, jitter: one?.jitter, paused: one?.paused });
    },
  });
}

function detail(page, open) {
  const wait = waiting(open.one, open.ledger);
  if (wait) return wait;
  const one = open.one.data;
  const slots = open.ledger.data.items;
  return [
    card("Ledger", { wide: true, more: h("small", {}, "one mark a slot, the last on the right") },
      slots.length ? [h("div", { class: "strip" }, [...slots].reverse().map((slot) => h(slot.task ? "a" : "span", {
        key: `${slot.slot} ${slot.at}`, class: slot.outcome, href: slot.task ? to(["tasks", slot.task]) : undefined,
        title: `${moment(slot.slot)}: ${slot.outcome}${slot.why ? `, ${slot.why}` : ""}${slot.manual ? ", by hand" : ""}`, "aria-label": `${moment(slot.slot)} ${slot.outcome}` }))),
      table([
        { head: "Slot", kind: "tight", cell: (slot) => moment(slot.slot) },
        { head: "Outcome", cell: (slot) => [state(slot.outcome), slot.manual ? h("small", {}, " by hand") : null] },
        { head: "Task, or why not", kind: "grow", cell: (slot) => (slot.task ? h("a", { href: to(["tasks", slot.task]) }, own(slot.task)) : own(slot.why)) },
      ], slots.slice(0, 10), { key: (slot) => `${slot.slot} ${slot.at}`, caption: "The last slots" })] : h("p", { class: "dim" }, "No slot of it has come yet.")),
    h("div", { class: "grid two" },
      card("Next", {}, one.next.length ? h("ol", {}, one.next.map((at) => h("li", { key: at }, moment(at), " ", h("small", {}, when(at))))) : h("p", { class: "dim" }, one.paused ? "It is paused." : "None.")),
      card(own(one.name), { label: one.name, more: page.may("PUT /v1/schedules/{name}") ? h("div", { class: "actions" }, button("Change…", () => edit(one)), button("Delete", () => confirm(`Delete ${one.name}?`, "With its ledger. Tasks that it has added stay.", "Delete", () => api.send("DELETE", api.path("/v1/schedules", one.name))), { kind: "danger" })) : null },
        pairs([["Rule", own(one.text || rule(one))], one.cron ? ["Cron", h("code", {}, one.cron)] : null, one.zone ? ["Zone", one.zone] : null, ["Overlap", one.overlap], ["Missed slots", one.catchup], ["Runs", h("code", {}, own(work(one.task.work)))]]),
        h("details", {}, h("summary", {}, "the task"), json(one.task)))),
  ];
}
