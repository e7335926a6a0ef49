// Numbers, times and works in words.

const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const numbers = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const date = new Intl.DateTimeFormat(undefined, {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

export const count = (n) => (n === null || n === undefined ? "–" : numbers.format(n));

/** 12,345 as 12.3k, for small places. */
export function short(n) {
  if (n === null || n === undefined) return "–";
  if (n < 1000) return Number.isInteger(n) ? String(n) : n.toFixed(n < 10 ? 1 : 0);
  if (n < 1_000_000) return `${(n / 1000).toFixed(n < 10_000 ? 1 : 0)}k`;
  return `${(n / 1_000_000).toFixed(n < 10_000_000 ? 1 : 0)}M`;
}

/** Of a file. */
export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB"];
  const step = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(n, 1)) / 10));
  const value = n / 1024 ** step;
  return `${step && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[step]}`;
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** Milliseconds as people say them: 250 ms, 3.2 s, 4 m 10 s, 2 h 5 m, 3 d. */
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  const value = Math.max(0, ms);
  if (value < 1000) return `${value < 10 && !Number.isInteger(value) ? value.toFixed(1) : Math.round(value)} ms`;
  if (value < 10_000) return `${(value / 1000).toFixed(1)} s`;
  if (value < 60_000) return `${Math.floor(value / 1000)} s`;
  const [big, small] = value < UNITS.h ? ["m", "s"] : value < UNITS.d ? ["h", "m"] : ["d", "h"];
  const whole = Math.floor(value / UNITS[big]);
  const rest = Math.floor((value % UNITS[big]) / UNITS[small]);
  return rest && whole < 30 ? `${whole} ${big} ${rest} ${small}` : `${whole} ${big}`;
}

export const time = (text) => (text ? new Date(text).getTime() : null);

/** `3 s ago`, `in 4 m`. */
export function ago(text, now = Date.now()) {
  const at = time(text);
  if (at === null) return "–";
  const ms = now - at;
  if (Math.abs(ms) < 1000) return "now";
  const words = Math.abs(ms) < 10_000 ? `${Math.round(Math.abs(ms) / 1000)} s` : span(Math.abs(ms));
  return ms > 0 ? `${words} ago` : `in ${words}`;
}

export function moment(text) {
  const at = time(text);
  if (at === null) return "–";
  return Math.abs(Date.now() - at) < 12 * UNITS.h ? clock.format(at) : date.format(at);
}

/** `10s`, `500ms` or seconds, in ms; null when it is none. */
export function spanMs(text) {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text ?? "");
  return match ? Number(match[1]) * UNITS[match[2] ?? "s"] : null;
}

export function took(task, now = Date.now()) {
  const began = time(task.started_at);
  if (began === null || task.state === "deleted") return "–"; // then it ended when it was deleted
  return span((time(task.finished_at) ?? now) - began);
}

const MADE = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/; // an id that nobody chose
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** Without user and password, and of the query that there is one. */
const withoutSecrets = (url) => url.replace(/^([^:/?#]*:)?\/\/[^/?#]*@/, "$1//").replace(/([?#]).+/s, "$1…");

/** What a task runs, in one line. */
export function work(given) {
  if (!given) return "";
  if (typeof given === "string") return given.split("\n", 1)[0];
  if (given.command) return given.command.map(quoted).join(" ");
  if (given.shell) return given.shell;
  if (given.commands) return given.commands.map((one) => (typeof one === "string" ? one : one.map(quoted).join(" "))).join("; ");
  if (given.python) return `${given.python}(${[...(given.args ?? []), ...Object.keys(given.kwargs ?? {})].length ? "…" : ""})`;
  if (given.http) return `${given.http.method ?? (given.http.body ? "POST" : "")} ${withoutSecrets(given.http.url ?? "")}`.trim(); // with a payload it is a POST, too
  if (given.warm) return `${given.warm.environment ?? "warm"}: ${JSON.stringify(given.warm.call ?? null)}`;
  return given.pull ? "pull" : "";
}

/** The name a person knows a task by. */
export const title = (task) => (task.name === task.id && MADE.test(task.id) ? work(task.work) || task.id : task.name);
