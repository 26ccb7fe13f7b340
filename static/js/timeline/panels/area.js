// The panel of a selected area: its table, histogram and flame graph; a row of the table is highlighted and stepped through.

import { getStream } from "../../lib/http.js";
import { ns } from "../../lib/units.js";
import { say, TABS, take, usual } from "../model/area_state.js";
import { byChooser, groupTable } from "./area_table.js";
import { el } from "../widgets/dom.js";
import { flameView } from "./flame.js";
import { histogramView } from "./histogram_view.js";
import { areaChips, selectionChips } from "./selection.js";
import { Steps } from "../data/steps.js";
import { tabs } from "../widgets/tabs.js";
import { registerKey } from "../model/url.js";
import { exactNs } from "../model/viewport.js";
import { working } from "../widgets/working.js";

const NEAR_LIMIT = 500;         // slices of a row outlined in view
const NEAR_SHARE = 0.5;         // of the area: a wider view shows them by dimming the others

for (const key of Object.keys(say)) {
  registerKey(key, { get: (app) => (app.chosen.area ? say[key](app.chosen.areaPanel.state) : null), set: (app, text) => take[key](app.chosen.areaPanel.state, text) });
}

export class AreaPanel {
  /** @param {import("../app.js").App} app @param {import("./chosen.js").Chosen} chosen */
  constructor(app, chosen) {
    this.app = app;
    this.chosen = chosen;
    this.state = usual();
    this.columns = null;
  }

  /** Show another area; what was asked of the last one (columns, tab) is asked of it too, its row is let go. */
  open(area, signal, keepRow) {
    Object.assign(this, { area, signal, answer: null, steps: null });
    if (!keepRow) Object.assign(this.state, { row: [], range: null, flame: { ...this.state.flame, focus: null } });
    this.tabs = tabs(TABS, "What to show of the selection", (tab) => this.show(tab));
    this.head = el("div", { class: "tl-chips" }, areaChips(area));
    this.rowBar = el("div", { class: "tl-row-bar" });
    const span = area.end - area.start;
    const element = el("div", { class: "tl-area" },
      el("header", { class: "tl-panel-head" }, el("h2", {}, el("span", { class: "num", title: exactNs(span) }, ns(span)), " selected"), this.head, this.tabs.element,
        el("button", { class: "btn btn-small", type: "button", onclick: () => this.app.fit() }, "Zoom to it (F)")),
      this.rowBar, this.tabs.panel);
    this.tabs.select(this.state.tab);
    this.chosen.show(element);
    this.tellRow();
    if (this.state.row.length || this.state.range) this.highlight();
    return this.fill();
  }

  url(path, more = {}, narrowed = true) {
    const { area, state } = this, [least, most] = (narrowed && state.range) || [];
    const plain = this.app.api.url(`selection/${path}`, { start: area.start, end: area.end, tracks: area.tracks.join(","), least_ns: least, most_ns: most, ...more });
    return narrowed ? plain + state.row.map((each) => `&where=${encodeURIComponent(each)}`).join("") : plain;
  }

  ask(url, what, host) {
    return working(host, what, this.signal, (signal, onProgress) => getStream(`${url}&stream=1`, { signal, onProgress }));
  }

  nextTab(direction) { if (this.chosen.area) this.tabs.next(direction); }

  show(tab) {
    this.state.tab = tab;
    this.app.history.remember();
    return this.fill();
  }

  /** Load and show what the tab holds. */
  async fill() {
    const { signal, state: { tab } } = this, host = this.tabs.panel;
    const content = await { table: () => this.table(host), histogram: () => this.histogram(host), flame: () => this.flame(host) }[tab]();
    if (signal.aborted || tab !== this.state.tab || !content) return;
    host.replaceChildren(content);
    this.drawn = content;
    content.onShown?.();
  }

  async table(host) {
    this.columns ??= this.app.api.getJson(this.app.api.url("selection/columns/")).then(({ columns }) => columns);
    const { by, range } = this.state;
    const url = this.url("", {}, false) + (range ? `&least_ns=${range[0]}&most_ns=${range[1]}` : "") + by.map((key) => `&by=${encodeURIComponent(key)}`).join("");
    const [answer, columns] = await Promise.all([this.ask(url, "Summing up the selection", host), this.columns]);
    if (!answer) return null;
    const gpuTracks = this.area.tracks.filter((id) => this.app.timeline.tracks.get(id)?.kind === "stream").length;
    this.head.replaceChildren(...selectionChips(answer, gpuTracks));
    const chooser = byChooser(columns, by, (next) => { this.state.by = next; this.state.row = []; this.chose(); });
    return groupTable(answer, { columns, chooser, dataUrl: url, pick: (row) => { this.state.row = row.key; this.chose(row); } });
  }

  async histogram(host) {
    const url = this.url("histogram/", { least_ns: undefined, most_ns: undefined });
    const answer = await this.ask(url, "Counting durations", host);
    return answer && histogramView(answer, {
      paint: () => this.paint(), range: this.state.range, title: this.state.row.length ? "the row's slices" : "the selection",
      choose: (range) => { this.state.range = range; this.tellRow(); this.highlight(); this.app.history.remember(); },
    });
  }

