// Groups that have a service or something that runs: live actions by worker, as the node counts them, and whose instances they are;
// evened out by a plan that is shown first.
// What waits or is over is not counted here: of that there may be millions, and the list of tasks finds it.

import * as api from "../lib/api.js";
import { h } from "../lib/dom.js";
import { count, plural } from "../lib/format.js";
import { ask, asking, bar, button, card, empty, note, opener, own, state, table, waiting, when } from "../lib/parts.js";
import { write } from "../lib/query.js";
import { to } from "../lib/router.js";
import { perform } from "../lib/verbs.js";

const LIVE = "running,claimed";
const INSTANCES_MAX = 500;
const NAMED_MAX = 10;
const UNFINISHED = `pending,${LIVE},scheduled,retrying`;

export default function services(page) {
  const offered = page.watch(`/v1/tasks?group_by=group&kind=service&state=${UNFINISHED}`, { topics: ["task"], slowMs: 1000 });
  const live = page.watch(`/v1/tasks?group_by=group&state=${LIVE}`, { topics: ["task"], slowMs: 1000 });
  let open = null;
  moved(page.place);

  function moved(place) {
    const name = place.query.group;
    if (open?.name === name) return;
    page.unwatch(...(open?.resources ?? []));
    open = name === undefined ? null : group(name);
  }

  function group(name) {
    const spread = page.watch(`/v1/actions${api.query({ group: name, group_by: "worker" })}`, { topics: ["task"], slowMs: 500 });
    const instances = page.watch(`/v1/actions${api.query({ group: name, kind: "service", limit: INSTANCES_MAX })}`, { topics: ["task"], slowMs: 500 });
    const tasks = page.watch(`/v1/tasks${api.query({ group: name, kind: "service", state: UNFINISHED, limit: 200 })}`, { topics: ["task"], slowMs: 500 });
    const announced = page.watch(`/v1/announcements${api.query({ group: name })}`, { topics: ["task"], slowMs: 1000 });
    return { name, spread, instances, tasks, announced, resources: [spread, instances, tasks, announced] };
  }

  function render() {
    const wait = waiting(live, offered);
    if (wait) return wait;
    const [running, serving] = [live, offered].map((each) => new Map(each.data.groups.map((one) => [one.value, one.count])));
    const names = new Set([...serving.keys(), ...running.keys(), ...(open ? [open.name] : [])]);
    const items = [...names].sort().map((value) => ({ value, live: running.get(value) ?? 0, services: serving.get(value) ?? 0 }));
    if (!items.length) return empty("No group has a service, or anything that runs.", h("p", {}, "A group is the application that tasks belong to: ", h("code", {}, "quvatlh add --group shop --kind service --limit 3 -- ./serve"), " keeps three instances running."));
    return [
      table([
        { head: "Group", kind: "grow", cell: (one) => h("a", { class: "title", href: to(["services"], { group: open?.name === one.value ? undefined : one.value }), "aria-expanded": String(open?.name === one.value) }, opener(open?.name === one.value), own(one.value)) },
        { head: "Running tasks", kind: "num", cell: (one) => h("a", { class: "quiet", href: to(["tasks"], { q: write({ group: one.value, state: LIVE }) }) }, count(one.live)) },
        { head: "Services", kind: "num", cell: (one) => h("a", { class: "quiet", href: to(["tasks"], { q: write({ group: one.value, kind: "service" }) }) }, count(one.services)) },
        { head: "", kind: "tight hide", cell: (one) => h("a", { href: to(["tasks"], { q: write({ group: one.value }) }), "aria-label": `all tasks of ${one.value}` }, "all tasks") },
        page.may("POST /v1/events") && page.session.queues.includes("*") ? { head: "", kind: "tight", cell: (one) => button("Balance…", () => balance(one.value), { label: `Balance ${one.value}` }) } : null,
      ].filter(Boolean), items, { key: (one) => one.value, caption: "Groups" }),
      h("p", { class: "dim" }, "Groups without a service, of which nothing runs just now, are found among ", h("a", { href: to(["tasks"]) }, "the tasks"), ", by ", h("code", {}, "group:name"), "."),
      open ? inside(page, open) : null,
    ];
  }
  return { title: "Services and groups", render, moved };
}

