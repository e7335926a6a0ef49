// What an action writes, followed as it is written: the last lines of it, in blocks, so that only the last block is drawn anew.

import * as api from "./api.js";
import { h } from "./dom.js";
import { card, tabs } from "./parts.js";

const BLOCK_LINES = 100;
const BLOCKS_MAX = 40;
const LINE_CHARS_MAX = 4000;
const AGAIN_MS = [250, 1000, 2000, 5000];
const AT_END_PX = 30;
const LOOKS_MS = [500, 2000, 5000];

export class Log {
  /** `base`: the address of the task; `isOver(action)`: whether it writes nothing more, as far as is known. */
  constructor(page, base, isOver) {
    this.page = page;
    this.base = base;
    this.isOver = isOver;
    this.stream = "stdout";
    this.isChosen = false; // by a person
    this.action = undefined; // that is followed
    this.wanted = undefined; // that a person chose
    this.stopper = null;
    this.over = false;
    this.isGone = false;
    this.clear();
    const look = () => (document.hidden ? this.stopper?.abort() : this.goOn()); // hidden, it gives its connection back
    document.addEventListener("visibilitychange", look);
    page.onStop(() => {
      document.removeEventListener("visibilitychange", look);
      this.over = this.isGone = true;
      this.stopper?.abort();
    });
  }

  /** The newest action is shown, unless the person chose one. */
  begin(newest) {
    if (newest !== undefined && newest !== this.action && this.wanted === undefined) this.follow(newest);
  }

  follow(action) {
    this.choose(this.isChosen ? this.stream : "stdout", action);
    this.lookAside(action);
  }

  /** Many write all they say to stderr: where stdout has nothing and stderr has, that is shown, until a person chooses. */
  async lookAside(action) {
    const isMute = () => !this.isGone && !this.isChosen && this.action === action && this.stream === "stdout" && this.isEmpty();
    for (let looks = 0; ; looks += 1) {
      const isLast = Boolean(this.isOver(action));
      await new Promise((resolve) => setTimeout(resolve, LOOKS_MS[Math.min(looks, LOOKS_MS.length - 1)]));
      if (!isMute()) return;
      if (document.hidden) continue;
      const has = await this.hasAny("stderr", action);
      if (!isMute()) return;
      if (has) return this.choose("stderr", action);
      if (isLast && has === false) return;
    }
  }

  /** null: not known. */
  async hasAny(stream, action) {
    const stopper = new AbortController();
    try {
      const response = await api.open(`${this.base}/log${api.query({ stream, action })}`, stopper.signal);
      return !(await response.body.getReader().read()).done;
    } catch (error) {
      return error.status >= 400 && error.status < 500 ? false : null;
    } finally {
      stopper.abort();
    }
  }

  choose(stream, action) {
    this.stream = stream;
    this.action = action;
    this.over = false;
    this.clear();
    this.goOn();
    this.page.redraw();
  }

  clear() {
    this.blocks = [{ key: 0, lines: [], text: "" }];
    this.rest = "";
    this.words = "";
    this.isTail = false;
    this.offset = 0;
    this.bytes = null; // in all, once it has ended
    this.behind = 0; // where it goes on behind a gap
    this.decoder = new TextDecoder();
    this.atEnd = true;
    this.top = 0;
  }

