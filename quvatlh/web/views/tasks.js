// All tasks: found by a search line, sorted, page by page; done to one by one, as selected, or to all that match.

import * as api from "../lib/api.js";
import { h } from "../lib/dom.js";
import { count, plural, title, took, work } from "../lib/format.js";
import { STATES, asking, button, empty, note, own, state, table, waiting, when } from "../lib/parts.js";
import { KEYS, match, parse, quoted, strangers, wordAt, write } from "../lib/query.js";
import { to } from "../lib/router.js";
import { VERBS, allowed, moveFailed, perform } from "../lib/verbs.js";

const ROWS = 50;
const FACETS = ["queue", "group", "name", "worker", "key", "error"];
const said = (task) => (task.error ? `${task.error.code}: ${task.error.text.split("\n", 1)[0]}` : work(task.work));
const SORTS = { created_at: "Added", at: "Due", finished_at: "Finished", priority: "Priority" };

export default function tasks(page) {
  let text = "";
  let filters = {};
  let selected = new Set();
  let allMatching = false;
  let trail = []; // cursors of the pages that led here, one by one; the first page has none
  let followed; // the cursor of the link to the next page that was clicked last
  const hints = new Hints(page);

  const query = () => page.place.query;
  const sort = () => query().sort ?? "-created_at";
  const address = () => `/v1/tasks${api.query({ ...filters, sort: sort(), limit: ROWS, cursor: query().cursor })}`;
  const list = page.watch("/v1/tasks?limit=1", { topics: ["task"] });
  const states = page.watch("/v1/tasks?group_by=state", { topics: ["task"], slowMs: 1000, counts: true });
  moved(page.place);

  function moved(place) {
    const before = write(filters);
    const wasAt = list.address;
    text = place.query.q ?? "";
    hints.arrived(text);
    filters = parse(text);
    if (write(filters) !== before) drop();
    list.move(address());
    if (list.address !== wasAt) follow(query().cursor);
    const { state: _, ...others } = filters;
    states.move(`/v1/tasks${api.query({ ...others, group_by: "state" })}`, { keep: true });
  }

  /** Of a page that no link of this list led to, no way back within it is known. */
  function follow(cursor) {
    const at = trail.indexOf(cursor);
    if (at > 0) trail.length = at + 1;
    else trail = cursor !== undefined && cursor === followed ? [...trail, cursor] : [cursor];
    followed = undefined;
  }

  function drop() {
    selected = new Set();
    allMatching = false;
  }

  const search = (wanted, options) => page.show({ q: wanted, cursor: undefined }, options);

  function order(name) {
    page.show({ sort: sort() === `-${name}` ? name : `-${name}`, cursor: undefined });
  }

  const sorted = (name) => (sort() === name ? "ascending" : sort() === `-${name}` ? "descending" : undefined);

  function choose(task, on) {
    if (on) selected.add(task.id);
    else selected.delete(task.id);
    allMatching = false;
    page.redraw();
  }

  function chooseAll(on) {
    selected = new Set(on ? list.data?.items.map((task) => task.id) : []);
    allMatching = false;
    page.redraw();
  }

  /** They are on no worker that they could be moved from: to another queue instead. What is selected and not listed here, or
   *  not any more, is asked for. */
  async function onlyFailed() {
    if (allMatching) return filters.state === "failed";
    const seen = new Map(page.live.state === "live" ? list.data.items.map((task) => [task.id, task.state]) : []);
    if ([...selected].some((id) => (seen.get(id) ?? "failed") !== "failed")) return false;
    const asked = await Promise.all([...selected].filter((id) => !seen.has(id)).map((id) => api.get(api.path("/v1/tasks", id))));
    return asked.every((task) => task.state === "failed");
  }

  async function bulk(verb) {
    const which = allMatching ? { match: match(filters, STATES) } : { ids: [...selected] };
    const many = allMatching ? list.data.total : selected.size;
    const words = many === null ? "more than 10,000 tasks" : plural(many, "task");
    const still = asking();
    let toQueue = false;
    try {
      toQueue = verb === "relocate" && (await onlyFailed());
    } catch (error) {
      note(error.message, "bad");
      return;
    }
    if (still() && (await (toQueue ? moveFailed(which, words) : perform(page, verb, which, words)))) {
      drop();
      list.refresh();
      page.redraw();
    }
  }

  function columns(items) {
    const every = items.length > 0 && items.every((task) => selected.has(task.id));
    const time = sort().replace("-", "");
    return [
      ...(allowed(page).length ? [{
        head: h("input", { type: "checkbox", "aria-label": "select all on this page", checked: every, indeterminate: !every && selected.size > 0, disabled: !items.length, onchange: (event) => chooseAll(event.target.checked) }),
        kind: "tick",
        cell: (task) => h("input", { type: "checkbox", "aria-label": `select ${task.id}`, checked: selected.has(task.id) || allMatching, onchange: (event) => choose(task, event.target.checked) }),
      }] : []),
      { head: "State", cell: (task) => state(task.state) },
      { head: "Task", kind: "grow", cell: (task) => h("a", { class: "title", href: to(["tasks", task.id]), title: task.id }, own(title(task)), task.kind === "service" ? h("small", {}, ` service ${task.live}/${task.wanted}`) : null) },
      { head: "Queue", kind: "short hide", cell: (task) => h("a", { class: "quiet", title: task.queue, href: to(["tasks"], { q: write({ ...filters, queue: task.queue }) }) }, own(task.queue)) },
      { head: "Runs", kind: "grow hide narrow", cell: (task) => h("code", { class: "dim", title: said(task) }, own(said(task))) },
      { head: "Priority", kind: "num hide", sort: "priority", sorted: sorted("priority"), cell: (task) => task.priority },
      { head: "Tries", kind: "num hide", cell: (task) => task.attempts },
      { head: "Took", kind: "num tight hide", cell: (task) => took(task) },
      time === "at" ? { head: "Due", kind: "tight", sort: "at", sorted: sorted("at"), cell: (task) => when(task.at) } : null,
      time === "finished_at" ? { head: "Finished", kind: "tight", sort: "finished_at", sorted: sorted("finished_at"), cell: (task) => when(task.finished_at) } : null,
      { head: "Added", kind: "tight", sort: "created_at", sorted: sorted("created_at"), cell: (task) => when(task.created_at) },
    ].filter(Boolean);
  }

  function chips() {
    const by = Object.fromEntries((states.data?.groups ?? []).map((group) => [group.value, group.count]));
    const { state: chosen, ...others } = filters;
    const active = new Set(chosen?.split(","));
    return h("ul", { class: "chips", "aria-label": "States" }, STATES.filter((name) => by[name] || active.has(name)).map((name) => {
      const next = new Set(active);
      if (!next.delete(name)) next.add(name);
      return h("li", { key: name }, h("a", { href: to(["tasks"], { ...query(), cursor: undefined, q: write({ ...others, state: [...next].join(",") }) }), "aria-current": active.has(name) ? "true" : undefined },
        state(name), h("b", {}, count(by[name] ?? 0))));
    }));
  }

  function bulkBar() {
    const items = list.data.items;
    if (!selected.size && !allMatching) return null;
    const more = list.data.next !== null || query().cursor;
    const total = list.data.total === null ? "all" : `all ${count(list.data.total)}`;
    return h("div", { class: "bulk", role: "region", "aria-label": "What is selected" },
      h("strong", {}, allMatching ? `${total} that match` : `${count(selected.size)} selected`),
      !allMatching && more && selected.size >= items.length ? button(`Select ${total} that match`, () => { allMatching = true; page.redraw(); }) : null,
      allowed(page).map((verb) => button(VERBS[verb].words, () => bulk(verb), { kind: VERBS[verb].danger ? "danger" : "" })),
      button("Clear", () => { drop(); page.redraw(); }, { kind: "plain" }));
  }

  function pager() {
    const { next, total, items } = list.data;
    return h("footer", { class: "pager" },
      h("span", { class: "dim" }, total === null ? "more than 10,000" : plural(total, "task"), query().cursor ? "" : items.length < (total ?? 1e9) ? `, the first ${items.length}` : ""),
      query().cursor ? h("a", { class: "button", href: to(["tasks"], { ...query(), cursor: undefined }) }, "First page") : null,
      query().cursor ? button("Back", () => (trail.length > 1 ? history.back() : page.show({ cursor: undefined }))) : null,
      next ? h("a", { class: "button", href: to(["tasks"], { ...query(), cursor: next }), rel: "next", onclick: () => { followed = next; } }, "Next page") : null);
  }

  function render() {
    const wait = waiting(list);
    return [
      h("div", { class: "tools" },
        hints.field(text, search),
        h("label", { class: "inline" }, "Sort ", h("select", { onchange: (event) => page.show({ sort: event.target.value, cursor: undefined }) },
          Object.entries(SORTS).flatMap(([name, words]) => [[`-${name}`, `${words}, last first`], [name, `${words}, first first`]]).map(([value, words]) => h("option", { key: value, value, selected: value === sort() }, words))))),
      chips(),
      list.data ? bulkBar() : null,
      list.data && !list.data.items.length ? nothing() : list.error ? wait : [rows(list.data?.items ?? []), wait ?? pager()],
    ];
  }

  /** Its head stays while the next rows are read, and with it the focus of who sorts by a key. */
  function rows(items) {
    return table(columns(items), items, { key: (task) => task.id, caption: "Tasks", onhead: order, rowClass: (task) => (selected.has(task.id) || allMatching ? "chosen" : "") });
  }

  function nothing() {
    if (list.data.next) return [empty("None found yet, but not all was looked at."), pager()];
    const [odd] = strangers(text);
    return text ? empty("No task matches.", odd ? h("p", {}, h("code", {}, `${odd}:`), " is no field, and was looked for as text. The fields are ", Object.keys(KEYS).slice(0, 9).map((key, i) => [i ? ", " : "", h("code", { key }, key)]), ".") : null, h("p", {}, "Words are looked for in ids, names and errors; ", h("code", {}, "queue:emails state:failed"), " narrows by a field. "), h("a", { class: "button", href: to(["tasks"]) }, "All tasks"))
      : empty("There are no tasks.", h("p", {}, "Add one: ", h("code", {}, "quvatlh add -- echo hello"), ". It appears here by itself."));
  }

  return { title: "Tasks", render, moved };
}

