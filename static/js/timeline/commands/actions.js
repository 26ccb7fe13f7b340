// What input means: gestures and commands become changes of the view.

import { ns as nsText } from "../../lib/units.js";
import { el } from "../widgets/dom.js";
import { overviewNs, overviewPart } from "../draw/ruler.js";
import { rowsBetween } from "../model/layout.js";
import { category, MERGED } from "../model/model.js";
import { sayView } from "./summary.js";
import { clock, exactNs, tipPlace } from "../model/viewport.js";

const PAGE_SHARE = 0.85;        // of the pane that PageDown scrolls
const CURSORS = { start: "ew-resize", end: "ew-resize", window: "grab", new: "crosshair" };

export class Actions {
  /** @param {import("../app.js").App} app @param {HTMLElement} tip */
  constructor(app, tip) {
    this.app = app;
    this.tipElement = tip;
    this.grips = null;
    const { controls, chosen, viewport } = app;
    /** By name: other modules add theirs. @type {Object<string, () => void>} */
    this.commands = {
      fit: () => app.fit(), whole: () => app.whole(), mark: () => app.mark(), "say-view": () => sayView(app), clear: () => this.clear(),
      "hit-next": () => controls.step(1), "hit-previous": () => controls.step(-1), search: () => controls.focusSearch(),
      "page-up": () => this.scroll(-PAGE_SHARE * app.stage.main.height), "page-down": () => this.scroll(PAGE_SHARE * app.stage.main.height),
      "select-all": () => chosen.selectArea({ start: Math.floor(viewport.start), end: Math.ceil(viewport.end), tracks: app.stage.shownTracks() }, true),
      "tab-next": () => chosen.areaPanel.nextTab(1), "tab-previous": () => chosen.areaPanel.nextTab(-1), "into-panel": () => chosen.focusPanel(),
      "row-next": () => chosen.areaPanel.step(1), "row-previous": () => chosen.areaPanel.step(-1),
      ...app.walk.commands, ...app.exporting.commands, ...app.labelKeys.commands, ...app.notes.commands, ...app.critical.commands,
    };
  }

  /** What the keys act on depends on it. */
  state() {
    const { slice, area } = this.app.chosen;
    return { slice: Boolean(slice), chosen: Boolean(slice || area) };
  }

  isActive() { return this.app.isActive; }
  wake() { this.app.changed("tracks"); }
  command(name) { this.commands[name]?.(); }
  zoom(x, factor) { this.app.moved(() => this.app.viewport.zoomAt(x, factor)); }
  pan(px) { this.app.moved(() => this.app.viewport.pan(px * this.app.viewport.nsPerPx)); }
  resizePanel(y, relative) { this.app.chosen.resize(y, relative); }

  scroll(px, pane) {
    this.app.stage.scrollBy(px, pane ?? undefined);
    this.app.changed("tracks");
    this.app.history.remember();
  }

  resize(x, relative) {
    const { stage } = this.app;
    stage.setLabelWidth(relative ? stage.labelWidth + x : x - stage.root.getBoundingClientRect().left);
    this.app.changed("tracks");
  }

  clear() {
    const { chosen, controls } = this.app;
    if (chosen.slice || chosen.area) chosen.select(null);
    else controls.lookFor("");
  }

  hover(point) {
    this.pointed = point;
    this.pointAt(point);
    this.app.changed("overlay");
  }

  pointAt(point) {
    const { app } = this;
    const hit = point && !point.ruler ? app.stage.hit(point) : null, place = point && !point.ruler ? app.stage.at(point.y) : null;
    app.cursorX = point ? point.x : null;
    app.hoverTrack = place ? rowsBetween(place.pane.rows, place.y, place.y + 1)[0]?.track?.id ?? null : null;
    app.hover = hit?.entry ? { track: hit.track.id, depth: hit.entry.depth, start_ns: hit.entry.start, dur_ns: hit.entry.dur } : null;
    app.measure.show(point);
    this.tip(point, hit);
  }

  tip(point, hit) {
    const { tipElement: tip, app: { stage } } = this;
    const lines = hit?.entry ? this.sliceLines(hit.entry) : hit?.value != null ? counterLines(hit) : null;
    tip.hidden = !lines;
    if (!lines) return;
    tip.replaceChildren(el("b", { class: "mono" }, lines[0]), el("span", {}, lines[1]), el("span", { class: "muted" }, lines[2]));
    const box = stage.root.getBoundingClientRect(), [left, top] = tipPlace(
      { x: point.x + stage.labelPx, y: point.y - box.top }, { width: tip.offsetWidth, height: tip.offsetHeight }, box);
    tip.style.left = `${left}px`;
    tip.style.top = `${top}px`;
  }

  /** The view moved under a pointer that rests: what is under it now is another slice. */
  rehover() {
    if (this.pointed && !this.pointed.ruler) this.pointAt(this.pointed);
  }

  sliceLines(entry) {
    const what = entry.flags & MERGED ? `${entry.count.toLocaleString("en-US")} slices in ${nsText(entry.dur)}; the longest is named` : `${nsText(entry.dur)} (${exactNs(entry.dur)})`;
    return [this.app.timeline.name(entry.name) || "…", what, `${category(entry.category).label} · at ${clock(entry.start)}`];
  }

  click(point) {
    const { app } = this, hit = app.stage.hit(point), far = app.stage.endAt(point);
    app.focus();
    if (far) return app.chosen.jump(far);
    if (!hit?.entry) return app.chosen.select(null);
    const { entry, track } = hit;
    return app.chosen.select({ id: entry.slice, track: track.id, depth: entry.depth, start_ns: entry.start, dur_ns: entry.dur, merged: entry.flags & MERGED ? entry.count : 0 });
  }

  /** Double click: zoom to the slice. */
  open(point) {
    const { app } = this, entry = app.stage.hit(point)?.entry;
    if (entry) app.go(...app.viewport.around(entry.start, entry.start + entry.dur));
  }

  area(a, b, done, isRuler) {
    const { stage, chosen, measure } = this.app;
    const tracks = isRuler ? stage.shownTracks() : stage.tracksBetween(a.y, b.y);
    this.pointed = null;
    this.tip(null, null);
    a.ns ??= measure.at(a, isRuler);        // where the drag began stays, whatever is loaded or scrolled meanwhile
    chosen.selectArea(measure.span(a.ns, b, isRuler, tracks), done);
  }

  grip(point, isRuler) { return this.app.measure.grip(point, isRuler); }
  edge(grip, point, done) { this.app.chosen.selectArea(this.app.measure.span(grip.fixed, point, true, grip.tracks), done); }

  overview(phase, x) {
    const { timeline, viewport, stage, history } = this.app;
    const at = overviewNs(timeline, x, viewport.width);
    if (phase === "hover") stage.overview.canvas.style.cursor = CURSORS[overviewPart(timeline, viewport, x)];
    else if (phase === "start") this.grips = { part: overviewPart(timeline, viewport, x), at, start: viewport.start, end: viewport.end };
    else if (phase === "end") history.remember(true);
    else this.app.moved(() => this.dragWindow(at));
  }

  dragWindow(at) {
    const { viewport } = this.app, { part, at: from, start, end } = this.grips;
    if (part === "window") return viewport.set(start + at - from, end + at - from);
    const fixed = { new: from, start: end, end: start }[part];
    return viewport.set(Math.min(at, fixed), Math.max(at, fixed));
  }
}

const counterLines = ({ track, value, ns }) => [track.name, `${value.toLocaleString("en-US")}${track.unit ? ` ${track.unit}` : ""}`, `at ${clock(ns)}`];