  /** From the next byte, until it is over; a node that is away is waited for. */
  async goOn() {
    this.stopper?.abort();
    if (this.over || this.action === undefined || document.hidden) return;
    const stopper = (this.stopper = new AbortController());
    this.failures = 0;
    while (!stopper.signal.aborted) {
      try {
        const { stream, action, offset } = this;
        const response = await api.open(`${this.base}/log${api.query({ stream, action, follow: 1, offset })}`, stopper.signal);
        this.begins(response.headers);
        const begin = this.offset;
        await this.read(response.body.getReader(), stopper.signal);
        if (stopper.signal.aborted) return;
        // Else the node has only closed its door, or something is not kept, behind which it goes on.
        const isAll = this.offset === begin || (this.bytes !== null && this.offset >= this.bytes);
        this.over = this.isTail || (this.isOver(action) && isAll);
        if (!this.over && !isAll) continue;
      } catch (error) {
        if (stopper.signal.aborted) return;
        this.over = error.status >= 400 && error.status < 500;
        if (this.over) this.words = error.message;
      }
      this.page.redraw();
      if (this.over) return;
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS[Math.min(this.failures, AGAIN_MS.length - 1)]));
      this.failures += 1;
    }
  }

  begins(headers) {
    const first = Number(headers.get("Quvatlh-Offset") ?? this.offset);
    if (first > this.offset) {
      this.words = "what stood before is no longer kept";
      if (this.offset) {
        this.words = `${(first - this.offset).toLocaleString("en")} bytes in the middle are not kept`;
        this.take(`${this.rest ? "\n" : ""}… ${this.words} …\n`);
        this.behind = first;
      }
      this.decoder = new TextDecoder();
    }
    const bytes = headers.get("Quvatlh-Bytes");
    this.bytes = bytes === null ? null : Number(bytes);
    const left = headers.get("Quvatlh-Log");
    this.isTail = left !== null;
    if (this.isTail) this.words = `its worker ${left === "tail" ? "cannot be asked" : "does not keep the rest"}: this is the end that is left`;
    this.offset = first;
  }

  async read(reader, signal) {
    for (;;) {
      const { value, done } = await reader.read();
      if (done || signal.aborted) return;
      this.offset += value.length;
      this.failures = 0;
      this.take(this.decoder.decode(value, { stream: true }));
    }
  }

  take(text) {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop().slice(-LINE_CHARS_MAX);
    for (const line of lines) {
      let last = this.blocks.at(-1);
      if (last.lines.length === BLOCK_LINES) {
        last = { key: last.key + 1, lines: [], text: "" };
        this.blocks.push(last);
      }
      last.lines.push(line.length > LINE_CHARS_MAX ? `${line.slice(0, LINE_CHARS_MAX)}…` : line);
      last.text = "";
    }
    if (this.blocks.length > BLOCKS_MAX) this.blocks.splice(0, this.blocks.length - BLOCKS_MAX);
    this.page.live.onChange();
  }

  /** At its end it stays there; who has scrolled up is left where he reads. */
  scrolled(element) {
    const isUp = element.scrollTop < this.top - 1;
    if (element.scrollHeight - element.scrollTop - element.clientHeight < AT_END_PX) this.atEnd = true;
    else if (isUp) this.atEnd = false;
    this.top = element.scrollTop;
  }

  toEnd(element) {
    if (!this.atEnd || element.scrollHeight - element.scrollTop - element.clientHeight < 1) return;
    element.scrollTop = element.scrollHeight;
    this.top = element.scrollTop;
  }

  isEmpty() {
    const [first] = this.blocks;
    return first.key === 0 && !first.lines.length && !this.rest;
  }

  described() {
    if (this.isEmpty()) return h("span", { class: "dim" }, `nothing written to ${this.stream}`);
    for (const block of this.blocks) block.text ||= block.lines.map((line) => `${line}\n`).join("");
    return [this.blocks.map((block) => h("span", { key: block.key }, block.text)), h("span", { key: "rest" }, this.rest)];
  }

  card(actions) {
    if (this.action === undefined) return null;
    const whole = `${this.base}/log${api.query({ stream: this.stream, action: this.action })}`;
    const dropped = this.blocks[0].key * BLOCK_LINES;
    if (this.place) requestAnimationFrame(() => this.toEnd(this.place));
    return card("Log", {
      wide: true,
      more: h("div", { class: "actions" },
        tabs(["stdout", "stderr"], this.stream, (stream) => { this.isChosen = true; this.choose(stream, this.action); }, "log"),
        actions.length > 1 ? h("select", { "aria-label": "Try", onchange: (event) => { this.wanted = event.target.value; this.follow(this.wanted); } },
          actions.map((action) => h("option", { key: action.id, value: action.id, selected: action.id === this.action }, `try ${action.attempt}, ${action.worker}`))) : null,
        h("a", { href: whole, download: "", class: "button" }, this.behind ? "Save the beginning" : "Save"),
        this.behind ? h("a", { href: `${whole}&offset=${this.behind}`, download: "", class: "button" }, "Save the end") : null) },
      this.words ? h("p", { class: "dim" }, this.words) : null,
      dropped ? h("p", { class: "dim" }, `the last lines; ${dropped} before them are in the file`) : null,
      h("pre", { id: "log", class: "log", tabindex: "0", role: "tabpanel", "aria-label": this.stream, made: (element) => { this.place = element; }, onscroll: (event) => this.scrolled(event.target) }, this.described()));
  }
}
