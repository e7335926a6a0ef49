import { execSync, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

export const add = (left, right) => left + right;
export const whose = (job) => [job.task, job.action, job.attempt, job.token, job.worker, job.payload()?.toString() ?? null];
export function speak(word, job) {
  console.log(`${word} printed`);
  console.error(`${word} complained`);
  execSync(`echo ${word} from a shell >&2`, { stdio: "inherit" });
  job.log(word, "noted");
}
export async function steps(job) {
  for (const percent of [10, 60, 100]) {
    job.progress(percent, `${percent} done`);
    await new Promise((done) => setTimeout(done, 120));
  }
}
export const broken = () => { throw new RangeError("no good"); };
export const later = () => { throw Object.assign(new Error("not yet"), { after: 7 }); };
export const never = () => { throw Object.assign(new Error("not at all"), { permanent: true }); };
export const vanish = () => process.exit(3);
export const tidy = (path, job) => new Promise((_, reject) => {
  job.progress(0, "begun");
  const alive = setInterval(() => {}, 1000);
  job.signal.addEventListener("abort", () => {
    clearInterval(alive);
    fs.writeFileSync(path, "tidied");
    reject(new Error("ended"));
  });
});
export const spin = () => { for (;;); };
export const shapeless = () => 10n;
export const pid = () => process.pid;
export async function starts(path, how, job) {
  const hidden = `sleep 1000 & echo $! >${path}.new`;
  const command = how === "hides" ? hidden : `echo $$ >${path}.new; exec sleep 1000`;
  spawn("sh", ["-c", command], { stdio: "ignore" });
  while (!fs.existsSync(`${path}.new`) || fs.statSync(`${path}.new`).size === 0) await sleep(5);
  fs.renameSync(`${path}.new`, path);
  job.progress(0, "begun");
  if (how === "fails") throw new RangeError("no good");
  if (how === "waits") await sleep(1e9, null, { signal: job.signal });
}
export async function finishes() {
  const child = spawn("sleep", ["1000"]);
  child.kill();
  await once(child, "exit");
  return execSync("echo done").toString();
}
export async function reads() {
  const child = spawn("cat", [], { stdio: "inherit" });
  const [code] = await once(child, "exit");
  return [code === 0, (await process.stdin.toArray()).join(""), fs.readlinkSync("/proc/self/fd/0")];
}
export const givesUp = () => { throw new DOMException("not told to", "AbortError"); };
const HALF = "\u{1f4a1}"[0];
export const halves = () => ({ [HALF]: ["\u{1f4a1}", HALF, `\\${HALF}`, "\\ud83d"] });
export const cut = () => { throw Object.assign(new Error(`x${"\u{1f4a1}".repeat(999)}y${HALF}`), { permanent: true }); };
export const shapes = (which) => {
  const within = {};
  within.self = within;
  return { function: () => 1, bigint: 10n, within, "toJSON": { toJSON() { throw null; } } }[which];
};
