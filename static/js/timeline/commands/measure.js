// Measuring by hand: where an edge of a selection lands under the pointer, and the time at the pointer on the ruler.

import { rowsBetween } from "../model/layout.js";
import { nearestEdge, sliceEdges, spanEdges } from "../model/snap.js";
import { clock } from "../model/viewport.js";

const SNAP_PX = 7;
const GRIP_PX = 6;

export class Measure {
  /** @param {import("../app.js").App} app */
  constructor(app) {
    this.app = app;
    this.label = app.root.querySelector(".tl-cursor-time");
    this.ruler = app.stage.ruler.canvas;
  }

  /**
   * Time under a point: the nearest edge of a slice within reach, on the ruler that of any visible track; freely with Alt.
   * @param {{x: number, y: number, free: boolean}} point @param {boolean} isRuler
   */
  at(point, isRuler) {
    const { viewport, timeline, marks } = this.app;
    const ns = viewport.ns(Math.min(Math.max(point.x, 0), viewport.width)), reach = SNAP_PX * viewport.nsPerPx;
    const whole = Math.round(Math.min(Math.max(ns, timeline.startNs), timeline.endNs));
    if (point.free) return whole;
    const level = viewport.level(timeline.topLevel), runsOf = (track, depth) => this.app.tiles.runs(track, level, viewport.start, viewport.end, depth);
    const slices = nearestEdge(ns, reach, sliceEdges(this.rows(point, isRuler), runsOf, ns, reach));
    const spans = [...marks, ...timeline.steps.map((step) => ({ start: step.start_ns, end: step.end_ns }))];
    return slices ?? nearestEdge(ns, reach, spanEdges(spans)) ?? whole;
  }

  /** Rows whose slices count: all that are visible from the ruler, else the one under the pointer. */
  rows(point, isRuler) {
    const { stage } = this.app;
    if (isRuler) return stage.panes.flatMap((pane) => rowsBetween(pane.rows, pane.scroll, pane.scroll + pane.height));
    const place = stage.at(point.y);
    return place ? rowsBetween(place.pane.rows, place.y, place.y + 1) : [];
  }

  /** The edge of the selected area under a point of the ruler. @returns {?{fixed: number, tracks: number[]}} the other edge stays */
  grip(point, isRuler) {
    const { chosen: { area }, viewport } = this.app;
    if (!isRuler || !area) return null;
    const near = (ns) => Math.abs(viewport.x(ns) - point.x) <= GRIP_PX;
    if (near(area.end)) return { fixed: area.start, tracks: area.tracks };
    return near(area.start) ? { fixed: area.end, tracks: area.tracks } : null;
  }

  /** The selection from a fixed edge to a point. */
  span(fixed, point, isRuler, tracks) {
    const to = this.at(point, isRuler);
    this.show(point, to);
    return { start: Math.min(fixed, to), end: Math.max(fixed, to), tracks };
  }

  /** The time at the pointer, on the ruler; null hides it. */
  show(point, ns = undefined) {
    const { viewport, stage } = this.app, { label } = this;
    label.hidden = !point;
    if (!point) return;
    const time = clock(ns ?? viewport.ns(point.x)), x = ns === undefined ? point.x : viewport.x(ns);
    label.textContent = time;
    label.style.left = `${stage.labelPx + Math.min(Math.max(x, 0), viewport.width)}px`;
    label.classList.toggle("tl-cursor-left", x > viewport.width - 150);
    this.ruler.style.cursor = point.ruler && this.grip(point, true) ? "ew-resize" : "";
  }
}
