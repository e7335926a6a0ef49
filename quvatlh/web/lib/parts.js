// What views are made of: cards, states, tables, dialogs, notes. Each is a function that describes; none reads anything.

import { draw, h } from "./dom.js";
import { ago, moment, short } from "./format.js";

export const STATES = ["scheduled", "pending", "claimed", "running", "retrying", "succeeded", "failed", "deleted"];

/** A word with a shape before it, so that colour is never all there is. */
export function state(name, words = name) {
  return h("span", { class: `state is-${name}` }, h("i", { "aria-hidden": "true" }), words);
}

export function card(title, { more, wide, label, tone } = {}, ...children) {
  const head = title ? h("header", {}, h("h2", {}, title), more) : null;
  const classes = `card${wide ? " wide" : ""}${tone ? ` tone-${tone}` : ""}`;
  return h("section", { class: classes, "aria-label": label ?? (typeof title === "string" ? title : undefined) }, head, children);
}

/** Text of strangers, apart from what stands around it, whatever direction it runs in. */
export function own(text, props = {}) {
  return h("bdi", props, text ?? "");
}

/** Before what opens and closes; for who hears it, `aria-expanded` says the same. */
export const opener = (isOpen) => h("span", { "aria-hidden": "true" }, isOpen ? "▾ " : "▸ ");

export function when(text) {
  if (!text) return h("span", { class: "dim" }, "–");
  return h("time", { datetime: text, title: `${moment(text)} · ${text}` }, ago(text));
}

/** Known by its words, so that a button never turns into another one under the pointer. */
/** `key`: of one that stays the same button when it says something else. */
export function button(words, onclick, { kind = "", disabled = false, title, label, key = label ?? words } = {}) {
  return h("button", { key, type: "button", class: kind, onclick, disabled, title, "aria-label": label }, words);
}

/** `columns`: [{head, cell(row), kind, sort}]; `kind`: num, grow, tight, hide (on narrow screens), wide (on all but wide ones). `reached`: by the keyboard,
 * to scroll it, for nothing in it may be. */
export function table(columns, rows, { key = (row) => row.name, caption, rowClass = () => "", onhead, reached = false } = {}) {
  return h("div", { class: "scroll", role: "group", "aria-label": caption, tabindex: reached ? "0" : undefined },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((column, i) => h("th",
        { key: i, scope: "col", class: column.kind ?? "", "aria-sort": column.sorted },
        column.sort ? h("button", { type: "button", class: "plain", onclick: () => onhead(column.sort) }, column.head,
          column.sorted ? h("span", { "aria-hidden": "true" }, column.sorted === "ascending" ? " ↑" : " ↓") : null)
          : column.head || h("span", { class: "unseen" }, "Actions"))))),
      h("tbody", {}, rows.map((row) => h("tr", { key: key(row), class: rowClass(row) },
        columns.map((column, i) => h("td", { key: i, class: column.kind ?? "" }, column.cell(row))))))));
}

export function empty(title, ...children) {
  return h("div", { class: "empty" }, h("p", { class: "lead" }, title), children);
}

/** While nothing has come yet, and where it went wrong; null when the resource has data and no error. */
export function waiting(...resources) {
  const wrong = resources.find((resource) => resource.error);
  if (wrong) return problem(wrong.error);
  if (resources.some((resource) => resource.data === undefined)) return h("p", { class: "dim loading" }, "reading…");
  return null;
}

export function problem(error) {
  return h("div", { class: "problem", role: "alert" },
    h("strong", {}, error.code === "not_found" || error.code === "gone" ? "Not there" : "That did not go"), " ", own(error.message));
}

export function bar(part, whole, words, tone = "") {
  const share = whole > 0 ? Math.min(1, part / whole) : 0;
  return h("span", { class: "bar", title: words },
    h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: `fill ${tone}`, style: { width: `${(share * 100).toFixed(1)}%` } })),
    h("span", { class: "num" }, words));
}

export function stat(words, value, { tone = "", href, under } = {}) {
  const inside = [h("span", { class: "label" }, words), h("span", { class: `value ${tone}` }, typeof value === "number" ? short(value) : value),
    under ? h("span", { class: "under" }, under) : null];
  return href ? h("a", { class: "stat", href }, inside) : h("div", { class: "stat" }, inside);
}

export function pairs(rows) {
  return h("dl", { class: "pairs" }, rows.filter(Boolean).map(([name, value]) => [
    h("dt", { key: `${name} name` }, name), h("dd", { key: `${name} value` }, value)]));
}

