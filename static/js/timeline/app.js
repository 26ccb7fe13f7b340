// The timeline's state and its one frame: who may change what is in actions, chosen, controls and history.

import { css } from "../lib/theme.js";
import * as units from "../lib/units.js";
import { Actions } from "./commands/actions.js";
import { Chosen } from "./panels/chosen.js";
import { Controls } from "./panels/controls.js";
import { Critical } from "./panels/critical.js";
import { Exporting } from "./panels/exporting.js";
import { part } from "./widgets/dom.js";
import { HitsPainter } from "./draw/hits.js";
import { History } from "./commands/history.js";
import { LabelKeys } from "./commands/label_keys.js";
import { Measure } from "./commands/measure.js";
import { Timeline } from "./model/model.js";
import { NotesView } from "./panels/notes_view.js";
import { makePalette } from "./model/palette.js";
import { Search } from "./data/search.js";
import { SearchBar } from "./panels/search_bar.js";
import { Stage } from "./stage/stage.js";
import { Tiles } from "./data/tiles.js";
import { Tracks } from "./commands/tracks.js";
import { between, Viewport } from "./model/viewport.js";
import { Walk } from "./commands/walk.js";

const MOVE_MS = 220;
const USE_SETTLE_MS = 200;      // the view rests: how busy the tracks are is told anew
const NAMES_PER_REQUEST = 500;
const FRAMES_KEPT = 600;        // times of the last frames, for measurements

export class App {
  /** @type {?App} the timeline that has or had the focus last */
  static active = null;

  /** @param {HTMLElement} root @param {import("./data/tiles.js").Api} api @param {object} meta of GET …/timeline/ */
  constructor(root, api, meta) {
    this.root = root;
    this.api = api;
    this.timeline = new Timeline(meta);
    const { timeline } = this;
    this.viewport = new Viewport(timeline.startNs, timeline.endNs);
    this.search = new Search(api, () => this.searched());
    this.tracks = new Tracks(this);
    this.searchBar = new SearchBar(this, root);
    this.controls = new Controls(this, root);
    this.tiles = new Tiles({
      fetchTile: (...request) => api.units(...request), tracks: timeline.tracks, endNs: timeline.endNs, topLevel: timeline.topLevel, tileBins: timeline.tileBins,
      onChange: () => this.changed("tracks"), onError: (error) => this.controls.fail(error),
    });
    this.stage = new Stage(part(root, "tl-stage"), {
      viewport: this.viewport, tiles: this.tiles, timeline, labelActions: this.tracks,
    });
    this.view = Tracks.view();
    this.marks = [];
    this.hover = this.hoverTrack = this.cursorX = this.match = this.motion = this.animation = this.lastTime = null;
    this.due = {};
    this.frames = [];
    this.chosen = new Chosen(this, root);
    this.history = new History(this);
    this.hitsPainter = new HitsPainter(root.querySelector(".tl-hits"));
    this.measure = new Measure(this);
    this.walk = new Walk(this);
    this.labelKeys = new LabelKeys(this);
    this.notes = new NotesView(this, root);
    this.critical = new Critical(this, part(root, "tl-path"));
    this.exporting = new Exporting(this, root);
    this.actions = new Actions(this, part(root, "tl-tip"));
    this.repaint();
  }

  /** Colours and font of the theme. */
  repaint() {
    const { timeline } = this;
    this.palette = { ...makePalette(css, timeline.ownColours), ownOf: (name) => timeline.ownOf(name), id: (this.palette?.id ?? 0) + 1 };
    this.font = `11px ${css("--mono") || "monospace"}`;
    this.charPx = this.stage.textWidth(this.font, "0123456789") / 10;
    this.chosen.areaPanel.repaint();
    this.changed("tracks");
  }

  /** @param {"tracks"|"ruler"|"overlay"} what must be painted anew: everything, all but the tracks, only what moves */
  changed(what) {
    this.due[what] = true;
    this.scheduled ??= requestAnimationFrame((time) => this.frame(time));
  }

  frame(time) {
    const began = performance.now();
    this.scheduled = null;
    this.advance(time);
    this.onFrame?.(time);           // another timeline may go with this one
    const { due, viewport } = this;
    if (due.tracks) {
      const { units: shown, near } = this.stage.visibleUnits();
      this.tiles.want(viewport.level(this.timeline.topLevel), viewport.start, viewport.end, shown, near);
    }
    if (due.tracks) this.actions.rehover();
    this.due = {};
    this.stage.paint(this.scene(), due, this.view);
    if (this.search.query && (due.tracks || due.ruler)) this.hitsPainter.paint(this.scene(), this.search);
    this.notes.flags.place();
    if (due.tracks) {
      this.controls.tell();
      this.critical.viewed();
      clearTimeout(this.useTimer);
      this.useTimer = setTimeout(() => { this.stage.tellUse(); this.chosen.areaPanel.viewed(); }, USE_SETTLE_MS);
    }
    if (this.timeline.namesMissing.size) this.askNames();
    this.frames.push({ time, ms: performance.now() - began, entries: this.stage.entries });
    if (this.frames.length > FRAMES_KEPT) this.frames.splice(0, FRAMES_KEPT / 2);
    if (this.motion?.isMoving || this.animation) this.changed("tracks");
    else this.lastTime = null;
  }

