// Charts as SVG: lines over the last hour that say what they were at a moment, and small ones that fit into a row. Numbers in,
// description out.

import { h } from "./dom.js";
import { ago, moment, short, span } from "./format.js";
import { layer, pointable } from "./pointing.js";

const WIDTH = 600;
const HEIGHT = 130;
const LEFT = 40;
const BOTTOM = 16;
const POINTS = 180;

/** The last values, thinned to so many points: of each bunch `pick` makes one. */
export function thinned(values, points = POINTS, pick = mean) {
  const size = Math.ceil(values.length / points);
  if (size <= 1) return values;
  const found = [];
  for (let end = values.length; end > 0; end -= size) found.push(pick(values.slice(Math.max(0, end - size), end)));
  return found.reverse();
}

export const mean = (values) => {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
};

export const highest = (values) => values.reduce((most, value) => (value !== null && (most === null || value > most) ? value : most), null);

/** A round number not below. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((round) => round >= value);
}

function path(values, top, x, y) {
  let text = "";
  let pen = "M";
  values.forEach((value, i) => {
    if (value === null) pen = "M";
    else {
      text += `${pen}${x(i).toFixed(1)} ${y(Math.min(value, top)).toFixed(1)}`;
      if (pen === "M" && (values[i + 1] ?? null) === null) text += "h0.1"; // one that stands alone is a dot
      pen = "L";
    }
  });
  return text;
}

/** `lines`: [{name, values, tone}], all over the same time; `spanMs`: how much that is; `fromMs`, `stepMs`: when the first value
 * began, and how long each is; `unit`: how a value is said, `axis`: beside the scale; `least`: the top of the scale is no lower;
 * `newest`: which value is the one of now, where the last few may be missing. */
export function chart(title, lines, { spanMs: overMs, fromMs, stepMs, unit = short, axis = unit, least = 0, newest = known } = {}) {
  const shown = lines.map((line) => ({ ...line, values: thinned(line.values, POINTS, line.pick ?? mean) }));
  const length = Math.max(2, ...shown.map((line) => line.values.length));
  const top = ceiling(Math.max(least, ...shown.map((line) => highest(line.values) ?? 0)));
  const x = (i) => LEFT + ((WIDTH - LEFT) * i) / (length - 1);
  const y = (value) => 6 + (HEIGHT - BOTTOM - 6) * (1 - value / top);
  const count = lines[0].values.length;
  const bunch = Math.ceil(count / shown[0].values.length);
  const times = shown[0].values.map((_, i, all) => fromMs + stepMs * (count - bunch * (all.length - 1 - i)));
  const look = (i) => ({
    when: told(times[i]),
    values: shown.map(({ name, tone, values }) => ({ name, tone, text: unit(values[i]), top: values[i] === null ? null : `${y(values[i])}px` })),
  });
  const last = lines.map((line) => `${line.name} ${unit(newest(line.values))}`).join(", ");
  return h("figure", { class: "chart" },
    h("figcaption", {}, h("span", { class: "title" }, title), h("span", { class: "legend" }, lines.map((line) => h("span", { key: line.name, class: `tone-${line.tone}` },
      h("i", { "aria-hidden": "true" }), `${line.name} `, h("b", {}, unit(newest(line.values))))))),
    h("div", { class: "plot", ...pointable({ title, label: `${title}, the last ${span(overMs)}`, now: `now: ${last}`, left: LEFT / WIDTH, times, look }) },
      h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true", preserveAspectRatio: "none" },
      [0, 0.5, 1].map((share) => h("line", { key: `grid ${share}`, class: "grid", x1: LEFT, x2: WIDTH, y1: y(top * share), y2: y(top * share) })),
      shown.map((line) => line.fill ? h("path", { key: `area ${line.name}`, class: `area tone-${line.tone}`, d: area(line.values, top, x, y) }) : null),
      // The first on top: where a queue is quiet all day, it is not failure's red that covers the rest.
      [...shown].reverse().map((line) => h("path", { key: line.name, class: `line tone-${line.tone}`, d: path(line.values, top, x, y) }))),
    h("span", { class: "axis top", "aria-hidden": "true" }, axis(top)),
    h("span", { class: "axis middle", "aria-hidden": "true" }, axis(top / 2)),
    h("span", { class: "axis from", "aria-hidden": "true" }, `${span(overMs)} ago`),
    h("span", { class: "axis now", "aria-hidden": "true" }, "now"),
    layer()));
}

/** When a value was whole, as people say it. */
function told(time) {
  const text = new Date(Math.min(time, Date.now())).toISOString(); // the last one is still being filled
  return `${moment(text)}, ${ago(text)}`;
}

/** Below the line, and nowhere else. */
function area(values, top, x, y) {
  let text = "";
  for (let begin = 0; begin < values.length; begin += 1) {
    if (values[begin] === null) continue;
    let end = begin;
    while ((values[end + 1] ?? null) !== null) end += 1;
    const upper = values.slice(begin, end + 1).map((value, i) => `L${x(begin + i).toFixed(1)} ${y(Math.min(value, top)).toFixed(1)}`);
    text += `M${x(begin).toFixed(1)} ${y(0)}${upper.join("")}L${x(end).toFixed(1)} ${y(0)}Z`;
    begin = end;
  }
  return text;
}

const known = (values) => values.findLast((value) => value !== null) ?? null;

/** A line without axes, for a row of a table. */
export function spark(values, label, tone = "accent") {
  const shown = thinned(values, 40);
  const top = Math.max(1, highest(shown) ?? 0);
  const x = (i) => (100 * i) / Math.max(1, shown.length - 1);
  const y = (value) => 23 - 21 * (value / top);
  return h("svg", { class: `spark tone-${tone}`, viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("path", { class: "line", d: path(shown, top, x, y) }));
}

/** Bars without axes: how many in each stretch of time. */
export function bars(values, label, tone = "bad") {
  const top = Math.max(1, ...values);
  const width = 100 / values.length;
  return h("svg", { class: `spark tone-${tone}`, viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": label },
    values.map((value, i) => {
      const height = value ? Math.max(1.5, (22 * value) / top) : 0.6;
      return h("rect", { key: i, class: value ? "some" : "none", x: i * width + 0.4, y: 24 - height, width: width - 0.8, height });
    }));
}
