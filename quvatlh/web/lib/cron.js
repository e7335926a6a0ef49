// A cron line in words, while it is typed. The node judges it; what is not understood here is not said.

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS = ["", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const NAMED = { "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *" };

const two = (n) => String(n).padStart(2, "0");

function number(text, names) {
  const at = names.findIndex((name) => name && name.slice(0, 3).toLowerCase() === text.toLowerCase());
  return at >= 0 ? at : /^\d+$/.test(text) ? Number(text) : NaN;
}

function part(field, one, names, low, high) {
  return field.split(",").map((piece) => {
    const [range, step] = piece.split("/");
    const [from, until] = range.split("-");
    const say = (text) => {
      const n = number(text, names);
      if (Number.isNaN(n) || n < low || n > high) throw new Error("not understood");
      return names[n] ?? String(n);
    };
    const words = range === "*" ? "" : until === undefined ? say(from) : `${say(from)} to ${say(until)}`;
    if (step === undefined) return words;
    if (!/^[1-9]\d*$/.test(step)) throw new Error("not understood");
    return `every ${step} ${one}s${words ? ` from ${words}` : ""}`;
  }).join(", ");
}

export function read(line) {
  const text = NAMED[line.trim().toLowerCase()] ?? line.trim();
  const fields = text.split(/\s+/);
  if (fields.length !== 5) return "";
  const [minute, hour, day, month, weekday] = fields;
  try {
    const plain = /^\d+$/;
    let time;
    if (plain.test(minute) && plain.test(hour)) time = `at ${two(hour)}:${two(minute)}`;
    else if (minute === "*" && hour === "*") time = "every minute";
    else if (plain.test(minute) && hour === "*") time = `${minute === "0" ? "on" : `${minute} minutes past`} every hour`;
    else if (/^\d+(,\d+)*$/.test(hour) && plain.test(minute)) time = `at ${hour.split(",").map((each) => `${two(each)}:${two(minute)}`).join(", ")}`;
    else {
      const minutes = minute === "*" ? "every minute" : /^\*\/\d+$/.test(minute) ? part(minute, "minute", [], 0, 59) : `at minute ${part(minute, "minute", [], 0, 59)}`;
      const hours = hour === "*" ? "" : `, ${hour.includes("/") ? "" : "in hour "}${part(hour, "hour", [], 0, 23)}`;
      time = minutes + hours;
    }
    const days = day === "*" ? "" : `on day ${part(day, "day", [], 1, 31)} of the month`;
    const week = weekday === "*" ? "" : `on ${part(weekday, "day", DAYS, 0, 7)}`;
    const months = month === "*" ? "" : `in ${part(month, "month", MONTHS, 1, 12)}`;
    const either = days && week ? `${days} or ${week}` : days || week;
    if (!either && !months && time.startsWith("at ")) return `every day ${time}`;
    return [time, either, months].filter(Boolean).join(", ");
  } catch {
    return "";
  }
}