  async flame(host) {
    const { flame } = this.state, kinds = new Set(this.area.tracks.map((id) => this.app.timeline.tracks.get(id)?.kind));
    const mode = flame.mode ?? (kinds.has("thread") || !kinds.has("stream") ? "cpu" : "gpu");
    const answer = await this.ask(this.url("flame/", { mode, merged: !flame.apart, focus: flame.focus ?? undefined }), "Adding up stacks", host);
    const name = (id) => { const track = this.app.timeline.tracks.get(id); return track ? `${track.group} / ${track.name}` : `track ${id}`; };
    return answer && flameView(answer, {
      state: flame, paint: () => this.paint(), trackName: name, find: (text) => this.app.controls.lookFor(text),
      change: (next) => { this.state.flame = next; this.app.history.remember(); this.fill(); },
    });
  }

  paint() {
    const { palette, font, charPx } = this.app;
    return { palette, font, charPx, dpr: devicePixelRatio || 1, units: { ns } };
  }

  /** Colours changed: what is on a canvas of the panel is painted anew. */
  repaint() { if (this.drawn?.isConnected) this.fill(); }

  /** Another row or other columns. */
  chose(row = null) {
    this.app.history.remember();
    this.rowName = row?.title ?? null;
    this.tellRow();
    this.highlight();
    if (!row) this.fill();
  }

  /** The slices of the row (or of the range of durations), for the timeline and for stepping. */
  async highlight() {
    const { signal, state } = this;
    this.chosen.setHighlights([]);
    this.chosen.setMatch(state.row.map((key) => /^name:(\d+)$/.exec(key)).filter(Boolean).map((found) => Number(found[1])));
    this.steps = this.near = null;
    if (!state.row.length && !state.range) return;
    const steps = new Steps(async (offset, limit) => getStream(`${this.url("slices/", { offset, limit })}&stream=1`, { signal }));
    this.steps = steps;
    await steps.load().catch((error) => { if (!signal.aborted) this.tellRow(error.message); });
    if (signal.aborted || this.steps !== steps) return;
    this.light();
    this.tellRow();
    this.viewed();
  }

  /** Outline what is known of the row: the pages that were stepped through and what is in view. */
  light() {
    const { steps, near } = this, all = new Map([...steps.known, ...(near?.slices ?? [])].map((slice) => [slice.id, slice]));
    this.chosen.setHighlights([...all.values()].sort((a, b) => a.start_ns - b.start_ns), steps.current);
  }

  /** The view has come to rest: of a row with many slices, those in view are fetched. */
  async viewed() {
    const { steps, signal, area, app: { viewport } } = this;
    if (!steps || !(steps.total > steps.known.length)) return;
    const start = Math.max(Math.floor(viewport.start), area.start), end = Math.min(Math.ceil(viewport.end), area.end), key = `${start}-${end}`;
    if (key === this.near?.key || end <= start || end - start > NEAR_SHARE * (area.end - area.start)) return;
    this.near = { key, slices: [] };
    const { near } = this;
    const { slices } = await getStream(`${this.url("slices/", { start, end, limit: NEAR_LIMIT })}&stream=1`, { signal }).catch(() => ({ slices: [] }));
    if (signal.aborted || this.steps !== steps || this.near !== near) return;
    near.slices = slices;
    this.light();
  }

  /** To the next (+1) or previous (-1) slice of the row. */
  async step(direction) {
    const { steps, signal } = this;
    if (!steps) return;
    const slice = await steps.step(direction).catch(() => null);
    if (!slice || signal.aborted || this.steps !== steps) return;
    this.light();
    this.chosen.bring(slice);
    this.tellRow();
    this.app.say?.(`${steps.text}: ${ns(slice.dur_ns)}`);
  }

  /** The line about the row: which it is, where one stands in it. */
  tellRow(problem = "") {
    const { state, steps } = this, { row, range } = state;
    this.rowBar.hidden = !row.length && !range;
    const button = (text, title, run, off = false) => el("button", { class: "btn btn-small", type: "button", title, onclick: run, disabled: off }, text);
    const name = this.rowName ?? steps?.known[0]?.name ?? "";
    this.rowBar.replaceChildren(
      row.length ? el("span", { class: "chip mono tl-row-name", title: name }, name || "one row") : el("span", { class: "chip" }, "all rows"),
      range ? el("span", { class: "chip num", title: `${exactNs(range[0])} to ${exactNs(range[1])}` }, `${ns(range[0])} – ${ns(range[1])}`) : "",
      button("◀", "Previous slice (Z)", () => this.step(-1), !steps?.total), el("output", { class: "num tl-row-at" }, problem || (steps ? steps.text : "…")), button("▶", "Next slice (X)", () => this.step(1), !steps?.total),
      steps?.current ? button("Details", "All about this slice", () => this.chosen.select(steps.current)) : "",
      button("Histogram", "Durations of these slices", () => { this.tabs.select("histogram"); this.show("histogram"); }),
      name ? button("Find", "Search for the name on the whole timeline", () => this.app.controls.lookFor(steps?.known[0]?.name ?? name)) : "",
      button("Let go", "Highlight nothing", () => { state.row = []; state.range = null; this.rowName = null; this.chose(); }));
  }
}
