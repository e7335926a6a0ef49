// Settings of queues and classes as fields of a form, and the least change that they ask for.

import { count } from "./format.js";
import { listed } from "./parts.js";

/** What is no plain text or number is said as text, and read again. */
const kept = {
  hint: "an age and how many at most, such as 24h 100000; empty: as without",
  say: ({ age, count }) => `${age} ${count}`,
  tell: (keep) => `${keep.age}, at most ${count(keep.count)}`,
  read: (given) => {
    const [age, number, ...more] = given.split(/\s+/);
    if (more.length || (number !== undefined && !/^\d+$/.test(number))) throw new Error(`Not an age and a number: ${given}`);
    return number === undefined ? age : { age, count: Number(number) };
  },
};
const once = {
  hint: "one task of a key while queued, active, unfinished, or for a time such as 10m; a key of its own stands behind that; empty: any number",
  say: (unique) => [unique.while, unique.key].filter(Boolean).join(" "),
  read: (given) => {
    const [held, key] = given.split(/\s+(.*)/s);
    return { while: held, key: key || null };
  },
};
const again = {
  kind: "text", rows: "3",
  hint: 'as JSON, such as {"attempts": 5, "backoff": "linear", "first": "10s"}; empty: as without',
  say: (retry) => JSON.stringify(retry),
  read: (given, before) => {
    try {
      const retry = JSON.parse(given);
      return retry && typeof retry === "object" ? { ...without(before), ...retry } : retry;
    } catch (error) {
      throw new Error(`Retry is no JSON: ${error.message}`);
    }
  },
};
/** A part that is not said any more goes back. */
const without = (before) => Object.fromEntries(Object.keys(before ?? {}).map((part) => [part, null]));
const weights = {
  kind: "text", rows: "3",
  hint: "under sfq, a line each, such as acme = 3; the others have 1",
  say: (shares) => Object.entries(shares).map(([key, share]) => `${key} = ${share}`).join("\n"),
  read: (given) => Object.fromEntries(given.split("\n").filter((line) => line.trim()).map((line) => {
    const [, key, share] = /^\s*(.+?)\s*=\s*(\d+)\s*$/.exec(line) ?? [];
    if (!key) throw new Error(`Not a key and its weight: ${line}`);
    return [key, Number(share)];
  })),
};

export const QUEUE = [
  { name: "discipline", label: "Discipline", kind: "choice", options: ["priority", "fifo", "sfq"], hint: (value) => ({ priority: "higher priority first, first come among equals", fifo: "first come, first served", sfq: "fair among keys" })[value] ?? "a plug-in" },
  { name: "weight", label: "Weight", kind: "number", hint: "its share beside other queues" },
  { name: "limit", label: "Limit", kind: "number", hint: "live actions in the whole cluster; empty: none" },
  { name: "limit_per_key", label: "Limit of each key", kind: "number" },
  { name: "limit_per_worker", label: "Limit of each worker", kind: "number" },
  { name: "rate", label: "Rate", hint: "starts, such as 100/m; empty: none" },
  { name: "burst", label: "Burst", kind: "number" },
  { name: "class", label: "Class", hint: "in the tree of classes; empty: none" },
  { name: "lease", label: "Lease", hint: "of its tasks, such as 30s" },
  { name: "workers", label: "Workers", list: true, hint: "patterns of those that may take from it" },
  { name: "unique", label: "Unique", ...once },
  { name: "retry", label: "Retry", ...again },
  { name: "key_weights", label: "Weights of keys", ...weights },
  { name: "keep", label: "Kept when over", ...kept },
  { name: "keep_failed", label: "Kept when failed", ...kept },
];

export const CLASS = [
  { name: "parent", label: "Parent", hint: "another class; empty: the root" },
  { name: "rate", label: "Rate", hint: "what it is sure of: slots, or starts such as 100/m" },
  { name: "ceil", label: "Ceiling", hint: "how far it may borrow from its parent; empty: no bound of its own; without a parent none above the rate" },
  { name: "burst", label: "Burst", kind: "number" },
  { name: "priority", label: "Priority", kind: "number" },
  { name: "of", label: "Counts", kind: "choice", options: ["slots", "starts"] },
];

function text(field, value) {
  if (value === null || value === undefined) return "";
  return field.say ? field.say(value) : Array.isArray(value) ? value.join(" ") : String(value);
}

/** Each that is set, in words, as `[label, text]`. */
export const said = (fields, given) => fields.map((field) => [field.label, text({ ...field, say: field.tell ?? field.say }, given[field.name])]).filter(([, words]) => words);

/** With the disciplines that nodes have as plug-ins. */
export function withPlugins(fields, workers) {
  const found = new Set(workers.flatMap((worker) => Object.keys(worker.facts.disciplines ?? {})));
  return fields.map((field) => (field.name === "discipline" ? { ...field, options: [...new Set([...field.options, ...[...found].sort()])] } : field));
}

/** The fields with the values of what there is. */
export function filled(fields, given = {}) {
  return fields.map((field) => {
    const value = text(field, given[field.name]);
    const unknown = field.kind === "choice" && value && !field.options.includes(value);
    return { ...field, value: value || (field.kind === "choice" ? field.options[0] : ""), options: unknown ? [...field.options, value] : field.options };
  });
}

/** What differs from `given`; an emptied one becomes null. */
export function changes(fields, values, given = {}) {
  const found = {};
  for (const field of fields) {
    const now = String(values[field.name] ?? "").trim();
    if (now === text(field, given[field.name])) continue;
    if (now === "") found[field.name] = null;
    else if (field.read) found[field.name] = field.read(now, given[field.name]);
    else if (field.list) found[field.name] = listed(now);
    else if (field.kind === "number" || ((field.name === "rate" || field.name === "ceil") && /^\d+(\.\d+)?$/.test(now))) found[field.name] = Number(now);
    else found[field.name] = now;
  }
  return found;
}
