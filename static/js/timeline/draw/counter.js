// Paints a counter's row: a stepped area over the window, a band where a pixel holds many samples, and the scale at its left.

import { COUNTER } from "../model/layout.js";
import { lowerBound } from "../model/model.js";

const TOP_PX = 5, BOTTOM_PX = 4;
const SCALE_MIN_PX = 34;
const SCALE_PX = 12;            // height of a value of the scale
const BYTES = new Set(["bytes", "B", "byte"]);

/** @param {CanvasRenderingContext2D} context @param {import("./tracks.js").Scene} scene */
export function counter(context, scene, row, top) {
  const { viewport, palette, tiles, timeline } = scene, { track } = row;
  const range = counterRange(tiles, timeline, track);
  if (!range) return;
  const bottom = top + row.height - BOTTOM_PX, tall = row.height - TOP_PX - BOTTOM_PX;
  const y = (value) => bottom - ((value - range.min) / (range.max - range.min || 1)) * tall;
  const steps = columns(scene, track.id);
  const end = Math.min(viewport.x(timeline.axisEnd(viewport)), viewport.width);
  if (steps.count) area(context, palette, end, steps, y, y(Math.max(range.min, Math.min(0, range.max))));
  if (row.height < COUNTER) return;
  grid(context, scene, row, range, y);
}

/** Pixel after pixel: the value that holds at its left, and the least and greatest on it. From a NaN on nothing is known. */
function area(context, palette, end, { count, x, low, high, last }, y, floor) {
  const right = (i) => (i + 1 < count ? x[i + 1] : Math.max(end, x[i]));
  const known = (i) => i >= 0 && i < count && !Number.isNaN(last[i]);
  context.beginPath();
  for (let i = 0; i < count; i++) {
    if (!known(i)) continue;
    if (!known(i - 1)) context.moveTo(x[i], floor);
    context.lineTo(x[i], y(last[i]));
    context.lineTo(right(i), y(last[i]));
    if (!known(i + 1)) context.lineTo(right(i), floor);
  }
  context.globalAlpha = 0.2;
  context.fillStyle = palette.accent;
  context.fill();
  context.globalAlpha = 0.45;
  for (let i = 0; i < count; i++) {
    if (high[i] > low[i]) context.fillRect(x[i], y(high[i]), 1, Math.max(y(low[i]) - y(high[i]), 1));
  }
  context.globalAlpha = 1;
  context.beginPath();
  for (let i = 0; i < count; i++) {
    if (!known(i)) continue;
    context[known(i - 1) ? "lineTo" : "moveTo"](x[i], y(last[i]));
    context.lineTo(right(i), y(last[i]));
  }
  context.strokeStyle = palette.accent;
  context.lineWidth = 1.2;
  context.stroke();
}

function grid(context, { viewport, palette, font, units, charPx }, row, range, y) {
  const unit = row.track.unit ?? "";
  context.fillStyle = palette.line;
  context.fillRect(0, Math.round(y(range.max)), viewport.width, 1);
  if (range.min < 0) context.fillRect(0, Math.round(y(0)), viewport.width, 1);
  context.font = font;
  const text = (value) => (BYTES.has(unit) ? units.bytes(value) : units.si(value, unit));
  if (range.max > range.min || range.max > 0) scale(context, palette, charPx, text(range.max), y(range.max) + 2);
  if (row.height >= SCALE_MIN_PX && (range.min < range.max || range.max <= 0)) scale(context, palette, charPx, text(range.min), y(range.min) - SCALE_PX);
}

/** A value of the scale, on a ground of its own: the line may pass behind it. */
function scale(context, palette, charPx, text, y) {
  context.globalAlpha = 0.8;
  context.fillStyle = palette.panel;
  context.fillRect(2, y, text.length * charPx + 4, SCALE_PX);
  context.globalAlpha = 1;
  context.fillStyle = palette.muted;
  context.textBaseline = "middle";
  context.fillText(text, 4, y + SCALE_PX / 2);
}

/** Least and greatest value of a counter (zero included): as the track says, else from its coarsest tile, which keeps both. */
export function counterRange(tiles, timeline, track) {
  if (Number.isFinite(track.least) && Number.isFinite(track.greatest)) return { min: Math.min(track.least, 0), max: Math.max(track.greatest, 0) };
  const tile = tiles.get(timeline.topLevel, 0, track.id)?.tile;
  if (!tile?.m) return null;
  tile.range ??= extent(tile.value);
  return tile.range;
}

function extent(values) {
  let min = 0, max = 0;
  for (const value of values) {
    if (value < min) min = value;
    if (value > max) max = value;
  }
  return { min, max };
}

const MOST = 8192;
const buffer = { count: 0, x: new Float64Array(MOST), low: new Float64Array(MOST), high: new Float64Array(MOST), last: new Float64Array(MOST) };

/** Samples of the window by pixel, begun with the value that holds when it opens. The answer is good until the next call. */
export function columns({ tiles, viewport, timeline }, track) {
  const level = viewport.level(timeline.topLevel);
  buffer.count = 0;
  const before = valueBefore(tiles, timeline, level, track, viewport.start);
  if (before !== null) put(0, before);
  for (const run of tiles.runs(track, level, viewport.start, viewport.end)) {
    for (const { tile } of run.tiles) {
      for (let i = lowerBound(tile.time, Math.max(run.from, viewport.start)); i < tile.m && tile.time[i] < run.to && tile.time[i] <= viewport.end; i++) put(viewport.x(tile.time[i]), tile.value[i]);
    }
  }
  return buffer;
}

function put(x, value) {
  const at = buffer.count - 1;
  if (at >= 0 && (x - buffer.x[at] < 1 || at + 1 >= MOST)) {
    if (!(value >= buffer.low[at])) buffer.low[at] = value;
    if (!(value <= buffer.high[at])) buffer.high[at] = value;
    buffer.last[at] = value;
    return;
  }
  buffer.x[at + 1] = x;
  buffer.low[at + 1] = buffer.high[at + 1] = buffer.last[at + 1] = value;
  buffer.count = at + 2;
}

function valueBefore(tiles, timeline, level, track, ns) {
  for (let k = level; k <= timeline.topLevel; k++) {
    const tile = tiles.get(k, tiles.indexOf(k, ns), track)?.tile;
    if (!tile) continue;
    const at = lowerBound(tile.time, ns + 1e-6) - 1;
    if (at >= 0) return tile.value[at];
  }
  return null;
}
