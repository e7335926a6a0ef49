// A pull worker in Node.js 18 or later, without packages: QUVATLH_URL, QUVATLH_TOKEN, and the queues as arguments.
import os from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const url = process.env.QUVATLH_URL.replace(/\/$/, "");
const name = process.env.WORKER ?? `node-${os.hostname()}`;
const lease = Number(process.env.LEASE ?? 30);
const queues = process.argv.slice(2).length ? process.argv.slice(2) : ["*"];
const headers = { Authorization: `Bearer ${process.env.QUVATLH_TOKEN}`, "Content-Type": "application/json" };

async function ask(verb, body) {
  for (;;) { // what was said may be said again; but not what is wrong
    const sent = fetch(`${url}/v1/work/${verb}`, { method: "POST", headers, body: JSON.stringify(body) });
    const answer = await sent.catch(() => null);
    if (answer?.ok) return answer.json();
    if (answer && answer.status < 500 && answer.status !== 429) throw new Error(await answer.text());
    await sleep(1000);
  }
}

// yours: its value is the task's result; the signal says that it is to end
const work = async (payload, _signal) => ({ sum: payload.reduce((a, b) => a + b, 0) });

for (;;) {
  const { actions } = await ask("claim", { worker: name, queues, lease });
  for (const { action, token, payload } of actions) {
    const stop = new AbortController();
    const gone = new Promise((_, no) => stop.signal.addEventListener("abort", () => no("it was to end")));
    const renewing = setInterval(async () => { // gone, or another's
      if ((await ask("renew", { action, token })).results[0].code) stop.abort();
    }, lease * 333);
    const [verb, said] = await Promise.race([work(payload, stop.signal), gone]).then(
      (result) => ["finish", { result }],
      (error) => ["fail", { error: String(error) }],
    );
    clearInterval(renewing);
    await ask(verb, { action, token, ...said });
  }
}
