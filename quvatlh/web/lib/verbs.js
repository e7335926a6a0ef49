// What a person may do to tasks: asked first, then done, with progress where it takes long, and said what came of it.

import * as api from "./api.js";
import { count } from "./format.js";
import { ask, asking, listed, note } from "./parts.js";

export const VERBS = {
  retry: { words: "Retry", text: "Those that failed begin anew, with all their attempts; those that wait for their next one make it now.", done: "begun anew" },
  kill: { words: "Kill", text: "What runs is stopped, and counts as failed. A service's instance is replaced.", done: "killed", danger: true },
  relocate: { words: "Move…", text: "What runs is stopped and starts elsewhere; what waits is given there.", done: "moved" },
  update: { words: "Change…", text: "Only what is filled in or ticked is changed, and only of what may still run: what has failed runs so when it is retried.", done: "changed" },
  delete: { words: "Delete", text: "What runs is stopped, what waits or has failed is given up. It stays listed as deleted for a while; what has succeeded stays as it is.", done: "deleted", danger: true },
};

/** The verbs that this token may. */
export const allowed = (page) => Object.keys(VERBS).filter((verb) => page.may(`POST /v1/tasks/${verb}`));

/** `none`: how it is said that there is to be none, and what the node is told then. */
const CHANGES = [
  { name: "queue", label: "Queue" },
  { name: "priority", label: "Priority", kind: "number" },
  { name: "tags", label: "Tags", hint: "patterns, separated by spaces", none: ["For any worker, whatever it has", () => []] },
  { name: "at", label: "Not before", hint: "a time such as 2030-01-31T08:00:00Z", none: ["At once, whatever it waits for a time for", () => new Date().toISOString()] },
  { name: "expires", label: "Expires", hint: "a time: what has not begun by then has failed", none: ["Never expires", () => null] },
  { name: "limit", label: "Limit", kind: "number", hint: "live actions of its group and name", none: ["However many at once; of a service, one instance", () => null] },
  { name: "keep", label: "Kept when it is over", hint: "such as 12h or 30d", none: ["Kept as long as others", () => null] },
];

const FIELDS = CHANGES.flatMap(({ none, ...field }) => (none === undefined ? [field] : [
  { ...field, when: (values) => !values[`no_${field.name}`] },
  { name: `no_${field.name}`, label: none[0], kind: "check" },
]));

function changesOf(values) {
  const set = {};
  for (const { name, kind, none } of CHANGES) {
    const given = String(values[name] ?? "").trim();
    if (values[`no_${name}`]) set[name] = none[1]();
    else if (given !== "") set[name] = name === "tags" ? listed(given) : kind === "number" ? Number(given) : given;
  }
  if (!Object.keys(set).length) throw new Error("Nothing is filled in.");
  return set;
}

/** `words`: which, for people. True when it was done. */
export async function perform(page, verb, which, words) {
  const { words: title, text, done, danger } = VERBS[verb];
  const still = asking();
  const fields = verb === "update" ? FIELDS : verb === "relocate" ? [await places()] : [];
  if (!still()) return false;
  const result = await ask({
    title: `${title.replace("…", "")} ${words}?`,
    text,
    fields,
    danger,
    submit: title.replace("…", ""),
    action: async (values, progress) => {
      const more = verb === "update" ? { set: changesOf(values) } : verb === "relocate" && values.to ? { to: values.to } : {};
      return api.act(verb, { ...which, ...more }, (bulk) => progress(bulk.done, bulk.matched));
    },
  });
  if (result) note(outcome(result, done));
  return Boolean(result);
}

function outcome({ done, matched, over = 0 }, words) {
  return `${count(done - over)} of ${count(matched)} ${words}${over ? `, ${count(over)} had succeeded or were deleted before` : ""}`;
}

/** What has failed, into another queue: to run there at once, or when it is retried. */
export async function moveFailed(which, words) {
  const result = await ask({
    title: `Move ${words}?`,
    text: "They are listed in the other queue, and run there when they are retried.",
    fields: [
      { name: "queue", label: "Queue", hint: "made if there is none" },
      { name: "retry", label: "Retry them there now", kind: "check" },
    ],
    submit: "Move",
    action: async ({ queue: given, retry }, progress) => {
      const queue = given.trim();
      if (!queue) throw new Error("Which queue?");
      const told = (bulk) => progress(bulk.done, bulk.matched);
      return retry ? api.act("retry", { ...which, queue }, told) : api.act("update", { ...which, set: { queue } }, told);
    },
  });
  if (result) note(outcome(result, "moved"));
  return Boolean(result);
}

async function places() {
  let workers = [];
  try {
    workers = (await api.get("/v1/workers")).items.filter((worker) => worker.state === "up");
  } catch {
    // what is asked for next tells it
  }
  return { name: "to", label: "To", kind: "choice", value: "", options: [["", "away from where it is"], ...workers.map((worker) => [worker.name, worker.name])] };
}
