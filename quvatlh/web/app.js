// The frame: who is there, where we are, whether it is live. Views are drawn inside it, one at a time.

import * as api from "./lib/api.js";
import { draw, h } from "./lib/dom.js";
import { moment, span } from "./lib/format.js";
import { matches } from "./lib/globs.js";
import * as keys from "./lib/keys.js";
import { Live } from "./lib/live.js";
import { attempt, closeDialogs, own, problem } from "./lib/parts.js";
import { go, parse, to } from "./lib/router.js";
import cluster from "./views/cluster.js";
import failed from "./views/failed.js";
import login from "./views/login.js";
import overview from "./views/overview.js";
import queue from "./views/queue.js";
import queues from "./views/queues.js";
import schedules from "./views/schedules.js";
import services from "./views/services.js";
import task from "./views/task.js";
import tasks from "./views/tasks.js";
import workers from "./views/workers.js";

const VIEWS = { "": overview, tasks, queues, failed, workers, services, schedules, cluster, login };
const PAGES = { tasks: task, queues: queue };
const NAVIGATION = [
  ["", "Overview"], ["tasks", "Tasks"], ["failed", "Failed"], ["queues", "Queues"], ["workers", "Workers"],
  ["services", "Services"], ["schedules", "Schedules"], ["cluster", "Cluster"],
];
const DRAW_MS = 250;

const root = document.createElement("div");
root.id = "app";
const notes = document.createElement("div");
notes.id = "notes";
notes.setAttribute("role", "status");
document.body.append(root, notes);

let session = null;
let view = null;
let page = null;
let pages = 0;
let timer = 0;
let framed = 0;
let drawnAt = 0;

const live = new Live(() => drawSoon());

/** By what the node tells: seldom. By what the person does: at the next frame. Unseen: when it is seen again. */
function drawSoon(atOnce = false) {
  if (atOnce) framed ||= requestAnimationFrame(drawNow);
  else timer ||= setTimeout(drawNow, Math.max(0, DRAW_MS - (performance.now() - drawnAt)));
}

function drawNow() {
  clearTimeout(timer);
  cancelAnimationFrame(framed);
  timer = framed = 0;
  if (view === null) return;
  drawnAt = performance.now();
  draw(root, frame());
}

// --- where we are ---

/** What a view may do: read, draw, lead on. */
class Page {
  constructor(place) {
    this.place = place;
    this.number = pages += 1;
    this.session = session;
    this.live = live;
    this.resources = new Set();
    this.stops = [];
  }

  watch(address, options) {
    const resource = live.watch(address, options);
    this.resources.add(resource);
    return resource;
  }

  /** No more; those that are none are none. */
  unwatch(...resources) {
    for (const resource of resources) {
      resource?.stop();
      this.resources.delete(resource);
    }
  }

  /** Of the oldest of what is seen. */
  get ageMs() {
    return Date.now() - Math.min(Date.now(), ...[...this.resources].map((resource) => resource.at || Date.now()));
  }

  /** While it is live: as the node has it by its last word, but for changes that are not seen here yet. */
  get behindMs() {
    const since = [live.heardAt, ...[...this.resources].map((resource) => resource.behindSince)].filter(Boolean);
    return Math.max(0, Date.now() - Math.min(Date.now(), ...since));
  }

  redraw() {
    drawSoon(true);
  }

  onStop(stop) {
    this.stops.push(stop);
  }

  /** The same view, shown otherwise: what it shows stands in its address. */
  show(query, options) {
    const [first, ...rest] = this.place.parts;
    go(first === undefined ? [] : [first, ...rest], { ...this.place.query, ...query }, options);
  }

  /** Whether this token may ask for all of these (`METHOD /path`): by its role and scope, as the node says. */
  may(...routes) {
    return session !== null && routes.every((route) => session.may.includes(route));
  }

  /** Whether a task of this queue and group is in its scope. */
  reaches(queue, group) {
    return matches(session.queues, queue) && matches(session.groups, group);
  }

  close() {
    this.unwatch(...this.resources);
    for (const stop of this.stops) stop();
  }
}