// --- suggestions: keys, and values with how many tasks have them ---

class Hints {
  constructor(page) {
    this.page = page;
    this.text = null; // being typed; null: what the address says
    this.sent = null; // what of it was searched for last
    this.isDraft = false; // so the address is of something half typed: what comes next takes its place, not one more step back
    this.items = [];
    this.word = null;
    this.chosen = -1;
    this.known = new Map();
    this.timer = 0;
    this.asked = 0;
    page.onStop(() => clearTimeout(this.timer));
  }

  field(shown, search) {
    const text = this.text ?? shown;
    const isOpen = this.items.length > 0;
    return h("form", { class: "search", role: "search", onsubmit: (event) => { event.preventDefault(); this.submit(event.target.querySelector("input").value, search); } },
      h("input", {
        type: "search", value: text, placeholder: "queue:emails state:failed error:timeout", "aria-label": "Search tasks", spellcheck: "false", autocomplete: "off", autocapitalize: "off",
        role: "combobox", "aria-expanded": String(isOpen), "aria-controls": "hints", "aria-autocomplete": "list", "aria-activedescendant": this.chosen >= 0 ? `hint-${this.chosen}` : undefined,
        oninput: (event) => this.typed(event.target, search), onfocus: (event) => this.suggest(event.target), onclick: (event) => this.suggest(event.target),
        onblur: () => this.close(), onkeydown: (event) => this.keys(event, search),
      }),
      h("ul", { id: "hints", role: "listbox", "aria-label": "Suggestions", hidden: !isOpen }, this.items.map((item, i) => h("li", {
        key: `${item.insert}`, id: `hint-${i}`, role: "option", "aria-selected": String(i === this.chosen),
        onmousedown: (event) => { event.preventDefault(); this.take(event.currentTarget.closest("form").querySelector("input"), item, search); } },
        own(item.insert), h("small", {}, item.about)))));
  }

