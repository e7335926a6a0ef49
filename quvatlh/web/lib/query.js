// The search line: `queue:emails state:failed,running error:timeout some text` ⇄ the filters of GET /v1/tasks.

export const KEYS = {
  state: "what became of it", queue: "its queue", group: "its application", name: "its name", worker: "where it runs or ran",
  key: "its flow or tenant", tag: "what it asks of a worker", error: "the code it failed with", kind: "job or service",
  created_after: "a time", created_before: "a time", finished_after: "a time", finished_before: "a time", at_after: "a time", at_before: "a time",
};

/** Words; what stands in quotes is one, and a quote in it stands behind a backslash. */
function words(text) {
  return [...text.matchAll(/([a-z_]+:)?(?:"((?:\\["\\]|[^"])*)"?|(\S+))/g)]
    .map((match) => ({ key: match[1]?.slice(0, -1), value: match[2]?.replace(/\\(["\\])/g, "$1") ?? match[3] }));
}

export function parse(text) {
  const filters = {};
  const free = [];
  for (const { key, value } of words(text)) {
    if (key && key in KEYS && value) filters[key] = key in filters && key === "state" ? `${filters[key]},${value}` : value;
    else free.push(key ? `${key}:${value ?? ""}` : value);
  }
  if (free.length) filters.q = free.join(" ");
  return filters;
}

/** What looks like a field and is none, so that it is looked for as text. */
export const strangers = (text) => words(text).map(({ key }) => key).filter((key) => key && !(key in KEYS));

/** A value as one word, whatever is in it. */
export const quoted = (value) => (/^[^\s"]+$/.test(value) ? value : `"${value.replace(/["\\]/g, "\\$&")}"`);

/** Text to look for: a word that would be read as a field, or is quoted, stands in quotes. */
function free(text) {
  return text.split(/\s+/).map((word) => {
    const [read] = words(word);
    return word.includes('"') || (read?.key in KEYS && read.value) ? `"${word.replace(/["\\]/g, "\\$&")}"` : word;
  }).join(" ");
}

export function write(filters) {
  const parts = Object.entries(filters).filter(([key, value]) => key !== "q" && value).map(([key, value]) => `${key}:${quoted(value)}`);
  return [...parts, filters.q ? free(filters.q) : ""].filter(Boolean).join(" ");
}

/** As a `match` of a verb: states are a list there, and one filter must be given. */
export function match(filters, states) {
  const { state, ...rest } = filters;
  const found = { ...rest };
  if (state) found.state = state.split(",");
  return Object.keys(found).length ? found : { state: states };
}

/** The word that the cursor is in: where it begins, its key and what is typed of its value. */
export function wordAt(text, cursor) {
  const start = text.lastIndexOf(" ", cursor - 1) + 1;
  const typed = text.slice(start, cursor);
  const colon = typed.indexOf(":");
  if (colon < 0 || !(typed.slice(0, colon) in KEYS)) return { start, key: "", typed };
  const value = typed.slice(colon + 1);
  const comma = value.lastIndexOf(",") + 1;
  return { start: start + colon + 1 + comma, key: typed.slice(0, colon), typed: value.slice(comma) };
}
