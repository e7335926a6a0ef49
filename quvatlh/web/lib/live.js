// The node's stream, and what of the page is read again because of it.
//
// A resource is a GET whose answer a view shows. The stream tells topics, queues and ids that changed; resources that this
// touches are read again: not more often than EVERY_MS, and all of a page together not for more than one part in SHARE of the
// time, so that neither the node nor the page is kept busy by being looked at.

import * as api from "./api.js";

const EVERY_MS = 250;
const SHARE = 80;
const SLOWEST_MS = 5000;
const OWN_MS = 1000;
/** Of one thing, which its own events touch and no others. */
const COSTLY_MS = 500;
const COSTLIEST_MS = 120_000;
/** What takes the node longer than COSTLY_MS, twice running, is counting among very many: it may rest so much longer. What
 * is known to count (`counts`) rests for half the share, however short it takes: a view has two of them. */
const SILENT_MS = 6000;
const LOST_MS = 9000;
const RETRY_MS = [250, 500, 1000, 2000, 3000];
const ANSWER_MS = 30_000;
/** Without an answer by then, the connection is taken for dead: a laptop that slept leaves such ones. */
const AGAIN_MS = 1000;
/** After none, or one that says "not now". */

export class Live {
  constructor(onChange) {
    this.onChange = onChange;
    this.onJudged = () => {}; // the node ended the stream, since its token may something else now
    this.state = "connecting"; // live, silent, gone, paused
    this.heardAt = 0;
    this.askedAt = 0;
    this.goneSince = 0;
    this.last = "";
    this.eventsSeen = 0;
    this.resources = new Set();
    this.failures = 0;
    this.timer = 0;
    this.stopper = null;
    this.watchdog = setInterval(() => this.look(), 1000);
    document.addEventListener("visibilitychange", () => this.seen());
    addEventListener("online", () => this.retryNow());
  }

  start() {
    if (this.stopper || this.state === "paused" || document.hidden) return;
    clearTimeout(this.timer);
    this.run();
  }

  stop() {
    clearTimeout(this.timer);
    this.stopper?.abort();
    this.stopper = null;
  }

  pause() {
    this.stop();
    this.tell("paused");
    for (const resource of this.resources) resource.hold();
  }

  resume() {
    this.tell("connecting");
    this.touchAll();
    this.start();
  }

  /** Hidden pages give their connection back; seen again, they go on where they were. */
  seen() {
    if (document.hidden) {
      this.stop();
    } else if (this.state !== "paused") {
      this.touchAll();
      this.start();
    }
  }

  retryNow() {
    if (this.state === "gone") {
      clearTimeout(this.timer);
      this.failures = 0;
      this.start();
    }
  }

  look() {
    if (document.hidden) return;
    const quietMs = Date.now() - Math.max(this.heardAt, this.askedAt);
    if (this.state === "live" && quietMs > SILENT_MS) this.tell("silent");
    if (this.stopper && quietMs > LOST_MS) this.stopper.abort();
    this.onChange();
  }

  tell(state) {
    if (state === this.state) return;
    if (state === "gone") this.goneSince = this.goneSince || Date.now();
    if (state === "live") this.goneSince = 0;
    this.state = state;
    this.onChange();
  }

  async run() {
    const stopper = (this.stopper = new AbortController());
    this.askedAt = Date.now();
    try {
      const headers = this.last ? { "Last-Event-ID": this.last } : {};
      const response = await api.open("/v1/stream?every=250ms", stopper.signal, headers);
      const was = this.goneSince; // what was asked for meanwhile got no answer, and what still waits for one will get none
      this.failures = 0;
      this.heard();
      if (was || !this.last) for (const resource of this.resources) resource.refresh();
      await this.read(response.body.getReader());
    } catch (error) {
      if (error.status === 410) {
        this.last = ""; // too long away: all of it is read anew
        this.failures = -1;
      }
      if (error.status === 401) {
        this.stopper = null;
        return;
      }
    }
    const byHand = this.stopper !== stopper;
    if (byHand) return;
    this.stopper = null;
    if (document.hidden || this.state === "paused") return;
    this.failures += 1;
    if (this.failures > 0) this.tell("gone");
    this.timer = setTimeout(() => this.start(), RETRY_MS[Math.min(Math.max(this.failures - 1, 0), RETRY_MS.length - 1)]);
  }

  heard() {
    this.heardAt = Date.now();
    this.tell("live");
  }