  typed(input, search) {
    this.text = input.value;
    this.chosen = -1;
    this.suggest(input);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.apply(search), 500);
    this.page.redraw();
  }

  apply(search, isEntered = false) {
    clearTimeout(this.timer);
    const wanted = this.text?.trim() ?? "";
    if (this.text !== null && !wanted.endsWith(":") && wanted !== (this.page.place.query.q ?? "")) {
      this.sent = wanted;
      search(wanted, { replace: this.isDraft });
      this.isDraft = true;
    }
    if (isEntered) this.isDraft = false;
  }

  /** Where the address leads now. Elsewhere than what was typed: then that is what the field shows, too. */
  arrived(text) {
    if (this.text === null || text === this.sent) return;
    clearTimeout(this.timer);
    this.text = null;
    this.isDraft = false;
  }

  submit(text, search) {
    this.close();
    this.text = text;
    this.apply(search, true);
  }

  close() {
    this.asked += 1;
    this.items = [];
    this.chosen = -1;
    this.page.redraw();
  }

  async suggest(input) {
    const turn = (this.asked += 1); // a later one, or the end of it, makes this one void
    const word = wordAt(input.value, input.selectionStart ?? input.value.length);
    if (word.key !== this.word?.key) this.items = [];
    const all = word.key ? await this.values(word.key) : Object.entries(KEYS).map(([key, about]) => ({ insert: `${key}:`, about }));
    if (this.asked !== turn) return;
    const typed = word.typed.toLowerCase();
    this.items = typed || word.key || !input.value ? all.filter((item) => item.insert.toLowerCase().includes(typed) && item.insert !== word.typed).slice(0, 10) : [];
    this.word = word;
    this.chosen = -1;
    this.page.redraw();
  }

  async values(key) {
    if (key === "state") return STATES.map((insert) => ({ insert, about: "" }));
    if (key === "kind") return ["job", "service"].map((insert) => ({ insert, about: "" }));
    if (!FACETS.includes(key)) return [];
    const known = this.known.get(key);
    if (known && Date.now() - known.at < 10_000) return known.items;
    try {
      const { groups } = await api.get(`/v1/tasks?group_by=${key}`);
      const items = groups.filter((group) => group.value).map((group) => ({ insert: quoted(group.value), about: plural(group.count, "task") }));
      this.known.set(key, { at: Date.now(), items });
      return items;
    } catch {
      return [];
    }
  }

  keys(event, search) {
    if (!this.items.length) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      this.chosen = (this.chosen + step + this.items.length + (this.chosen < 0 && step < 0 ? 1 : 0)) % this.items.length;
      this.page.redraw();
    } else if (event.key === "Escape") {
      event.preventDefault();
      this.close();
    } else if ((event.key === "Enter" || event.key === "Tab") && this.chosen >= 0) {
      event.preventDefault();
      this.take(event.target, this.items[this.chosen], search);
    }
  }

  take(input, item, search) {
    const end = input.selectionStart ?? input.value.length;
    const isKey = item.insert.endsWith(":");
    const text = `${input.value.slice(0, this.word.start)}${item.insert}${isKey ? "" : " "}${input.value.slice(end)}`;
    this.text = text;
    input.value = text;
    const cursor = this.word.start + item.insert.length + (isKey ? 0 : 1);
    input.setSelectionRange(cursor, cursor);
    input.focus();
    if (isKey) this.suggest(input);
    else {
      this.close();
      this.apply(search);
    }
    this.page.redraw();
  }
}
