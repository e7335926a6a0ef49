// One request to the node that served the page. A no is an error with the problem's words; nothing is tried twice here.

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the node answered ${status}`);
    this.status = status;
    this.code = body.code ?? "";
    this.errors = body.errors ?? [];
  }
}

/** Nothing came back: whether it was done is not known. */
export class NoAnswer extends Error {
  constructor() {
    super("the node does not answer");
    this.status = 0;
    this.code = "no_answer";
  }
}

export const listeners = { unauthorized: () => {} };

export function path(...parts) {
  return parts[0] + parts.slice(1).map((part) => `/${encodeURIComponent(part)}`).join("");
}

/** `a=1&b=x,y`, without what is not given. */
export function query(values) {
  const pairs = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = pairs.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  return text ? `?${text}` : "";
}

async function ask(method, address, { body, headers, signal } = {}) {
  let response;
  try {
    response = await fetch(address, { method, headers, body, signal, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new NoAnswer();
  }
  if (response.ok) return response;
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // not ours: the status has to do
  }
  if (response.status === 401) listeners.unauthorized();
  throw new Problem(response.status, problem);
}

export async function get(address, signal) {
  return (await ask("GET", address, { signal })).json();
}

/** The same, and how long the node had it: what the way took costs it nothing. */
export async function timed(address, signal) {
  const response = await ask("GET", address, { signal });
  const told = /\bnode;dur=([\d.]+)/.exec(response.headers.get("Server-Timing") ?? "");
  return [await response.json(), told ? Number(told[1]) : null];
}

/** An answer that comes piece by piece. */
export function open(address, signal, headers) {
  return ask("GET", address, { signal, headers });
}

export async function send(method, address, value, headers = {}) {
  const sent = { "Idempotency-Key": crypto.randomUUID?.() ?? randomKey(), ...headers };
  if (value !== undefined) sent["Content-Type"] = "application/json";
  const body = value === undefined ? undefined : JSON.stringify(value);
  return (await ask(method, address, { body, headers: sent })).json();
}

/** Where the page is not served from a place that the browser calls secure, there is no randomUUID. */
function randomKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A verb over ids or a filter; what is too much for one step is worked off, and told as it goes. */
export async function act(verb, which, onProgress = () => {}) {
  return finished(await send("POST", `/v1/tasks/${verb}`, which), onProgress);
}

/** What was begun, when it is done. It is worked off by the cluster: a node that is away meanwhile is waited for. */
export async function finished(done, onProgress) {
  if (done.bulk === undefined) return done;
  for (;;) {
    let rest = 250;
    try {
      const bulk = await get(path("/v1/bulk", done.bulk));
      onProgress(bulk);
      if (bulk.state === "done") return bulk;
    } catch (error) {
      if (error.status > 0 && error.status < 500 && error.status !== 429) throw error;
      rest = 1000;
    }
    await new Promise((resolve) => setTimeout(resolve, rest));
  }
}