function arrive() {
  closeDialogs();
  const place = parse(location.hash);
  const [first = "", second] = place.parts;
  const make = session === null ? login : (second !== undefined ? PAGES[first] : undefined) ?? VIEWS[first] ?? overview;
  const same = page && view?.make === make && page.place.parts.join("/") === place.parts.join("/");
  if (same && view.moved) {
    page.place = place;
    view.moved(place);
  } else {
    page?.close();
    page = new Page(place);
    try {
      view = { make, ...make(page) };
    } catch (error) {
      view = { make, title: "Error", render: () => problem(error) };
      console.error(error);
    }
    scrollTo(0, 0);
  }
  document.title = `${view.title} · Qu'vatlh`;
  drawNow();
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

// --- the frame ---

const STATES = {
  connecting: () => ["wait", "connecting"],
  live: () => ["ok", `live, ${Math.round(page.behindMs / 1000)} s`],
  silent: () => ["warn", `no word for ${span(Date.now() - live.heardAt)}`],
  gone: () => ["bad", "node gone"],
  paused: () => ["warn", `paused · ${span(page.ageMs)} old`],
};

/** Heard once when it changes; what is seen counts on, by the second and in no live region. */
const SAID = { connecting: "", live: "In touch with the node.", silent: "Nothing is heard of the node.", gone: "The node is gone.", paused: "The page is held still." };

function status() {
  const [tone, words] = STATES[live.state]();
  const paused = live.state === "paused";
  return h("div", { class: "status" },
    h("span", { class: "unseen", role: "status" }, SAID[live.state]),
    h("span", { class: `liveness tone-${tone}`, title: live.heardAt ? `last word of the node at ${moment(new Date(live.heardAt).toISOString())}` : "" },
      h("i", { "aria-hidden": "true" }), words),
    h("button", { type: "button", onclick: togglePause, title: keys.areOn() ? "key p" : undefined }, paused ? "Go on" : "Pause"));
}

function togglePause() {
  if (live.state === "paused") live.resume();
  else live.pause();
  drawSoon(true);
}

async function showKeys() {
  await keys.help();
  drawSoon(true);
}

function leave() {
  attempt("logged out", async () => {
    await api.send("DELETE", "/v1/session");
    history.pushState(null, "", "#/login"); // not drawn in the page that is about to go
    location.reload();
  });
}

/** What is out of scope is not there for this token: so it is said what is. */
function scope() {
  const parts = ["queues", "groups"].filter((of) => !session[of].includes("*")).map((of) => `${of} ${session[of].join(", ")}`);
  return parts.length ? h("small", { class: "scope", title: "what this token is for" }, own(parts.join("; "))) : null;
}

function banner() {
  if (live.state !== "gone") return null;
  const since = live.goneSince ? span(Date.now() - live.goneSince) : "";
  const old = live.heardAt ? ` What you see is ${span(Date.now() - live.heardAt)} old.` : "";
  return h("div", { class: "banner", role: "region", "aria-label": "Node gone" },
    h("strong", {}, `The node ${location.host} does not answer${since ? ` for ${since}` : ""}.`),
    `${old} The page tries again by itself and goes on where it was. `,
    h("button", { type: "button", onclick: () => live.retryNow() }, "Try now"));
}

function frame() {
  let inside;
  try {
    inside = view.render();
  } catch (error) {
    console.error(error);
    inside = problem(error);
  }
  if (session === null) return h("main", { id: "main", class: "alone" }, inside);
  const here = page.place.parts[0] ?? "";
  return h("div", { class: "frame" },
    h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); document.getElementById("main").focus(); } }, "Skip to content"),
    h("nav", { "aria-label": "Views" },
      h("a", { class: "brand", href: "#/" }, "Qu'vatlh"),
      h("ul", {}, NAVIGATION.map(([name, words]) => h("li", { key: name },
        h("a", { href: to(name ? [name] : []), "aria-current": name === here ? "page" : undefined }, words)))),
      h("div", { class: "who" }, h("span", { title: `role ${session.role}` }, h("bdi", {}, session.name), h("small", {}, session.role)), scope(),
        h("button", { type: "button", class: "plain keys", onclick: showKeys }, "Keys"),
        session.until ? h("button", { type: "button", class: "plain", onclick: leave }, "Log out") : null)),
    h("div", { class: "page" },
      h("header", { class: "top" }, h("h1", {}, view.heading?.() ?? view.title), status()),
      banner(),
      h("main", { key: page.number, id: "main", tabindex: "-1", class: live.state === "gone" || live.state === "paused" ? "stale" : "" }, inside)));
}

// --- start ---

function outside() {
  if (session === null) return;
  session = null;
  live.stop();
  arrive();
}

addEventListener("hashchange", arrive);
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, button, a, summary, dialog");
  if (event.ctrlKey || event.metaKey || event.altKey || typing || session === null || !keys.areOn()) return;
  if (event.key === "p") {
    togglePause();
  } else if (event.key === "?") {
    showKeys();
  } else if (event.key === "/") {
    event.preventDefault();
    const field = document.querySelector("input[type=search]");
    if (field) field.focus();
    else go(["tasks"]);
  }
});
api.listeners.unauthorized = outside;

/** What this token may was changed while the page was open: it is made anew with what it may now. */
live.onJudged = async () => {
  try {
    session = await api.get("/v1/session");
  } catch {
    return; // over, which is told otherwise; or no answer, and then the stream says so
  }
  view = null;
  arrive();
};

async function start() {
  for (;;) {
    try {
      session = await api.get("/v1/session");
      if (parse(location.hash).parts[0] === "login") history.replaceState(null, "", "#/");
      live.start();
      break;
    } catch (error) {
      if (error.status === 401) break;
      draw(root, h("main", { class: "alone" }, h("p", { class: "card" }, `${error.message}. Trying again…`)));
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
  arrive();
}

start();
