// Paints the critical path over the tracks: a line along the slices and stretches of threads that bind, with steps from one
// to the next. Drawn on the overlay, so that it moves with the tracks and never repaints them.

import { laneHeight, laneTop } from "../model/layout.js";

const MOST_STEPS = 1500;        // connections from track to track in one picture; beyond, they would be a curtain
const LINE_PX = 3.5;

/**
 * @param {CanvasRenderingContext2D} context of the overlay
 * @param {import("./tracks.js").Scene} scene its `path` holds [track, depth, start_ns, end_ns, what, slice] in order of time
 * @param {import("./overlay.js").Pane[]} panes
 */
export function criticalPath(context, scene, panes) {
  const { viewport, palette, path: { segments, exact } } = scene, lines = [], waits = [], steps = [];
  let last = null;
  for (const [track, depth, start, end, what] of segments) {
    if (end < viewport.start || start > viewport.end) { last = null; continue; }
    const y = heightOf(panes, track, depth);
    if (y === null) { last = null; continue; }
    const x0 = Math.max(viewport.x(start), -2), x1 = Math.min(viewport.x(end), viewport.width + 2);
    (what === "GPU" || what === "host" ? lines : waits).push([x0, x1, y]);
    if (exact && last !== null && last.y !== y && steps.length < MOST_STEPS) steps.push([last.x, x0, last.y, y]);
    last = { x: x1, y };
  }
  context.lineCap = "butt";
  for (const [colour, extra] of [[palette.panel, 2.5], [palette.bad, 0]]) {
    context.strokeStyle = colour;
    stroke(context, lines, LINE_PX + extra, []);
    stroke(context, waits, 1.5 + extra, extra ? [] : [3, 3]);
    context.lineWidth = 1.2 + extra;
    context.setLineDash([]);
    context.beginPath();
    for (const [x0, x1, y0, y1] of steps) { context.moveTo(x0, y0); context.lineTo(x1, y1); }
    context.stroke();
  }
  context.setLineDash([]);
}

function stroke(context, lines, width, dash) {
  context.lineWidth = width;
  context.setLineDash(dash);
  context.beginPath();
  for (const [x0, x1, y] of lines) { context.moveTo(x0, y); context.lineTo(Math.max(x1, x0 + 1), y); }
  context.stroke();
}

/** The lower edge of a lane in the pane that shows it; null where neither does. */
function heightOf(panes, track, depth) {
  for (const pane of panes) {
    const row = pane.rows.byTrack.get(track);
    if (!row || !pane.height) continue;
    const y = laneTop(row, depth) - pane.scroll + laneHeight(row) - LINE_PX / 2;
    return y < 0 || y > pane.height ? null : pane.top + y;
  }
  return null;
}
