// Paints what moves over the tracks: hover, selection, area, marks and the arrows between slices. Its own canvas, so that
// moving the mouse never repaints the tracks.

import { fit } from "./tracks.js";
import { criticalPath } from "./path.js";
import { laneHeight, laneTop, rowsBetween } from "../model/layout.js";

// Links that are a flow of control, and whether the arrow leaves the selected slice or arrives at it.
const LEAVES = { launches: true, "launched by": false, backward: true, forward: false, to: true, from: false };

const REACH_PX = 40;            // beyond the border that an arrow is drawn
const LABEL_PX = 260;
const MOST_LABELS = 24;

/**
 * @typedef {{rows: import("../model/layout.js").Rows, top: number, height: number, scroll: number}} Pane
 *   top and height in the overlay's pixels; scroll in the pane's content
 */
export class OverlayPainter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.cursor = document.createElement("div");
    this.cursor.className = "tl-cursor";
    canvas.after(this.cursor);
    this.ends = [];                 // labels of arrows' ends that are off screen, as last painted
  }

  /** @param {import("./tracks.js").Scene} scene @param {Pane[]} panes pinned first */
  paint(scene, panes, height) {
    const { context } = this, { viewport, dpr, palette, selection } = scene;
    this.point(scene.cursorX);
    // A canvas over the whole stage costs the browser at every frame, also an empty one.
    const isEmpty = !scene.marks.length && !selection.area && !selection.slice && !scene.hover && !scene.highlights?.length && !scene.path;
    if (this.canvas.hidden !== isEmpty) this.canvas.hidden = isEmpty;
    if (isEmpty && this.wasEmpty) return;
    this.wasEmpty = isEmpty;
    fit(this.canvas, viewport.width, height, dpr);
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    context.clearRect(0, 0, viewport.width, height);
    for (const mark of scene.marks) this.edges(scene, mark.start, mark.end, palette.warn, height);
    if (selection.area) this.area(scene, panes, height);
    for (const pane of panes) {
      context.save();
      context.beginPath();
      context.rect(0, pane.top, viewport.width, pane.height);
      context.clip();
      for (const slice of highlightsIn(scene)) this.outline(scene, pane, slice, palette.accent, slice.current ? 3 : 1.5);
      if (scene.hover) this.outline(scene, pane, scene.hover, palette.text, 1);
      if (selection.slice) this.outline(scene, pane, selection.slice, palette.text, 2.5);
      context.restore();
    }
    if (scene.path) criticalPath(context, scene, panes);
    this.ends.length = 0;
    for (const { kind, from, to, far } of arrowsOf(selection.slice)) this.arrow(scene, panes, kind, from, to, far);
  }

  /** The line under the pointer. */
  point(x) {
    const { cursor } = this, at = x === null ? null : Math.round(x);
    if (at === this.pointed) return;
    this.pointed = at;
    cursor.hidden = at === null;
    if (at !== null) cursor.style.transform = `translateX(${at}px)`;
  }

  edges({ viewport }, start, end, colour, height) {
    const { context } = this;
    context.fillStyle = colour;
    for (const ns of [start, end]) {
      const x = Math.round(viewport.x(ns));
      if (x >= 0 && x < viewport.width) context.fillRect(x, 0, 1, height);
    }
  }

  area(scene, panes, height) {
    const { context } = this, { viewport, palette, selection: { area } } = scene;
    const a = Math.max(viewport.x(area.start), -2), b = Math.min(viewport.x(area.end), viewport.width + 2);
    if (b < 0 || a > viewport.width) return;
    const chosen = new Set(area.tracks);
    context.fillStyle = palette.accent;
    context.globalAlpha = 0.16;
    for (const pane of panes) {
      for (const row of rowsBetween(pane.rows, pane.scroll, pane.scroll + pane.height)) {
        if (row.kind === "group" && !row.folded) continue;
        if (!row.tracks.some((track) => chosen.has(track.of ?? track.id))) continue;
        const top = Math.max(row.y - pane.scroll, 0), bottom = Math.min(row.y - pane.scroll + row.height, pane.height);
        context.fillRect(a, pane.top + top, b - a, bottom - top);
      }
    }
    context.globalAlpha = 1;
    this.edges(scene, area.start, area.end, palette.accent, height);
  }

  outline({ viewport, palette, timeline }, pane, slice, colour, lineWidth) {
    const { row, depth } = rowOf(timeline, pane, slice);
    if (!row || row.kind === "counter") return;
    const { context } = this;
    const x0 = Math.max(viewport.x(slice.start_ns), -4), x1 = Math.min(viewport.x(slice.start_ns + slice.dur_ns), viewport.width + 4);
    if (x1 < -4 || x0 > viewport.width + 4) return;
    const y = pane.top + laneTop(row, depth) - pane.scroll, h = laneHeight(row);
    const w = Math.max(x1 - x0, 3);
    context.strokeStyle = palette.panel;
    context.lineWidth = lineWidth + 2;
    context.strokeRect(x0, y, w, h);
    context.strokeStyle = colour;
    context.lineWidth = lineWidth;
    context.strokeRect(x0, y, w, h);
  }

  /**
   * From the call to what it launched (or forward to backward), across panes too. An end beyond the window is shown where
   * the arrow leaves it, with its name: `ends` says where, so that a click can follow.
   */
  arrow(scene, panes, kind, from, to, far) {
    const { viewport } = scene, { width } = viewport;
    const a = place(scene.timeline, panes, from), b = place(scene.timeline, panes, to);
    if (!a || !b || (kind === "operator" && from.track === to.track)) return;
    const leave = kind === "operator" ? from.start_ns : Math.max(Math.min(from.start_ns + from.dur_ns, to.start_ns), from.start_ns);
    const x0 = viewport.x(leave), x1 = viewport.x(to.start_ns);
    if ((x0 < 0 && x1 < 0) || (x0 > width && x1 > width)) return;
    const left = Math.min(Math.max(x0, -REACH_PX), width + REACH_PX), right = Math.min(Math.max(x1, -REACH_PX), width + REACH_PX);
    this.curve(scene.palette, left, a.y, right, b.y);
    const end = far === to ? { x: x1, y: b.y } : { x: x0, y: a.y };
    if (far && (end.x < 0 || end.x > width)) this.label(scene, far, end.x < 0, end.y);
  }

  curve(palette, x0, y0, x1, y1) {
    const { context } = this, bend = Math.max(Math.min(Math.abs(x1 - x0) / 2, 120), 24);
    for (const [colour, width] of [[palette.panel, 4], [palette.accent, 1.8]]) {
      context.strokeStyle = context.fillStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      context.moveTo(x0, y0);
      context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
      context.stroke();
      context.beginPath();
      context.moveTo(x1, y1);
      context.lineTo(x1 - 7, y1 - 4);
      context.lineTo(x1 - 7, y1 + 4);
      context.closePath();
      context.fill();
    }
    context.beginPath();
    context.arc(x0, y0, 2.5, 0, 7);
    context.fill();
  }

  /** The name of an end that is off screen, at the border; below those that stand there already. */
  label({ viewport, palette, font, charPx }, slice, isLeft, y) {
    const { context } = this, room = Math.floor((Math.min(LABEL_PX, viewport.width / 3) - 26) / charPx);
    if (this.ends.length >= MOST_LABELS) return;
    const name = slice.name ?? "", text = name.length > room ? `${name.slice(0, room - 1)}…` : name;
    const w = text.length * charPx + 26, x = isLeft ? 2 : viewport.width - w - 2;
    let top = y - 9;
    while (this.ends.some((end) => end.isLeft === isLeft && Math.abs(end.top - top) < 19)) top += 19;
    context.fillStyle = palette.accent;
    context.fillRect(x, top, w, 18);
    context.fillStyle = palette["accent-ink"];
    context.font = font;
    context.textBaseline = "middle";
    context.fillText(isLeft ? `← ${text}` : `${text} →`, x + 5, top + 9.5);
    this.ends.push({ slice, isLeft, top, x, w });
  }

  /** The slice whose label of an off-screen end is at a point of the overlay, or null. */
  endAt(x, y) {
    return this.ends.find((end) => x >= end.x && x <= end.x + end.w && y >= end.top && y <= end.top + 18)?.slice ?? null;
  }
}