  /** Names of slices that were drawn without: traces with very many names send them by and by. */
  askNames() {
    if (this.namesUnderWay) return;
    const ids = [...this.timeline.namesMissing].slice(0, NAMES_PER_REQUEST);
    this.namesUnderWay = this.api.names(ids).then(({ names, labels }) => {
      for (const id of ids) this.timeline.namesMissing.delete(id);
      this.timeline.addNames(names, labels);
      this.changed("tracks");
    }, () => undefined).finally(() => { this.namesUnderWay = null; });
  }

  /** All that painting needs. */
  scene() {
    const { timeline, viewport, tiles, palette, match, font, charPx, hover, cursorX, marks, chosen } = this;
    return {
      timeline, viewport, tiles, palette, match: chosen.match ?? match, units, font, charPx, hover, cursorX, marks, hits: this.search.hits,
      selection: { slice: chosen.slice, area: chosen.area }, highlights: chosen.highlights, path: this.critical.drawn, dpr: devicePixelRatio || 1,
    };
  }

  /** Move by held keys and by the running animation. */
  advance(time) {
    const seconds = Math.min((time - (this.lastTime ?? time - 16)) / 1000, 0.1);
    this.lastTime = time;
    if (this.motion?.isMoving) {
      const moved = this.motion.advance(seconds), { viewport } = this;
      if (moved.zoom) viewport.zoomAt(this.cursorX ?? viewport.width / 2, Math.exp(moved.zoom));
      if (moved.pan) viewport.pan(moved.pan * viewport.span);
      if (moved.scroll) this.stage.scrollBy(moved.scroll * 100);
      this.animation = null;
      this.history.remember();
    }
    if (!this.animation) return;
    const { from, to } = this.animation, t = Math.min((time - (this.animation.began ??= time)) / MOVE_MS, 1);
    const now = t < 1 ? between(from, to, 1 - (1 - t) ** 3) : to;
    this.viewport.set(now.start, now.end);
    if (t < 1) return;
    this.animation = null;
    this.history.remember();        // of another timeline that went along, too
  }

  /** Glide to a window; at once where motion is not wanted, or `glide` says so. @returns {{start: number, end: number}} where it ends */
  animate(start, end, glide = true) {
    const { viewport } = this, to = Object.assign(new Viewport(viewport.min, viewport.max), { width: viewport.width });
    to.set(start, end);
    const still = !glide || matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.animation = still ? null : { from: { start: viewport.start, end: viewport.end }, to };
    if (still) viewport.set(to.start, to.end);
    this.changed("tracks");
    return to;
  }

  /** Go to a window; `push` makes it a step of the browser's history. */
  go(start, end, push = true, glide = true) {
    this.history.remember(push, this.animate(start, end, glide));
  }

  /** Change the window by hand: whatever glided stops. */
  moved(change) {
    this.animation = null;
    change();
    this.changed("tracks");
    this.history.remember();
  }

  fit() {
    const span = this.chosen.span;
    if (span) this.go(...this.viewport.around(span.start, span.end, this.chosen.area ? 0.05 : 0.15));
    else this.whole();
  }

  /** The window that the timeline opens on: up to its last slice, where the record goes on behind it. */
  get opening() {
    const { timeline: { opening, endNs }, viewport } = this;
    return [Math.max(opening[0], viewport.min), opening[1] < endNs ? opening[1] : viewport.max];
  }

  isOpening({ start, end }) {
    const [from, to] = this.opening, slack = (to - from) * 1e-6;
    return Math.abs(start - from) <= slack && Math.abs(end - to) <= slack;
  }

  /** All slices; once more: all of the record. */
  whole() {
    const { viewport } = this;
    this.go(...(this.isOpening(viewport) ? [viewport.min, viewport.max] : this.opening));
  }

  /** Mark what is selected, or take its mark away. */
  mark() {
    const span = this.chosen.span;
    if (!span) { this.say("Select a slice or drag over an area first."); return; }
    const at = this.marks.findIndex((m) => m.start === span.start && m.end === span.end);
    if (at >= 0) this.marks.splice(at, 1);
    else this.marks.push(span);
    this.changed("ruler");
    this.history.remember(true);
  }

  relayout() { this.tracks.relayout(); }

  searched() {
    const { names, mode, query } = this.search;
    this.match = names ? this.timeline.matchIds(names) : mode === "name" ? this.timeline.matches(query) : null;
    this.searchBar.tell(this.search);
    this.changed("tracks");
  }

  /** Whether keys are meant for this timeline of the page. */
  get isActive() { return (App.active ?? this) === this; }
  activate() { App.active = this; }

  say(text, long = false) { this.controls.say(text, long); }

  focus() { this.stage.main.element.focus({ preventScroll: true }); }
}
