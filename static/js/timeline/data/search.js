// Search over the slices of the whole trace: hits in order of time, a page at a time, counted by the server. Knows no DOM.

const PAGE = 1000;
const STRIP_BINS = 512;
const AGAIN_MS = 250;           // the server counts about a second of work at a time and goes on when asked again

export const MODES = ["name", "regex", "argument"];

/** "stream:7" and "stream=7" ask the same; a colon inside a value stays. */
export function argumentQuery(text) {
  const found = /^([^:=<>]+):(.*)$/s.exec(text);
  return found ? `${found[1].trim()}=${found[2].trim()}` : text;
}

export class Search {
  /** @param {import("./tiles.js").Api} api @param {() => void} onChange */
  constructor(api, onChange) {
    this.api = api;
    this.onChange = onChange;
    this.mode = "name";
    this.reset("");
  }

  reset(query) {
    this.controller?.abort();
    clearTimeout(this.timer);
    this.query = query;
    this.total = null;          // null: not known yet
    this.complete = true;
    this.names = null;          // ids of the names that match; null: not a matter of names
    this.index = -1;            // hit that is selected
    this.current = null;        // that hit
    this.pages = new Map();
    this.strip = null;          // hits per part of the trace
    this.error = null;
  }

  /** Look for a text; an empty one ends the search. @returns {Promise<void>} */
  async set(query, mode = this.mode) {
    const text = query.trim();
    if (text === this.query && mode === this.mode && !this.error) return this.ready;
    this.reset(text);
    this.mode = mode;
    this.onChange();
    if (!text) return undefined;
    this.controller = new AbortController();
    this.ready = this.page(0).then(() => { this.count(); }, () => undefined);
    return this.ready;
  }

  get parameters() {
    return { q: this.mode === "argument" ? argumentQuery(this.query) : this.query, mode: this.mode === "name" ? undefined : this.mode };
  }

  /** Ask for where the hits lie until the server has counted to the end; then their order in time is known, too. */
  async count() {
    const { signal } = this.controller, wasComplete = this.complete;
    if (this.total === null) return;
    const strip = await this.api.hits({ ...this.parameters, bins: STRIP_BINS }, signal).catch(() => null);
    if (signal.aborted) return;
    if (strip) Object.assign(this, { strip: strip.bins, total: strip.total, complete: strip.complete });
    this.onChange();
    if (!this.complete) this.timer = setTimeout(() => this.count(), AGAIN_MS);
    else if (!wasComplete) await this.renew();
  }

  /** Read the hits again that were read before all were counted. */
  async renew() {
    this.pages.clear();
    await this.page(0).catch(() => undefined);
    if (this.current) this.index = await this.before(this.current.start_ns).catch(() => -1);
    this.onChange();
  }

  async page(number) {
    if (this.pages.has(number)) return this.pages.get(number);
    const { signal } = this.controller;
    try {
      const answer = await this.api.slices({ ...this.parameters, limit: PAGE, offset: number * PAGE }, signal);
      if (signal.aborted) return [];
      Object.assign(this, { total: answer.total, complete: answer.complete ?? true });
      if (number === 0) this.names = answer.names ?? null;
      this.pages.set(number, answer.slices);
      this.onChange();
      return answer.slices;
    } catch (error) {
      if (error.name !== "AbortError" && !signal.aborted) {
        this.error = error;
        this.onChange();
      }
      throw error;
    }
  }

  /** Hits that are here. */
  get hits() { return [...this.pages.values()].flat(); }

  /** "3 / 120", "3 / 4,000…" while it is counted, "no hits", "…" */
  get text() {
    if (!this.query) return "";
    if (this.error) return this.error.status === 400 ? "not valid" : "failed";
    if (this.total === null) return "…";
    if (!this.total) return this.complete ? "no hits" : "none yet…";
    const total = `${this.total.toLocaleString("en-US")}${this.complete ? "" : "…"}`;
    return `${this.index < 0 ? "–" : (this.index + 1).toLocaleString("en-US")} / ${total}`;
  }

  /**
   * The next (+1) or previous (-1) hit; the first step starts from a time.
   * @returns {Promise<?object>} the hit, null when there is none
   */
  async step(direction, fromNs) {
    await this.ready;
    if (!this.total) return null;
    const index = this.index < 0 ? await this.nearest(direction, fromNs) : (this.index + direction + this.total) % this.total;
    return this.select(index);
  }

  /** The first hit at or after a time, else the last. @returns {Promise<?object>} */
  async goTo(ns) {
    await this.ready;
    return this.total ? this.select(Math.min(await this.before(ns), this.total - 1)) : null;
  }

  async select(index) {
    this.index = index;
    const page = await this.page(Math.floor(index / PAGE));
    this.current = page[index % PAGE] ?? null;
    this.onChange();
    return this.current;
  }

  /** Index of the first hit that starts at or after a time (or the last before it). */
  async nearest(direction, fromNs) {
    const before = await this.before(fromNs);
    return (direction > 0 ? before : before - 1 + this.total) % this.total;
  }

  /** How many hits start before a time. */
  async before(ns) {
    if (this.total <= PAGE) return (await this.page(0)).filter((hit) => hit.start_ns < ns).length;
    return (await this.api.slices({ ...this.parameters, limit: 1, around: Math.ceil(ns) }, this.controller.signal)).before;
  }
}
