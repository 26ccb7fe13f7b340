// What is selected (a slice or an area), the panel that tells about it, and the ways from one slice to another.

import { ApiError } from "../../lib/http.js";
import { AreaPanel } from "./area.js";
import { sliceDetails } from "./details.js";
import { el, part } from "../widgets/dom.js";
import { launchesCard } from "./launches_card.js";

const JUMP_SPANS = 60;          // a slice too small to see is shown with this many of its durations
const JUMP_MIN_NS = 200;

export class Chosen {
  /** @param {import("../app.js").App} app */
  constructor(app, root) {
    this.app = app;
    this.kernelUrl = (id) => root.dataset.kernelUrl.replace("/0/", `/${id}/`);
    this.panel = part(root, "tl-panel");
    this.body = part(root, "tl-panel-body");
    this.slice = this.area = null;
    /** Slices that stand out, by start; the one with `current` most. @type {object[]} */
    this.highlights = [];
    /** Names of a highlighted row, a byte per name id: all others are dimmed. @type {?Uint8Array} */
    this.match = null;
    this.areaPanel = new AreaPanel(app, this);
  }

  /** Start and end of what is selected, or null. */
  get span() {
    if (this.slice) return { start: this.slice.start_ns, end: this.slice.start_ns + this.slice.dur_ns };
    return this.area ? { start: this.area.start, end: this.area.end } : null;
  }

  signal() {
    this.fetching?.abort();
    this.fetching = new AbortController();
    return this.fetching.signal;
  }

  /** Select a slice (or nothing) and show what the server knows about it. @returns {Promise<?object>} */
  async select(slice, push = true) {
    const { app } = this, signal = this.signal();
    this.slice = slice;
    this.area = null;
    this.setHighlights([]);
    this.setMatch([]);
    app.changed("ruler");
    if (push) app.history.remember(true);
    if (!slice) {
      this.show(null);
      return null;
    }
    try {
      const full = await app.api.slice(slice.id, signal, app.viewport);
      const merged = slice.merged ?? 0;
      this.slice = { ...full, merged };
      const context = { kernelUrl: this.kernelUrl, jump: (link) => this.jump(link), zoom: () => app.fit(), merged };
      this.show(sliceDetails(full, { ...context, more: launchesCard(full, app.api, signal, { ...context, all: () => this.selectName(full) }) }));
      app.changed("tracks");
      return this.slice;
    } catch (error) {
      return this.failed(error, () => this.select(slice, false));
    }
  }

  /** @param {{start: number, end: number, tracks: number[]}} area @param {boolean} done false while it is being drawn */
  async selectArea(area, done, push = true, keepRow = false) {
    const { app } = this, signal = this.signal();
    this.slice = null;
    this.area = area;
    this.setHighlights([]);
    this.setMatch([]);
    app.changed("ruler");
    if (!done) return;
    if (push) app.history.remember(true);
    await this.areaPanel.open(area, signal, keepRow);
  }

  /** @param {object[]} slices by start @param {?object} current the one that stepping is at */
  setHighlights(slices, current = null) {
    if (!slices.length && !this.highlights.length) return;
    this.highlights = slices.map((slice) => (slice.id === current?.id ? { ...slice, current: true } : slice));
    this.app.changed("overlay");
  }

  /** @param {number[]} names ids of the names that are not dimmed; none: nothing is */
  setMatch(names) {
    if (!names.length && !this.match) return;
    this.match = names.length ? this.app.timeline.matchIds(names) : null;
    this.app.changed("tracks");
  }

  /** Every slice of one name in the whole trace, as a selection whose row it is. */
  selectName(slice) {
    const { app } = this, tracks = app.timeline.meta.tracks.filter((track) => track.slices > 0).map((track) => track.id);
    Object.assign(this.areaPanel.state, { tab: "histogram", row: [slice.name_key], range: null });
    this.areaPanel.rowName = slice.name;
    return this.selectArea({ start: app.timeline.startNs, end: app.timeline.endNs + 1, tracks }, true, true, true);
  }

  /** @param {object} view of an address @param {boolean} glide a page that opens on a slice has nothing to glide from */
  async restore(view, glide = true) {
    const tracks = view.area?.tracks.filter((id) => this.app.timeline.tracks.has(id));
    if (tracks?.length) return this.selectArea({ ...view.area, tracks }, true, false, true);
    if (view.slice === null) return this.select(null, false);
    if (view.slice === this.slice?.id) return undefined;
    const { app } = this, goes = !view.window;
    if (goes && !glide) app.tiles.hold(true); // of the whole window nothing finer will be seen
    const slice = await this.select({ id: view.slice, track: -1, depth: 0, start_ns: 0, dur_ns: 0 }, false);
    if (slice && goes) { // its panel is open: it needs no second answer of the server
      this.bring(slice, glide);
      app.history.remember();
    }
    app.tiles.hold(false);
    app.changed("tracks");
    return undefined;
  }

  show(content) {
    this.panel.hidden = !content;
    this.body.replaceChildren(...(content ? [content] : []));
    this.body.scrollTop = 0;
    this.app.stage.measure();
  }

  /** To the table, the drawing or the first button of the panel. */
  focusPanel() {
    if (this.panel.hidden) return;
    const first = [".tabulator-tableholder", "canvas[tabindex]", ".tl-details a, .tl-details button", "button"].map((each) => this.body.querySelector(each)).find(Boolean);
    first?.focus();
  }

  failed(error, again) {
    if (error.name === "AbortError") return null;
    const hint = error instanceof ApiError && error.hint ? ` ${error.hint}` : "";
    this.show(el("p", { class: "notice notice-error", role: "alert" }, `${error.message}.${hint} `, el("button", { class: "btn btn-small", type: "button", onclick: again }, "Try again")));
    return null;
  }

  resize(y, relative) {
    const box = this.panel.getBoundingClientRect();
    const height = relative ? box.height - y : box.bottom - y;
    this.panel.style.height = `${Math.min(Math.max(height, 90), this.panel.parentElement.clientHeight * 0.75)}px`;
  }

  /** Bring a slice into view without selecting it. */
  bring(slice, glide = true) {
    const { app } = this, { viewport } = app, end = slice.start_ns + slice.dur_ns;
    const lane = app.timeline.kernelLane(slice);
    app.tracks.uncover(lane?.id ?? slice.track);
    const tooSmall = slice.dur_ns / viewport.nsPerPx < 3;
    if (slice.dur_ns > 0.9 * viewport.span) app.go(...viewport.around(slice.start_ns, end), false, glide);
    else if (tooSmall || slice.start_ns < viewport.start || end > viewport.end) {
      const span = tooSmall ? Math.max(slice.dur_ns * JUMP_SPANS, JUMP_MIN_NS) : viewport.span;
      const middle = slice.start_ns + slice.dur_ns / 2;
      app.go(middle - span / 2, middle + span / 2, false, glide);
    }
    this.reveal(slice);
  }

  reveal(slice) {
    const { app } = this, lane = app.timeline.kernelLane(slice);
    app.stage.reveal(lane?.id ?? slice.track, lane ? 0 : slice.depth);
  }

  /** Select a slice and bring it into view; `push` makes it a step of the browser's history. */
  async jump(slice, push = true) {
    const { app } = this;
    this.bring(slice);
    const full = await this.select(slice, push);
    if (!push) app.history.remember();
    this.reveal(full ?? slice);                     // the panel may have opened over it
    app.changed("tracks");
    return full;
  }
}
