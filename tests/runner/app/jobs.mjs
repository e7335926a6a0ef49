import { execSync } from "node:child_process";
import fs from "node:fs";

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
