// The critical path over the tracks: which one is shown (part of the URL), its segments for the window, its words.

import { ns as nsText } from "../../lib/units.js";
import { registerKey } from "../model/url.js";

const SETTLE_MS = 250;
const MARGIN = 0.5;             // of the window, asked for beyond each edge

registerKey("path", { get: (app) => app.critical.key, set: (app, text) => app.critical.restore(/^(whole|step)(-\d{1,6})?$/.test(text ?? "") ? text : null) });

export class Critical {
  /** @param {import("../app.js").App} app */
  constructor(app, button) {
    Object.assign(this, { app, button, key: null, answer: null, shown: null, timer: 0 });
    this.commands = { path: () => this.toggle(), "path-next": () => this.step(1), "path-previous": () => this.step(-1) };
    button.addEventListener("click", () => this.toggle());
  }

  restore(key) {
    if (key !== this.key) this.set(key, false);
  }

  toggle() { this.set(this.key ? null : "whole", true); }

  /** The next of the paths: of the whole run, then of each step; its window. */
  step(direction) {
    const { answer } = this;
    if (!answer) { this.set("whole", true); return; }
    const at = answer.paths.findIndex((each) => each.key === this.key), next = answer.paths[(at + direction + answer.paths.length) % answer.paths.length];
    this.set(next.key, true);
    this.app.go(...this.app.viewport.around(next.start_ns, next.end_ns, 0.05));
  }

  set(key, told) {
    this.key = key;
    this.shown = null;
    if (!key) this.answer = null;
    this.button.setAttribute("aria-pressed", String(Boolean(key)));
    this.app.changed("overlay");
    this.told = told;
    this.isNew = true;
    if (key) this.ask();
    if (told) this.app.history.remember();
  }

  /** The view moved: what it shows now may be beyond what was asked for. */
  viewed() {
    if (!this.key) return;
    const { viewport } = this.app, { shown } = this;
    const isCovered = shown && shown.start <= viewport.start && shown.end >= viewport.end && (this.answer?.exact || shown.span <= viewport.span * 2.5);
    if (!isCovered) { clearTimeout(this.timer); this.timer = setTimeout(() => this.ask(), SETTLE_MS); }
  }

  async ask() {
    const { app, key } = this, { viewport } = app, span = viewport.end - viewport.start;
    const start = Math.max(Math.floor(viewport.start - MARGIN * span), 0), end = Math.ceil(viewport.end + MARGIN * span);
    this.fetching?.abort();
    this.fetching = new AbortController();
    try {
      const answer = await app.api.criticalPath({ path: key, start, end }, this.fetching.signal);
      if (key !== this.key) return;
      this.answer = answer;
      this.shown = { start, end, span: end - start };
      app.changed("overlay");
      if (this.isNew) this.bring();
      this.isNew = false;
      if (this.told) this.tell();
      this.told = false;
    } catch (error) {
      if (error.name === "AbortError" || key !== this.key) return;
      this.set(null, true);
      app.say(`No critical path: ${error.message}`, true);
    }
  }

  /** The track that the path is on longest comes into view: of many ranks it may be far below. */
  bring() {
    const spent = new Map();
    for (const [track, , start, end] of this.answer.segments) spent.set(track, (spent.get(track) ?? 0) + end - start);
    const [track] = [...spent].sort((a, b) => b[1] - a[1])[0] ?? [];
    if (track !== undefined) this.app.stage.reveal(track, 0);
  }

  tell() {
    const { path, paths } = this.answer;
    this.app.say(`Critical path of ${path.label}: ${nsText(path.end_ns - path.start_ns)}. Solid: work and host; dashed: waits.${paths.length > 1 ? " R: the next path." : ""}`, true);
  }

  /** For the painter. */
  get drawn() { return this.key && this.answer ? this.answer : null; }
}
