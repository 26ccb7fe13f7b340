// The parts of the page that the timeline is drawn on: their sizes, scroll positions and painters. One frame paints what is due.

import { textWidth, TrackPainter } from "../draw/tracks.js";
import { OverlayPainter } from "../draw/overlay.js";
import { el, part } from "../widgets/dom.js";
import { OVERVIEW_PX, overviewGroups, OverviewPainter, RulerPainter, rulerHeight } from "../draw/ruler.js";
import { Labels } from "./labels.js";
import { depthAt, depthsBetween, draws, entryAt, groupEntryAt, rowsBetween, valueAt } from "../model/layout.js";
import { BAND, unitOf } from "../data/tiles.js";
import { busyShare } from "../data/utilisation.js";
import { clock } from "../model/viewport.js";

const HIT_PX = 4;
const NEAR_PX = 400;            // beyond the edges whose tiles are fetched ahead
const LABELS_MIN_PX = 90;
const NARROW_PX = 700;          // a phone: names get a third at most
const NAMED_LINES = 4;          // of the overview: with more there is no room for their names
const PINNED_SHARE = 0.45;      // of the stage at most

export class Stage {
  /** @param {HTMLElement} root `.tl-stage` of the page */
  constructor(root, { viewport, tiles, timeline, labelActions }) {
    Object.assign(this, { root, viewport, tiles, timeline });
    const find = (selector) => root.querySelector(selector);
    this.overview = new OverviewPainter(find(".tl-overview"));
    this.ruler = new RulerPainter(find(".tl-ruler"));
    this.overlay = new OverlayPainter(find(".tl-overlay"));
    this.base = find(".tl-base");
    this.stepsOf = find(".tl-steps-of");
    this.nothing = part(root.closest(".tl"), "tl-none");
    const groups = overviewGroups(timeline);
    if (groups.length > 1 && groups.length <= NAMED_LINES) find(".tl-overview-names").replaceChildren(...groups.map((g) => el("span", {}, g.name)));
    this.panes = ["pinned", "main"].map((name) => {
      const element = find(`.tl-${name}`);
      return {
        name, element, content: element.querySelector(".tl-content"), painter: new TrackPainter(element.querySelector("canvas")),
        labels: new Labels(element.querySelector(".tl-labels"), labelActions, name === "pinned"), rows: { rows: [], height: 0, byTrack: new Map() }, top: 0, height: 0, scroll: 0,
      };
    });
    [this.pinned, this.main] = this.panes;
    this.labelWidth = Number(localStorage.getItem("ridgepoint.timeline.labels")) || 220;
    this.entries = 0;
  }

  textWidth(font, text) { return textWidth(this.overlay.context, font, text); }

  /** Tracks that a row stands for, folded or not. */
  shownTracks() { return this.timeline.ownTracks([...this.main.rows.byTrack.keys()]); }

  /** Uppermost track with slices that the panes show. */
  topTrack() {
    const inView = (pane) => rowsBetween(pane.rows, pane.scroll, pane.scroll + pane.height);
    return this.panes.flatMap(inView).flatMap((row) => (row.kind === "track" || row.folded ? row.tracks : [])).find((t) => t.slices > 0)?.id;
  }

  /** Whose steps the ruler shows: of the uppermost track in view that has some. */
  topOwner() {
    const { timeline, main } = this, has = (owner) => timeline.stepsOf(owner).length > 0;
    for (const { tracks } of rowsBetween(main.rows, main.scroll, main.scroll + main.height)) {
      const owner = tracks.map(timeline.ownerOf).find(has);
      if (owner !== undefined) return owner;
    }
    return timeline.steps[0]?.owner ?? null;
  }

