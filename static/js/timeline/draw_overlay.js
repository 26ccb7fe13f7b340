// Paints what moves over the tracks: hover, selection, area, marks and the arrows between slices. Its own canvas, so that
// moving the mouse never repaints the tracks.

import { fit } from "./draw.js";
import { laneHeight, laneTop, rowsBetween } from "./layout.js";

// Links that are a flow of control, and whether the arrow leaves the selected slice or arrives at it.
const LEAVES = { launches: true, "launched by": false, backward: true, forward: false, to: true, from: false };

/**
 * @typedef {{rows: import("./layout.js").Rows, top: number, height: number, scroll: number}} Pane
 *   top and height in the overlay's pixels; scroll in the pane's content
 */
export class OverlayPainter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  /** @param {import("./draw.js").Scene} scene @param {Pane[]} panes pinned first */
  paint(scene, panes, height) {
    const { context } = this, { viewport, dpr, palette, selection } = scene;
    fit(this.canvas, viewport.width, height, dpr);
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    context.clearRect(0, 0, viewport.width, height);
    for (const mark of scene.marks) this.edges(scene, mark.start, mark.end, palette.warn, height);
    if (selection.area) this.area(scene, panes, height);
    if (scene.cursorX !== null) {
      context.fillStyle = palette.muted;
      context.globalAlpha = 0.5;
      context.fillRect(Math.round(scene.cursorX), 0, 1, height);
      context.globalAlpha = 1;
    }
    for (const pane of panes) {
      context.save();
      context.beginPath();
      context.rect(0, pane.top, viewport.width, pane.height);
      context.clip();
      if (scene.hover) this.outline(scene, pane, scene.hover, palette.text, 1);
      if (selection.slice) this.outline(scene, pane, selection.slice, palette.text, 2.5);
      context.restore();
    }
    if (selection.slice) for (const link of selection.slice.links ?? []) this.arrow(scene, panes, selection.slice, link);
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
        if (!row.tracks.some((track) => chosen.has(track.id))) continue;
        const top = Math.max(row.y - pane.scroll, 0), bottom = Math.min(row.y - pane.scroll + row.height, pane.height);
        context.fillRect(a, pane.top + top, b - a, bottom - top);
      }
    }
    context.globalAlpha = 1;
    this.edges(scene, area.start, area.end, palette.accent, height);
  }

  outline({ viewport, palette }, pane, slice, colour, lineWidth) {
    const row = pane.rows.byTrack.get(slice.track);
    if (!row || row.kind === "counter") return;
    const { context } = this;
    const x0 = Math.max(viewport.x(slice.start_ns), -4), x1 = Math.min(viewport.x(slice.start_ns + slice.dur_ns), viewport.width + 4);
    if (x1 < -4 || x0 > viewport.width + 4) return;
    const y = pane.top + laneTop(row, slice.depth) - pane.scroll, h = laneHeight(row);
    const w = Math.max(x1 - x0, 3);
    context.strokeStyle = palette.panel;
    context.lineWidth = lineWidth + 2;
    context.strokeRect(x0, y, w, h);
    context.strokeStyle = colour;
    context.lineWidth = lineWidth;
    context.strokeRect(x0, y, w, h);
  }

  /** From the call to what it launched (or forward to backward), across panes too. */
  arrow(scene, panes, slice, link) {
    if (!(link.role in LEAVES)) return;
    const { context } = this, { viewport, palette } = scene;
    const [from, to] = LEAVES[link.role] ? [slice, link] : [link, slice];
    const a = place(panes, from), b = place(panes, to);
    if (!a || !b) return;
    const leave = Math.max(Math.min(from.start_ns + from.dur_ns, to.start_ns), from.start_ns);
    const x0 = viewport.x(leave), x1 = viewport.x(to.start_ns);
    const limit = 20 * viewport.width;
    if (Math.max(x0, x1) < -limit || Math.min(x0, x1) > limit || Math.abs(x1 - x0) > 2 * limit) return;
    const bend = Math.max(Math.min(Math.abs(x1 - x0) / 2, 120), 24);
    for (const [colour, width] of [[palette.panel, 4], [palette.accent, 1.8]]) {
      context.strokeStyle = context.fillStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      context.moveTo(x0, a.y);
      context.bezierCurveTo(x0 + bend, a.y, x1 - bend, b.y, x1 - 5, b.y);
      context.stroke();
      context.beginPath();
      context.moveTo(x1, b.y);
      context.lineTo(x1 - 7, b.y - 4);
      context.lineTo(x1 - 7, b.y + 4);
      context.closePath();
      context.fill();
    }
    context.beginPath();
    context.arc(x0, a.y, 2.5, 0, 7);
    context.fill();
  }
}

/** Where a slice stands on the overlay: in the pinned pane if its track is there; at the pane's edge if scrolled away. */
function place(panes, slice) {
  for (const pane of panes) {
    const row = pane.rows.byTrack.get(slice.track);
    if (!row || !pane.height) continue;
    const y = laneTop(row, slice.depth) - pane.scroll + laneHeight(row) / 2;
    return { y: pane.top + Math.min(Math.max(y, 0), pane.height) };
  }
  return null;
}
