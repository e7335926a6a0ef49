// A warm process for Node.js: loads a module once and calls what it exports, by name and arguments (PROTOCOL.md).
//
//   node quvatlh_warm.mjs ./jobs.mjs
//
// `send` calls the export of that name with the arguments and, after them, the running task: its ids, payload(), progress(),
// log(), and `signal`, an AbortSignal that is aborted when the task is to end. Errors may have `permanent: true` or
// `after: seconds`. Named arguments come as one object, behind the others.

import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import readline from "node:readline";
import { pathToFileURL } from "node:url";
import util from "node:util";

const VERSION = 1;
const PROGRESS_MS = 100;
const TEXT_CHARS_MAX = 1000;
let running = null;

// Of characters, so that none is cut in half.
const short = (text) => Array.from(text.slice(0, 2 * TEXT_CHARS_MAX)).slice(0, TEXT_CHARS_MAX).join("");

// As JSON.stringify, which writes half a character as an escape that no other program may accept: it becomes U+FFFD.
function formed(value) {
  const text = JSON.stringify(value);
  return text?.includes("\\ud") ? text.replace(/(\\\\)|\\ud[89a-f][0-9a-f]{2}/g, (_, backslash) => backslash ?? "\ufffd") : text;
}

// `value`: of a result, in JSON already.
function say(message, value) {
  const text = formed(message);
  let data = Buffer.from(value === undefined ? `${text}\n` : `${text.slice(0, -1)},"value":${value}}\n`);
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

// What is said to this process is read from a file of its own, which nothing that a job starts has; standard input is empty.
// Where that is not to be had (no pipe, or another user's) it is read from standard input.
function ownInput() {
  let fd;
  try {
    if (!fs.fstatSync(0).isFIFO()) return process.stdin;
    fd = fs.openSync("/proc/self/fd/0", "r");
  } catch {
    return process.stdin;
  }
  fs.closeSync(0);
  fs.openSync("/dev/null", "r"); // takes the lowest number, which is 0
  return new net.Socket({ fd, readable: true, writable: false });
}

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
    say({ type: "progress", id: this.action, text: short(String(text)), ...known });
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
  if (!(error instanceof Error)) return { type: "error", class: typeof error, text: short(util.inspect(error)) };
  const told = { type: "error", class: String(error.name), text: short(String(error.message)), permanent: error.permanent === true };
  if (Number.isFinite(error.after)) return { ...told, after: error.after };
  return { ...told, trace: `${error.stack}\n` };
}

// Without a form in JSON it is unfit: trying again would not give it one.
function result(value) {
  if (value === undefined || value === null) return [{ type: "result" }];
  try {
    const text = formed(value);
    if (text === undefined) throw new TypeError(`a ${typeof value} is no value of JSON`);
    return [{ type: "result" }, text];
  } catch (error) {
    return [{ type: "error", unfit: true, text: short(`what it returned has no form in JSON: ${error?.message}`) }];
  }
}

// What is to be said: a message, and a result's value.
async function answer(jobs, message, task) {
  const job = Object.hasOwn(jobs, message.call) ? jobs[message.call] : undefined;
  if (typeof job !== "function") return [{ type: "error", unfit: true, text: `there is no function ${message.call}` }];
  const began = Date.now();
  const named = Object.keys(message.kwargs).length ? [message.kwargs] : [];
  try {
    const value = await job(...message.args, ...named, task);
    const ms = Date.now() - began;
    const [said, text] = result(value);
    return [{ ...said, began, ms }, text];
  } catch (error) {
    return [{ began, ...described(error, task) }];
  }
}

const given = process.argv[2];
if (!given) {
  console.error("usage: node quvatlh_warm.mjs MODULE");
  process.exit(2);
}
const input = ownInput();
const jobs = await import(pathToFileURL(path.resolve(given)));
const calls = [];
const unwanted = new Set();

async function work() {
  if (running) return;
  while (calls.length) {
    const message = calls.shift();
    if (message === null) process.exit(0);
    running = new Task(message);
    const [said, value] = unwanted.delete(message.id)
      ? [{ type: "error", stopped: true, text: "stopped" }]
      : await answer(jobs, message, running);
    say({ ...said, id: message.id }, value);
    running = null;
  }
}

const lines = readline.createInterface({ input });
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
