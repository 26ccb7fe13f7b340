// Follows one job by snapshots: documents of which the server made every part at one moment. One is asked for at a time, at most
// twice a second, and painted as a whole. What the socket tells is only that there is something new.

import { getJson } from "../lib/http.js";

/** @typedef {import("./trials.js").Trial} Trial */
/** @typedef {{status: string, asked: ""|"stop"|"pause", ended: boolean, most: number, seconds: number, default_ms: number|null, library_ms: number|null}} State */
/** @typedef {{version: number, stamp: string, last: number, state: State, parts?: Record<string, string>}} Snapshot */

const LEAST_MS = 500; // between two snapshots …
const SHARE = 5; // … and so many times what one took: a busy server is asked less often
const LOOK_MS = 5000; // a worker that died tells nobody

export class Snapshots {
  /** @param {string} url @param {Snapshot} first what the page shows already @param {(snapshot: Snapshot, trials: Trial[]) => void} paint */
  constructor(url, first, paint) {
    Object.assign(this, { url, paint, shown: first });
    /** @type {Trial[]} */
    this.trials = [];
    this.due = 0; // when the next one may be asked for
    this.timer = 0;
    this.reading = false;
    this.wanted = false;
    this.failed = 0;
  }

  /** Something is new: a snapshot as soon as one may be asked for. */
  ask() {
    this.wanted = true;
    if (this.reading) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.read(), Math.max(0, this.due - performance.now()));
  }

  async read() {
    this.reading = true;
    this.wanted = false;
    const began = performance.now();
    try {
      const [snapshot, trials] = await this.collect();
      this.failed = 0;
      if (snapshot.version >= this.shown.version) { // else another process of the server answered with an older one
        this.trials = trials;
        this.shown = snapshot;
        this.paint(snapshot, trials);
      } else this.wanted = true;
    } catch (error) {
      this.failed += 1;
      if (error.name !== "ApiError") console.error(error);
    }
    this.due = began + Math.max(LEAST_MS, SHARE * (performance.now() - began), LEAST_MS * 2 ** Math.min(this.failed, 5));
    this.reading = false;
    if (this.wanted || this.failed) this.ask();
    else if (!this.shown.state.ended) this.timer = setTimeout(() => this.read(), LOOK_MS);
  }

  /** @returns {Promise<[Snapshot, Trial[]]>} */
  async collect() {
    let trials = this.trials;
    for (;;) {
      const answer = await getJson(`${this.url}?after=${trials.length ? trials[trials.length - 1].number : -1}&stamp=${this.shown.stamp}`);
      if (answer.trials.length) trials = trials.concat(answer.trials); // the same list where nothing came: pictures know it by that
      if (!answer.more) return [answer, trials];
    }
  }
}