  /** Take new rows; the panes keep their scroll positions. */
  setRows({ main, pinned }) {
    for (const [pane, rows] of [[this.main, main], [this.pinned, pinned]]) {
      pane.rows = rows;
      pane.content.style.height = `${rows.height}px`;
    }
    this.pinned.element.hidden = !pinned.rows.length;
    this.nothing.hidden = main.rows.length > 0 || !this.timeline.hasSlices;
    this.measure();
  }

  setLabelWidth(px) {
    this.labelWidth = Math.round(Math.min(Math.max(px, LABELS_MIN_PX), this.root.clientWidth * 0.6));
    localStorage.setItem("ridgepoint.timeline.labels", String(this.labelWidth));
    this.measure();
  }

  /** Read sizes from the page. Call it when something may have changed them, never while painting. */
  measure() {
    const { clientWidth } = this.root;
    const labels = Math.min(this.labelWidth, clientWidth * (clientWidth < NARROW_PX ? 0.34 : 0.6));
    this.labelPx = labels;
    this.root.style.setProperty("--tl-labels", `${labels}px`);
    this.root.style.setProperty("--tl-ruler", `${rulerHeight(this.timeline)}px`);
    this.root.style.setProperty("--tl-overview", `${OVERVIEW_PX}px`);
    this.pinned.element.style.maxHeight = `${Math.round(this.root.clientHeight * PINNED_SHARE)}px`;
    const width = Math.max(this.main.element.clientWidth - labels, 10);
    this.root.style.setProperty("--tl-width", `${width}px`);
    this.viewport.resize(width);
    const origin = this.pinned.element.hidden ? this.main.element.offsetTop : this.pinned.element.offsetTop;
    this.overlayTop = origin;
    for (const pane of this.panes) {
      pane.top = pane.element.offsetTop - origin;
      pane.height = pane.element.hidden ? 0 : pane.element.clientHeight;
      pane.scroll = pane.element.scrollTop;
    }
    this.overlayHeight = this.main.top + this.main.height;
    this.root.style.setProperty("--tl-overlay-top", `${origin}px`);
  }

  scrollBy(px, element = this.main.element) {
    element.scrollTop += px;
    for (const pane of this.panes) pane.scroll = pane.element.scrollTop;
  }

  /** Units (four depths of a track) that the panes show, for the tiles; and those just beyond their edges. */
  visibleUnits() {
    const seen = (this.seen ??= { panes: [], units: [], near: [] });
    const isOld = this.panes.some((pane, i) => seen.panes[i]?.rows !== pane.rows || seen.panes[i].scroll !== pane.scroll || seen.panes[i].height !== pane.height);
    if (!isOld) return seen;
    const shown = new Set(), near = new Set();
    for (const pane of this.panes) {
      if (!pane.height) continue;
      unitsBetween(pane.rows, pane.scroll, pane.scroll + pane.height, shown);
      unitsBetween(pane.rows, pane.scroll - NEAR_PX, pane.scroll + pane.height + NEAR_PX, near);
    }
    this.seen = {
      panes: this.panes.map(({ rows, scroll, height }) => ({ rows, scroll, height })),
      units: [...shown].sort((x, y) => x - y), near: [...near].filter((unit) => !shown.has(unit)).sort((x, y) => x - y),
    };
    return this.seen;
  }

  /** @param {import("../draw/tracks.js").Scene} scene @param {{tracks: boolean, overlay: boolean}} due */
  paint(scene, due, view) {
    if (due.tracks) {
      this.entries = 0;
      for (const pane of this.panes) {
        if (!pane.height) continue;
        this.entries += pane.painter.paint(scene, pane.rows, pane.scroll, pane.height);
        pane.labels.update(pane.rows, pane.scroll, pane.height, view);
      }
      this.overview.paint(scene);
    }
    if (due.tracks || due.ruler) {
      const owner = this.topOwner(), base = this.ruler.paint(scene, owner);
      const whose = owner && this.timeline.steps.length ? `steps of ${owner}` : "";
      if (this.stepsOf.textContent !== whose) this.stepsOf.textContent = this.stepsOf.title = whose;
      const text = base ? `${clock(base)} +` : "";
      if (this.base.textContent !== text) this.base.textContent = text;
    }
    this.overlay.paint(scene, this.panes, this.overlayHeight);
  }