export function json(value) {
  return h("pre", { class: "code", tabindex: "0" }, typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

export function copyable(text) {
  const copy = async (event) => {
    const there = event.currentTarget;
    try {
      await navigator.clipboard.writeText(text);
      note("copied");
    } catch {
      const range = document.createRange();
      range.selectNodeContents(there.previousSibling);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
    }
  };
  return h("span", { class: "copyable" }, h("code", {}, text), h("button", { type: "button", class: "plain", onclick: copy, "aria-label": `copy ${text}`, title: "copy" }, "copy"));
}

/** `panel`: the id of what they choose. */
export function tabs(names, chosen, onchoose, panel) {
  const keys = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const all = [...event.currentTarget.children];
    const next = (all.indexOf(event.target) + step + all.length) % all.length; // where the focus is, not what was drawn last
    all[next].focus();
    onchoose(names[next]);
  };
  return h("div", { class: "tabs", role: "tablist", onkeydown: keys }, names.map((name) => h("button", {
    key: name, type: "button", role: "tab", "aria-controls": panel, "aria-selected": String(name === chosen), tabindex: name === chosen ? "0" : "-1",
    onclick: () => onchoose(name) }, name)));
}

// --- notes: what came of something, said once ---

export function note(text, tone = "") {
  const place = document.getElementById("notes");
  const one = document.createElement("div");
  draw(one, h("p", { class: `note ${tone}` }, text));
  place.append(one);
  setTimeout(() => one.remove(), tone === "bad" ? 12_000 : 4000);
}

/** Do it, and say what came of it. True when it went. */
export async function attempt(words, action) {
  try {
    await action();
    note(words);
    return true;
  } catch (error) {
    note(`${error.message}${error.status === 0 ? ": whether it was done is not known" : ""}`, "bad");
    return false;
  }
}

// --- dialogs ---

let asked = 0;

/** For what has to be read before it can be asked: whether the person still waits for it, or has gone on to something else. */
export function asking() {
  const mine = (asked += 1);
  return () => mine === asked;
}

/** None outlives its view, nor comes after it. */
export function closeDialogs() {
  asked += 1;
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

/** A form on top of the page. `fields`: [{name, label, kind, value, options, hint}]; `action(values, progress)` may take its
 *  time; what it raises is shown and the dialog stays. Resolves with what the action gave, or undefined when it was left: what
 *  was begun by then goes on, and is told when it is over. */
export function ask({ title, text, fields = [], action, submit, danger = false, body = () => null }) {
  return new Promise((resolve) => {
    const dialog = document.createElement("dialog");
    const values = Object.fromEntries(fields.map((field) => [field.name, field.value ?? ""]));
    let busy = false;
    let left = false;
    let wrong = null;
    let progress = null;
    let result;
    const redraw = () => draw(dialog, view());
    const change = (name, value) => {
      values[name] = value;
      redraw();
    };
    const go = async (event) => {
      event.preventDefault();
      if (busy) return;
      busy = true;
      wrong = null;
      redraw();
      try {
        result = (await action(values, (done, total) => {
          progress = { done, total };
          redraw();
        })) ?? true;
        if (left) note(`${title.replace("?", "")}: done`);
        else dialog.close();
      } catch (error) {
        wrong = error;
        busy = false;
        progress = null;
        redraw();
        if (left) note(`${title.replace("?", "")}: ${error.message}`, "bad");
        else (dialog.querySelector("[aria-invalid=true]") ?? dialog.querySelector("[type=submit]")).focus();
      }
    };
    const view = () => h("form", { onsubmit: go, "aria-busy": String(busy) },
      h("h2", { id: "asked" }, title),
      text ? h("p", {}, text) : null,
      fields.filter((field) => !field.when || field.when(values)).map((field) => input(field, values[field.name], change, wrong)),
      body(values),
      progress ? h("p", { class: "progress", role: "status" },
        h("progress", { max: progress.total || 1, value: progress.done, "aria-label": "How far it is" }), ` ${short(progress.done)} of ${short(progress.total)}`) : null,
      wrong ? h("p", { class: "problem", role: "alert" }, own(wrong.message)) : null,
      h("footer", {},
        h("button", { key: "leave", type: "button", onclick: () => dialog.close() }, busy ? "Leave it to go on" : "Cancel"),
        h("button", { key: "submit", type: "submit", class: danger ? "danger" : "primary", "aria-disabled": busy ? "true" : undefined }, busy ? "…" : submit)));
    dialog.onclose = () => {
      left = busy && result === undefined;
      dialog.remove();
      resolve(result);
    };
    dialog.setAttribute("aria-labelledby", "asked");
    redraw();
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("input,select,textarea,button[type=submit]")?.focus();
  });
}

/** What is wrong with a field, or with something inside of it. */
function faultOf(name, errors) {
  const inside = errors.find(({ path }) => path.startsWith(`${name}.`) || path.startsWith(`${name}[`));
  return errors.find(({ path }) => path === name) ?? (inside ? { message: `${inside.path}: ${inside.message}` } : errors.find(({ path }) => path.endsWith(`.${name}`)));
}

function input(field, value, change, wrong) {
  const set = (event) => change(field.name, field.kind === "check" ? event.target.checked : event.target.value);
  const fault = faultOf(field.name, wrong?.errors ?? []);
  const about = field.hint || fault ? `about-${field.name}` : undefined;
  const props = { name: field.name, oninput: set, value, "aria-invalid": fault ? "true" : undefined, "aria-describedby": about };
  let control;
  if (field.kind === "check") control = h("input", { type: "checkbox", name: field.name, checked: Boolean(value), onchange: set });
  else if (field.kind === "choice") {
    control = h("select", { ...props, oninput: undefined, onchange: set }, field.options.map((option) => {
      const [each, words] = Array.isArray(option) ? option : [option, option];
      return h("option", { key: each, value: each, selected: each === value }, words);
    }));
  } else if (field.kind === "text") control = h("textarea", { ...props, rows: field.rows ?? "5", spellcheck: "false" });
  else control = h("input", { ...props, type: field.kind === "number" ? "number" : "text", autocomplete: "off", spellcheck: "false", placeholder: field.placeholder });
  return h("div", { key: field.name, class: "field" },
    h("label", { class: field.kind === "check" ? "check" : "" }, h("span", {}, field.label), control),
    about ? h("small", { id: about, class: fault ? "bad" : "" }, fault?.message ?? (typeof field.hint === "function" ? field.hint(value) : field.hint)) : null);
}

/** Asked before something is stopped, deleted or moved. True when it was done. */
export async function confirm(title, text, submit, action, { danger = true } = {}) {
  return Boolean(await ask({ title, text, submit, action: (_, progress) => action(progress), danger }));
}

/** `a, b` ⇄ ["a", "b"] */
export const listed = (text) => text.split(/[\s,]+/).filter(Boolean);
