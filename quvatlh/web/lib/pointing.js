// What a chart says of one moment: a line there, and its values, under a pointer or where the arrow keys are. Of one chart at
// a time. What is shown is drawn apart from the page, into a layer of the chart, and nothing here runs while nobody points.

import { draw, h } from "./dom.js";

const KEYS = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };

/** {of, plot, share} of a pointer, {of, plot, time, index, said} of keys. */
let held = null;

/** `of`: {title, label, now, left, times, look(i)}: a title that no other chart of the page has; in words what is known last; where in
 * the plot the first point is, as a share of its width; when each point was, in ms; and of one point {when, values: [{name,
 * tone, text, top}]}. Props of the plot, which holds `layer()`. */
export function pointable(of) {
  if (held?.of.title === of.title) {
    held.of = of; // drawn anew: there may be more to see than before
    queueMicrotask(show);
  }
  const last = Math.max(0, of.times.length - 1);
  const leave = (event) => event.currentTarget === held?.plot && release(); // of another chart something may be held by now
  return {
    role: "slider", tabindex: "0", "aria-label": of.label, "aria-valuemin": "0", "aria-valuemax": String(last),
    "aria-valuenow": String(Math.min(last, mine(of)?.index ?? last)), "aria-valuetext": mine(of)?.said ?? of.now,
    onpointerdown: (event) => point(of, event),
    onpointermove: (event) => point(of, event),
    onpointerleave: (event) => event.pointerType !== "touch" && leave(event), // a finger that is lifted leaves what it asked for
    onpointercancel: leave,
    onfocus: (event) => event.currentTarget.matches(":focus-visible") && step(of, event.currentTarget, Infinity),
    onblur: leave,
    onkeydown: (event) => {
      if (event.key === "Escape") leave(event);
      if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      step(of, event.currentTarget, KEYS[event.key]);
    },
  };
}

export const layer = () => h("div", { key: "pointed", class: "pointed", "aria-hidden": "true" });

/** What is held there by keys. */
const mine = (of) => (held?.said !== undefined && held.of.title === of.title ? held : null);

function point(of, event) {
  const plot = event.currentTarget;
  const { left, width } = plot.getBoundingClientRect();
  hold({ of, plot, share: (event.clientX - left - width * of.left) / (width * (1 - of.left)) });
}

/** By keys it is a moment that is held, not a place: what is read does not change by itself, and is heard once. */
function step(of, plot, by) {
  const last = of.times.length - 1;
  if (last < 0) return;
  const index = within(last, (held?.plot === plot ? place() : last) + by);
  const { when, values } = of.look(index);
  const said = `${when}: ${values.map(({ name, text }) => `${name} ${text}`).join(", ")}`;
  hold({ of, plot, time: of.times[index], index, said });
  plot.setAttribute("aria-valuenow", String(index));
  plot.setAttribute("aria-valuetext", said);
}

function hold(wanted) {
  if (held && held.plot !== wanted.plot) release();
  held = wanted;
  show();
}

function release() {
  if (!held) return;
  const { of, plot } = held;
  held = null;
  draw(plot.querySelector(".pointed"));
  plot.setAttribute("aria-valuenow", String(Math.max(0, of.times.length - 1)));
  plot.setAttribute("aria-valuetext", of.now);
}

const within = (last, index) => Math.max(0, Math.min(last, index));

/** Which point is held. */
function place() {
  const { times } = held.of;
  if (held.time === undefined) return within(times.length - 1, Math.round(held.share * (times.length - 1)));
  const found = times.findIndex((time) => time >= held.time);
  return found < 0 ? times.length - 1 : found;
}

function show() {
  if (!held) return;
  if (!held.plot.isConnected) {
    held = null;
    return;
  }
  const { of, plot } = held;
  if (!of.times.length) return;
  const index = place();
  const share = of.times.length > 1 ? index / (of.times.length - 1) : 0;
  const left = `${(100 * (of.left + (1 - of.left) * share)).toFixed(2)}%`;
  const { when, values } = of.look(index);
  const beside = share > 0.5 ? { left: "auto", right: `calc(100% - ${left} + 8px)` } : { left: `calc(${left} + 8px)`, right: "auto" };
  draw(plot.querySelector(".pointed"),
    h("i", { key: "line", class: "at", style: { left } }),
    values.filter(({ top }) => top !== null).map(({ name, tone, top }) => h("i", { key: `dot ${name}`, class: `dot tone-${tone}`, style: { left, top } })),
    h("div", { key: "readout", class: "readout", style: beside }, h("p", {}, when),
      values.map(({ name, tone, text }) => h("p", { key: name }, h("i", { class: `tone-${tone}` }), `${name} `, h("b", {}, text)))));
}