  async read(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      this.heard();
      rest += decoder.decode(value, { stream: true });
      const frames = rest.split("\n\n");
      rest = frames.pop();
      for (const frame of frames) this.take(frame);
    }
  }

  take(frame) {
    let kind = "";
    let data = "";
    let id = "";
    for (const line of frame.split("\n")) {
      if (line.startsWith("event: ")) kind = line.slice(7);
      else if (line.startsWith("data: ")) data = line.slice(6);
      else if (line.startsWith("id: ")) id = line.slice(4);
    }
    if (id) this.last = id;
    if (kind === "changes") this.changed(JSON.parse(data));
    else if (kind === "stream.ended") this.ended(JSON.parse(data).reason);
  }

  ended(reason) {
    if (reason === "gone") this.last = "";
    else if (reason === "forbidden" || reason === "unauthorized") this.onJudged();
  }

  changed(changes) {
    for (const n of Object.values(changes.kinds)) this.eventsSeen += n;
    for (const resource of this.resources) {
      if (changes.whole || resource.isTouched(changes)) resource.touch();
    }
  }

  touchAll() {
    for (const resource of this.resources) resource.touch();
  }

  /** `topics`: what it hangs on; `id`: only that task; `everyMs`: read at least so often; `slowMs`: and not more often; `counts`: takes longer the more tasks there are. */
  watch(address, options = {}) {
    const resource = new Resource(this, address, options);
    this.resources.add(resource);
    resource.refresh();
    return resource;
  }
}

class Resource {
  constructor(live, address, { topics = [], id, everyMs = 0, slowMs = EVERY_MS, counts = false, onData = () => {} }) {
    Object.assign(this, { live, address, topics, id, everyMs, slowMs, onData });
    [this.costlyMs, this.share] = counts ? [0, 2 * SHARE] : [COSTLY_MS, SHARE];
    this.data = undefined;
    this.error = undefined;
    this.failed = false;
    this.at = 0;
    this.tookMs = [0, 0]; // the last time, and the time before
    this.readAt = -Infinity;
    this.dirty = false;
    this.behindSince = 0; // the first change that is not seen here yet
    this.stopper = null;
    this.timer = 0;
    this.idle = 0;
  }

  isTouched(changes) {
    if (!this.topics.some((topic) => changes.topics.includes(topic))) return false;
    return this.id === undefined || !changes.topics.includes("task") || changes.ids === null || changes.ids.includes(this.id);
  }

  /** Another address: what was read before is not of it, and is forgotten unless it may stand until the new one is there. */
  move(address, { keep = false } = {}) {
    if (address === this.address) return;
    this.address = address;
    this.tookMs = [0, 0];
    this.error = undefined;
    if (!keep) this.data = undefined;
    this.refresh();
  }

  /** Now, also on a page that is held still, for a person asked; whatever was under way is of no interest any more. */
  refresh() {
    this.stopper?.abort();
    this.stopper = null;
    clearTimeout(this.timer);
    this.dirty = true;
    this.timer = setTimeout(() => this.read(), 0);
  }

  /** What is seen stays as it is; what is not there yet still comes. */
  hold() {
    if (this.data === undefined) return;
    clearTimeout(this.timer);
    this.timer = 0;
    this.stopper?.abort();
    this.stopper = null;
  }

  touch(isChanged = true) {
    this.dirty = true;
    if (isChanged) this.behindSince ||= Date.now();
    if (this.stopper || this.timer || this.live.state === "paused") return;
    this.timer = setTimeout(() => this.read(), Math.max(0, this.readAt + this.restMs() - performance.now()));
  }

  restMs() {
    const [took, before] = this.tookMs;
    const least = Math.max(this.slowMs, this.failed ? AGAIN_MS : 0);
    if (Math.min(took, before) > this.costlyMs) return Math.max(least, Math.min(COSTLIEST_MS, Math.min(took, before) * this.share));
    return Math.max(least, Math.min(this.id === undefined ? SLOWEST_MS : OWN_MS, took * SHARE * this.live.resources.size));
  }

  async read() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.dirty = false;
    const stopper = (this.stopper = new AbortController());
    const [began, beganAt] = [performance.now(), Date.now()];
    const patience = setTimeout(() => stopper.abort(), ANSWER_MS);
    let nodeMs = null;
    try {
      const [data, tookMs] = await api.timed(this.address, stopper.signal);
      nodeMs = tookMs;
      if (this.stopper !== stopper) return;
      this.data = data;
      this.error = undefined;
      this.failed = false;
      this.at = Date.now();
      this.behindSince = this.dirty ? beganAt : 0;
      this.onData(data);
    } catch (error) {
      if (this.stopper !== stopper) return;
      this.failed = true;
      const answered = error.status > 0; // without an answer the frame says that the node is gone
      if (answered) this.error = error;
      if (!answered || error.status === 429 || error.status >= 500) this.dirty = true;
    } finally {
      clearTimeout(patience);
    }
    this.tookMs = [nodeMs ?? performance.now() - began, this.tookMs[0]];
    this.readAt = performance.now();
    this.stopper = null;
    this.live.onChange();
    if (this.dirty && this.live.state !== "gone") this.touch();
    if (this.everyMs) this.later();
  }

  /** Read again when nothing has asked for it meanwhile. */
  later() {
    clearTimeout(this.idle);
    this.idle = setTimeout(() => (this.live.state === "live" ? this.touch(false) : this.later()), this.everyMs);
  }

  stop() {
    this.stopper?.abort();
    this.stopper = null;
    clearTimeout(this.timer);
    clearTimeout(this.idle);
    this.live.resources.delete(this);
  }
}