  /** Beside each name, how busy the track is in the window. */
  tellUse() {
    const { viewport, tiles, timeline } = this, level = viewport.level(timeline.topLevel);
    for (const pane of this.panes) if (pane.height) pane.labels.tellUse((track) => busyShare(tiles, track, level, viewport.start, viewport.end));
  }

  /** Pane and place in its content for a point of the page. */
  at(clientY) {
    const y = clientY - this.root.getBoundingClientRect().top - this.overlayTop;
    const pane = this.panes.find((p) => p.height && y >= p.top && y < p.top + p.height);
    return pane ? { pane, y: y - pane.top + pane.scroll } : null;
  }

  /** What is under a point: a slice {track, entry}, a counter's {track, value, ns}, or null. */
  hit({ x, y }) {
    const place = this.at(y);
    if (!place) return null;
    const row = rowsBetween(place.pane.rows, place.y, place.y + 1)[0];
    if (!row || !draws(row)) return null;
    const depth = depthAt(row, place.y), { viewport } = this, ns = viewport.ns(x);
    const reach = (row.kind === "group" ? 1 : HIT_PX) * viewport.nsPerPx;
    for (const track of row.tracks) {
      const runs = this.tiles.runs(track.id, viewport.level(this.timeline.topLevel), viewport.start, viewport.end, row.kind === "group" ? 0 : depth ?? 0);
      if (row.kind === "counter") return { track, entry: null, value: valueAt(runs, ns), ns };
      const entry = row.kind === "group" ? groupEntryAt(runs, ns, reach) : depth === null ? null : entryAt(runs, depth, ns, reach);
      if (entry) return { track, entry };
    }
    return null;
  }

  /** The slice at the other end of an arrow whose label is at a point. */
  endAt({ x, y }) { return this.overlay.endAt(x, y - this.root.getBoundingClientRect().top - this.overlayTop); }

  /** Tracks between two heights of the page, over both panes. */
  tracksBetween(y0, y1) {
    const top = this.root.getBoundingClientRect().top + this.overlayTop;
    const [a, b] = [Math.min(y0, y1) - top, Math.max(y0, y1) - top];
    const ids = new Set();
    for (const pane of this.panes) {
      const from = Math.max(a, pane.top), to = Math.min(b, pane.top + pane.height);
      if (to < from || !pane.height) continue;
      for (const row of rowsBetween(pane.rows, from - pane.top + pane.scroll, Math.max(to, from + 1) - pane.top + pane.scroll)) {
        for (const track of row.tracks) if (row.kind !== "group" || row.folded || row.y >= from - pane.top + pane.scroll) ids.add(track.id);
      }
    }
    return this.timeline.ownTracks([...ids]);
  }

  /** Scroll so that a depth of a track can be seen. */
  reveal(track, depth) {
    if (this.pinned.rows.byTrack.has(track)) return;
    const row = this.main.rows.byTrack.get(track);
    if (!row) return;
    const y = row.y + (row.kind === "track" ? depth * row.lane : 0);
    const { element, height } = this.main;
    if (y < element.scrollTop + 24) element.scrollTop = Math.max(y - height / 3, 0);
    else if (y > element.scrollTop + height - 40) element.scrollTop = y - height * 0.6;
    this.main.scroll = element.scrollTop;
  }
}

function unitsBetween(rows, y0, y1, into) {
  for (const row of rowsBetween(rows, y0, y1)) {
    if (!draws(row)) continue;
    const [first, last] = depthsBetween(row, y0, y1);
    for (const track of row.tracks) for (let depth = first - (first % BAND); depth <= last; depth += BAND) into.add(unitOf(track.id, depth));
  }
}
