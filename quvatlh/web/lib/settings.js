// Settings of queues and classes as fields of a form, and the least change that they ask for.

import { listed } from "./parts.js";

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
];

export const CLASS = [
  { name: "parent", label: "Parent", hint: "another class; empty: the root" },
  { name: "rate", label: "Rate", hint: "what it is sure of: slots, or starts such as 100/m" },
  { name: "ceil", label: "Ceiling", hint: "how far it may borrow from its parent; empty: no bound of its own; of no use without a parent" },
  { name: "burst", label: "Burst", kind: "number" },
  { name: "priority", label: "Priority", kind: "number" },
  { name: "of", label: "Counts", kind: "choice", options: ["slots", "starts"] },
];

const text = (value) => (value === null || value === undefined ? "" : Array.isArray(value) ? value.join(" ") : String(value));

/** The fields with the values of what there is. */
export function filled(fields, given = {}) {
  return fields.map((field) => {
    const value = text(given[field.name]);
    const unknown = field.kind === "choice" && value && !field.options.includes(value);
    return { ...field, value: value || (field.kind === "choice" ? field.options[0] : ""), options: unknown ? [...field.options, value] : field.options };
  });
}

/** What differs from `given`; an emptied one becomes null. */
export function changes(fields, values, given = {}) {
  const found = {};
  for (const field of fields) {
    const now = String(values[field.name] ?? "").trim();
    if (now === text(given[field.name])) continue;
    if (now === "") found[field.name] = null;
    else if (field.list) found[field.name] = listed(now);
    else if (field.kind === "number" || ((field.name === "rate" || field.name === "ceil") && /^\d+(\.\d+)?$/.test(now))) found[field.name] = Number(now);
    else found[field.name] = now;
  }
  return found;
}