function inside(page, open) {
  const wait = waiting(...open.resources);
  if (wait) return wait;
  const spread = open.spread.data.groups;
  const { items, next, total } = open.instances.data;
  const most = Math.max(1, ...spread.map((one) => one.count));
  const found = open.tasks.data.items.filter((task) => task.kind === "service");
  return [
    h("div", { class: "grid two" },
      card("Live actions by worker", {}, spread.length ? table([
        { head: "Worker", kind: "grow", cell: (one) => h("a", { href: to(["workers"], { name: one.value }) }, own(one.value)) },
        { head: "Actions", kind: "grow", cell: (one) => bar(one.count, most, count(one.count)) },
        { head: "Of", kind: "grow", cell: (one) => whose(items.filter((action) => action.worker === one.value), next ? null : one.count) },
      ], spread, { key: (one) => one.value, caption: "Live actions by worker" }) : h("p", { class: "dim" }, "none"),
      next ? h("p", { class: "dim" }, `Whose they are is told of the first ${items.length} of ${plural(total, "instance")}.`) : null),
      card("Services", {}, found.length ? table([
        { head: "Service", kind: "grow", cell: (task) => h("a", { href: to(["tasks", task.id]) }, own(task.name)) },
        { head: "Is", cell: (task) => state(task.state) },
        { head: "Instances", kind: "grow", cell: (task) => bar(task.live, task.wanted, `${task.live} of ${task.wanted}`, task.live < task.wanted ? "warn" : "") },
        page.may("POST /v1/tasks/update") ? { head: "", kind: "tight", cell: (task) => h("div", { class: "actions" }, button("Change…", () => perform(page, "update", { ids: [task.id] }, `service ${task.name}`), { label: `Change ${task.name}` }), button("Delete", () => perform(page, "delete", { ids: [task.id] }, `service ${task.name}`), { kind: "danger", label: `Delete ${task.name}` })) } : null,
      ].filter(Boolean), found, { key: (task) => task.id, caption: "Services" }) : h("p", { class: "dim" }, "No service of this group waits or runs."))),
    open.announced.data.items.length ? card("What they announce", { wide: true }, table([
      { head: "Name", cell: (one) => h("a", { href: to(["tasks", one.task]) }, own(one.name)) },
      { head: "Worker", cell: (one) => own(one.worker) },
      { head: "Says", kind: "grow", cell: (one) => h("code", {}, own(JSON.stringify(one.data))) },
      { head: "Since", kind: "tight", cell: (one) => when(one.at) },
    ], open.announced.data.items, { key: (one) => one.action, caption: "Announcements" })) : null,
  ];
}

/** Which services have how many of a worker's actions; the rest are jobs. */
function whose(instances, live) {
  const services = new Map();
  for (const { task, name } of instances) services.set(task, { task, name, n: (services.get(task)?.n ?? 0) + 1 });
  const named = [...services.values()].sort((a, b) => b.n - a.n || (a.name < b.name ? -1 : 1));
  const jobs = live === null ? 0 : live - instances.length;
  const parts = named.slice(0, NAMED_MAX).map((one) => [h("a", { href: to(["tasks", one.task]) }, own(one.name)), ` ${one.n}`]);
  if (named.length > NAMED_MAX) parts.push(plural(named.length - NAMED_MAX, "more service"));
  if (jobs > 0) parts.push(plural(jobs, "job"));
  return parts.map((part, i) => [i ? ", " : "", part]);
}

// --- balance ---

const planned = (group, more) => api.send("POST", "/v1/events", { event: "BALANCE", group, ...more });
const told = (plan) => JSON.stringify(plan.moves.map((move) => [move.task, move.from, move.to]).sort());
const HOW = "Each is stopped first and then started on the other worker, a few at a time, so that no limit is passed.";

/** What is made is what was shown: a plan that has become another one meanwhile is shown again, and never are there more moves. */
async function balance(group) {
  const still = asking();
  let plan;
  try {
    plan = await planned(group, { dry_run: true });
  } catch (error) {
    note(error.message, "bad");
    return;
  }
  if (!still()) return;
  for (let text = `The plan. ${HOW}`; plan.moves.length; text = `The cluster has changed meanwhile: this is the plan now. ${HOW}`) {
    const shown = plan;
    const done = await ask({
      title: `Balance ${group}`, submit: `Make ${plural(shown.moves.length, "move")}`, text,
      body: () => table([
        { head: "Task", kind: "grow", cell: (move) => own(move.task) },
        { head: "From", cell: (move) => own(move.from) },
        { head: "To", cell: (move) => own(move.to) },
      ], shown.moves, { key: (move) => move.task + move.from, caption: "The plan" }),
      action: async () => {
        const now = await planned(group, { dry_run: true });
        return told(now) === told(shown) ? planned(group, { max: shown.moves.length }) : now;
      },
    });
    if (!done) return;
    if (done.index !== null) {
      note(`${plural(done.moves.length, "move")} under way${told(done) === told(shown) ? "" : ", not those that were shown: the cluster changed in that moment"}`);
      return;
    }
    plan = done;
  }
  note(`${group} is even already`);
}