/** Arrows of the selected slice, and which end is the other one. Older answers say links alone. */
function arrowsOf(slice) {
  if (!slice) return [];
  if (slice.arrows) return slice.arrows.map((arrow) => ({ ...arrow, far: arrow.from.id === slice.id ? arrow.to : arrow.from }));
  return (slice.links ?? []).filter((link) => link.role in LEAVES).map((link) => (
    { kind: "launch", from: LEAVES[link.role] ? slice : link, to: LEAVES[link.role] ? link : slice, far: link }));
}

/** Highlighted slices that the window shows: they are ordered by start, and few reach in from before. */
function highlightsIn({ highlights, viewport }) {
  return highlights?.length ? highlights.filter((slice) => slice.start_ns <= viewport.end && slice.start_ns + slice.dur_ns >= viewport.start) : [];
}

/** Row and depth of a slice in a pane: of a launch the lane of its kernel, where there are such. */
function rowOf(timeline, pane, slice) {
  const lane = timeline.kernelLane(slice), row = lane && pane.rows.byTrack.get(lane.id);
  return row ? { row, depth: 0 } : { row: pane.rows.byTrack.get(slice.track), depth: slice.depth };
}

/** Where a slice stands on the overlay: in the pinned pane if its track is there; at the pane's edge if scrolled away. */
function place(timeline, panes, slice) {
  for (const pane of panes) {
    const { row, depth } = rowOf(timeline, pane, slice);
    if (!row || !pane.height) continue;
    const y = laneTop(row, depth) - pane.scroll + laneHeight(row) / 2;
    return { y: pane.top + Math.min(Math.max(y, 0), pane.height) };
  }
  return null;
}
