// A cron line in words, while it is typed. The node judges it; what is not understood here is not said, what cannot be is.

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS = ["", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const NAMED = { "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *" };

const two = (n) => String(Number(n)).padStart(2, "0");

/** What cannot be, in words: a person who types it is to be told, not read to. */
class Fault extends Error {}

const MINUTE = { one: "minute", names: [], low: 0, high: 59 };
const HOUR = { one: "hour", names: [], low: 0, high: 23 };
const DAY = { one: "day", names: [], low: 1, high: 31 };
const MONTH = { one: "month", names: MONTHS, low: 1, high: 12 };
const WEEKDAY = { one: "day", names: DAYS, low: 0, high: 7, called: "weekday" };

function number(text, { one, names, low, high, called = one }) {
  const at = names.findIndex((name) => name && name.slice(0, 3).toLowerCase() === text.toLowerCase());
  if (at >= 0) return at;
  if (!/^\d+$/.test(text)) throw new Error("not understood");
  if (Number(text) < low || Number(text) > high) throw new Fault(`there is no ${called} ${text}, only ${low} to ${high}`);
  return Number(text);
}

function part(field, of) {
  const pieces = field.split(",");
  return pieces.map((piece) => {
    if (!/^[^/-]+(-[^/-]+)?(\/[^/-]+)?$/.test(piece)) throw new Error("not understood");
    const [range, step] = piece.split("/");
    const [from, until] = range.split("-").map((text) => (text === "*" ? text : number(text, of)));
    if (from === "*" && (until !== undefined || (pieces.length > 1 && step === undefined))) throw new Error("not understood");
    if (until < from) throw new Fault(`${range} goes backwards`);
    const say = (n) => of.names[n] ?? String(n);
    const words = from === "*" ? "" : until === undefined ? say(from) : `${say(from)} to ${say(until)}`;
    if (step === undefined) return words;
    if (/^0+$/.test(step)) throw new Fault("a step is 1 or more");
    if (!/^\d+$/.test(step)) throw new Error("not understood");
    return `every ${step} ${of.one}s${words ? ` from ${words}` : ""}`;
  }).join(", ");
}

/** In words: when, or why never; empty where it is not understood. */
export function read(line) {
  const text = NAMED[line.trim().toLowerCase()] ?? line.trim();
  const fields = text.split(/\s+/);
  if (fields.length !== 5) return "";
  try {
    return rule(...fields);
  } catch (error) {
    return error instanceof Fault ? error.message : "";
  }
}

function rule(minute, hour, day, month, weekday) {
  const [minutes, hours, days, months, weekdays] = [part(minute, MINUTE), part(hour, HOUR), part(day, DAY), part(month, MONTH), part(weekday, WEEKDAY)];
  const onDays = day === "*" ? "" : `${day.includes("/") ? "" : "on day "}${days} of the month`;
  const onWeekdays = weekday === "*" ? "" : weekday.includes("/") ? `${weekdays} of the week` : `on ${weekdays}`;
  const time = timeOf(minute, hour, minutes, hours);
  const inMonths = month === "*" ? "" : `in ${months}`;
  if (!onDays && !onWeekdays && !inMonths && /^at \d/.test(time)) return `every day ${time}`;
  const both = day.startsWith("*") || weekday.startsWith("*") ? "and only" : "or"; // as cron does: a star asks for both
  const when = onDays && onWeekdays ? `${onDays} ${both} ${onWeekdays}` : onDays || onWeekdays;
  return [time, when, inMonths].filter(Boolean).join(", ");
}

function timeOf(minute, hour, minutes, hours) {
  const plain = /^\d+$/;
  if (plain.test(minute) && /^\d+(,\d+)*$/.test(hour)) return `at ${hour.split(",").map((each) => `${two(each)}:${two(minute)}`).join(", ")}`;
  if (minute === "*" && hour === "*") return "every minute";
  if (plain.test(minute) && hour === "*") return Number(minute) ? `${minutes} minutes past every hour` : "on every hour";
  const first = minute === "*" ? "every minute" : /^\*\/\d+$/.test(minute) ? minutes : `at minute ${minutes}`;
  return hour === "*" ? first : `${first}, ${hour.includes("/") ? "" : "in hour "}${hours}`;
}
