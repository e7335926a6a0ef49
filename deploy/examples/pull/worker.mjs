// A pull worker in Node.js 18 or later, without packages: QUVATLH_URL, QUVATLH_TOKEN, and the queues as arguments.
import os from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const url = process.env.QUVATLH_URL.replace(/\/$/, "");
const name = process.env.WORKER ?? `node-${os.hostname()}`;
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

const work = async (payload) => ({ sum: payload.reduce((a, b) => a + b, 0) }); // yours: its value is the task's result

for (;;) {
  const { actions } = await ask("claim", { worker: name, queues, wait: "20s", lease: "30s" });
  for (const { action, token, payload } of actions) {
    const renewing = setInterval(() => ask("renew", { action, token }), 10_000); // a third of the lease
    const [verb, said] = await work(payload).then(
      (result) => ["finish", { result }],
      (error) => ["fail", { error: String(error) }],
    );
    await ask(verb, { action, token, ...said });
    clearInterval(renewing);
  }
}
