// Going through many slices one after the other: pages are fetched as they are reached. Knows no DOM.

const PAGE = 200;

export class Steps {
  /** @param {(offset: number, limit: number) => Promise<{total: number, slices: object[]}>} fetchPage slices by start */
  constructor(fetchPage) {
    this.fetchPage = fetchPage;
    this.total = null;          // null: not known yet
    this.index = -1;
    this.pages = new Map();
  }

  /** Slices that are here, in order. */
  get known() { return [...this.pages].sort((a, b) => a[0] - b[0]).flatMap(([, slices]) => slices); }

  get current() { return this.pages.get(Math.floor(this.index / PAGE))?.[this.index % PAGE] ?? null; }

  async page(number) {
    if (!this.pages.has(number)) {
      const answer = await this.fetchPage(number * PAGE, PAGE);
      this.total = answer.total;
      this.pages.set(number, answer.slices);
    }
    return this.pages.get(number);
  }

  /** The first slice that starts at or after a moment; -1 stands before the first step. @returns {Promise<number>} */
  async load() {
    await this.page(0);
    return this.total;
  }

  /** One further (+1) or back (-1), around the ends. @returns {Promise<?object>} */
  async step(direction) {
    if (this.total === null) await this.load();
    if (!this.total) return null;
    this.index = this.index < 0 ? (direction > 0 ? 0 : this.total - 1) : (this.index + direction + this.total) % this.total;
    const slices = await this.page(Math.floor(this.index / PAGE));
    return slices[this.index % PAGE] ?? null;
  }

  /** "3 / 120" */
  get text() { return this.total === null ? "…" : `${this.index < 0 ? "–" : (this.index + 1).toLocaleString("en-US")} / ${this.total.toLocaleString("en-US")}`; }
}
