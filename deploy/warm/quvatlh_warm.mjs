// A warm process for Node.js: loads a module once and calls what it exports, by name and arguments (PROTOCOL.md).
//
//   node quvatlh_warm.mjs ./jobs.mjs
//
// `send` calls the export of that name with the arguments and, after them, the running task: its ids, payload(), progress(),
// log(), and `signal`, an AbortSignal that is aborted when the task is to end. Errors may have `permanent: true` or
// `after: seconds`. Named arguments come as one object, behind the others.

import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { pathToFileURL } from "node:url";
import util from "node:util";

const VERSION = 1;
const PROGRESS_MS = 100;
let running = null;

function say(message) {
  let data = Buffer.from(JSON.stringify(message) + "\n");
  while (data.length) {
    try {
      data = data.subarray(fs.writeSync(1, data));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

// What the program prints belongs to the task that runs; standard output itself is the protocol's.
process.stdout.write = (chunk, encoding, done) => {
  const text = typeof chunk === "string" ? chunk : Buffer.from(chunk).toString();
  if (running) say({ type: "output", id: running.action, stream: "stdout", text });
  else fs.writeSync(2, text);
  const callback = typeof encoding === "function" ? encoding : done;
  if (callback) process.nextTick(callback);
  return true;
};

class Task {
  #payload;
  #abort = new AbortController();
  #toldAt = 0;

  constructor(message) {
    ({ task: this.task, id: this.action, attempt: this.attempt, token: this.token, worker: this.worker } = message);
    this.#payload = message.payload;
  }

  get signal() {
    return this.#abort.signal;
  }

  get cancelled() {
    return this.#abort.signal.aborted;
  }

  payload() {
    return this.#payload === null ? null : fs.readFileSync(this.#payload);
  }

  progress(percent, text = "") {
    const now = Date.now();
    if (now - this.#toldAt < PROGRESS_MS && percent !== 100) return;
    this.#toldAt = now;
    const known = percent === undefined || percent === null ? {} : { percent: Math.max(0, Math.min(100, Math.trunc(percent))) };
    say({ type: "progress", id: this.action, text: String(text).slice(0, 1000), ...known });
  }

  log(...words) {
    say({ type: "output", id: this.action, stream: "stderr", text: util.format(...words) + "\n" });
  }

  stop() {
    this.#abort.abort();
  }
}

function described(error, task) {
  if (task.cancelled) return { type: "error", stopped: true, text: "stopped" };
  if (!(error instanceof Error)) return { type: "error", class: typeof error, text: util.inspect(error).slice(0, 1000) };
  const told = { type: "error", class: error.name, text: String(error.message).slice(0, 1000), permanent: error.permanent === true };
  if (Number.isFinite(error.after)) return { ...told, after: error.after };
  return { ...told, trace: `${error.stack}\n` };
}

async function answer(jobs, message, task) {
  const job = Object.hasOwn(jobs, message.call) ? jobs[message.call] : undefined;
  if (typeof job !== "function") return { type: "error", unfit: true, text: `there is no function ${message.call}` };
  const began = Date.now();
  const named = Object.keys(message.kwargs).length ? [message.kwargs] : [];
  try {
    const value = await job(...message.args, ...named, task);
    const ends = { began, ms: Date.now() - began };
    if (value === undefined || value === null) return { type: "result", ...ends };
    if (JSON.stringify(value) === undefined) throw new TypeError(`${typeof value} is no value of JSON`);
    return { type: "result", value, ...ends };
  } catch (error) {
    return { began, ...described(error, task) };
  }
}

const given = process.argv[2];
if (!given) {
  console.error("usage: node quvatlh_warm.mjs MODULE");
  process.exit(2);
}
const jobs = await import(pathToFileURL(path.resolve(given)));
const calls = [];
const unwanted = new Set();

async function work() {
  if (running) return;
  while (calls.length) {
    const message = calls.shift();
    if (message === null) process.exit(0);
    running = new Task(message);
    const said = unwanted.delete(message.id)
      ? { type: "error", stopped: true, text: "stopped" }
      : await answer(jobs, message, running);
    say({ ...said, id: message.id });
    running = null;
  }
}

const lines = readline.createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const message = JSON.parse(line);
  if (message.type === "run") calls.push(message);
  else if (message.type === "stop" && message.id === undefined) calls.push(null);
  else if (message.type === "stop" && running?.action === message.id) running.stop();
  else if (message.type === "stop") unwanted.add(message.id);
  work();
});
lines.on("close", () => process.exit(0));
say({ type: "ready", version: VERSION });
