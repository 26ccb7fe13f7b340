// Search over the slices of the whole trace: hits in order of time, fetched a page at a time. Knows no DOM.

const PAGE = 1000;

export class Search {
  /** @param {import("./tiles.js").Api} api @param {() => void} onChange */
  constructor(api, onChange) {
    this.api = api;
    this.onChange = onChange;
    this.reset("");
  }

  reset(query) {
    this.controller?.abort();
    this.query = query;
    this.total = null;          // null: not known yet
    this.index = -1;            // hit that is selected
    this.pages = new Map();
    this.error = null;
  }

  /** Look for a text; an empty one ends the search. @returns {Promise<void>} */
  async set(query) {
    const text = query.trim();
    if (text === this.query && !this.error) return this.ready;
    this.reset(text);
    this.onChange();
    if (!text) return undefined;
    this.ready = this.page(0).then(() => undefined, () => undefined);
    return this.ready;
  }

  async page(number) {
    if (this.pages.has(number)) return this.pages.get(number);
    const query = this.query;
    this.controller ??= new AbortController();
    if (this.controller.signal.aborted) this.controller = new AbortController();
    try {
      const answer = await this.api.slices({ q: query, limit: PAGE, offset: number * PAGE }, this.controller.signal);
      if (query !== this.query) return [];
      this.total = answer.total;
      this.pages.set(number, answer.slices);
      this.onChange();
      return answer.slices;
    } catch (error) {
      if (error.name !== "AbortError" && query === this.query) {
        this.error = error;
        this.onChange();
      }
      throw error;
    }
  }

  /** Hits that are here, for the strip above the tracks. */
  get hits() { return [...this.pages.values()].flat(); }

  /** "3 / 120", "no hits", "…" */
  get text() {
    if (!this.query) return "";
    if (this.error) return "failed";
    if (this.total === null) return "…";
    if (!this.total) return "no hits";
    return `${this.index < 0 ? "–" : (this.index + 1).toLocaleString("en-US")} / ${this.total.toLocaleString("en-US")}`;
  }

  /**
   * The next (+1) or previous (-1) hit; the first step starts from a time.
   * @returns {Promise<?object>} the hit, null when there is none
   */
  async step(direction, fromNs) {
    await this.ready;
    if (!this.total) return null;
    if (this.index < 0) this.index = await this.nearest(direction, fromNs);
    else this.index = (this.index + direction + this.total) % this.total;
    const page = await this.page(Math.floor(this.index / PAGE));
    this.onChange();
    return page[this.index % PAGE] ?? null;
  }

  /** Index of the first hit that starts at or after a time (or the last before it). */
  async nearest(direction, fromNs) {
    let before;
    if (this.total <= PAGE) before = (await this.page(0)).filter((hit) => hit.start_ns < fromNs).length;
    else before = this.total - (await this.api.slices({ q: this.query, limit: 1, start: Math.ceil(fromNs) })).total;
    return (direction > 0 ? before : before - 1 + this.total) % this.total;
  }
}
