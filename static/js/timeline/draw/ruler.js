// Paints what stands above the tracks: the overview of the whole trace and the ruler with its steps and marks.

import { stepBands } from "./steps.js";
import { fit } from "./tracks.js";
import { mix, pixel, rgb, slot, EXACT } from "../model/palette.js";
import { ticks } from "../model/viewport.js";

export const OVERVIEW_PX = 52;
export const TICK_BAND = 22;
export const STEP_BAND = 17;
export const rulerHeight = (timeline) => TICK_BAND + (timeline.steps.length ? STEP_BAND : 0);
const HANDLE_PX = 6;
const GPU_LINES = 24;
const SINGLE_LINES = 8;         // with more lines than this all processes share one

/** Pixel of the overview for a time, and back. It ends where the timeline opens to, not at a mark far behind the work. */
export const overviewX = (timeline, ns, width) => ((ns - timeline.startNs) / (timeline.opening[1] - timeline.startNs)) * width;
export const overviewNs = (timeline, x, width) => timeline.startNs + (x / width) * (timeline.opening[1] - timeline.startNs);

/** What the overview would do at pixel x: move or size the window, or begin a new one. */
export function overviewPart(timeline, viewport, x) {
  const a = overviewX(timeline, viewport.start, viewport.width), b = overviewX(timeline, viewport.end, viewport.width);
  if (Math.abs(x - a) <= HANDLE_PX) return "start";
  if (Math.abs(x - b) <= HANDLE_PX) return "end";
  return x > a && x < b && !viewport.isWhole ? "window" : "new";
}

export class OverviewPainter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.density = document.createElement("canvas");
    this.key = "";
  }

  paint(scene) {
    const { context } = this, { viewport, palette, timeline, dpr } = scene;
    const width = viewport.width;
    fit(this.canvas, width, OVERVIEW_PX, dpr);
    this.refresh(scene, Math.max(Math.round(width * dpr), 1));
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    context.fillStyle = palette.panel;
    context.fillRect(0, 0, width, OVERVIEW_PX);
    context.imageSmoothingEnabled = false;
    if (this.lines) {
      const tall = (OVERVIEW_PX - 8) / this.lines;
      for (let i = 0; i < this.lines; i++) context.drawImage(this.density, 0, i, this.density.width, 1, 0, 4 + i * tall, width, Math.max(tall - (tall > 5 ? 2 : 0.5), 1));
    }
    const a = overviewX(timeline, viewport.start, width), b = overviewX(timeline, viewport.end, width);
    context.fillStyle = palette.bg;
    context.globalAlpha = 0.66;
    context.fillRect(0, 0, a, OVERVIEW_PX);
    context.fillRect(b, 0, width - b, OVERVIEW_PX);
    context.globalAlpha = 1;
    context.strokeStyle = palette.accent;
    context.lineWidth = 1.5;
    context.strokeRect(Math.max(a, 0) + 0.75, 0.75, Math.max(b - a, 2) - 1.5, OVERVIEW_PX - 1.5);
    if (viewport.isWhole) return;
    context.fillStyle = palette.accent;
    for (const x of [a, b]) context.fillRect(x - 1.5, OVERVIEW_PX / 2 - 8, 3, 16);
  }

  /** One line of pixels per group: how busy, in the colour of what it mostly did. */
  refresh({ timeline, palette }, width) {
    const { density } = timeline, key = `${density ? 1 : 0} ${width} ${palette.id}`;
    if (key === this.key) return;
    this.key = key;
    const groups = overviewGroups(timeline);
    this.lines = density ? groups.length : 0;
    if (!this.lines) return;
    const image = new ImageData(width, groups.length), pixels = new Uint32Array(image.data.buffer);
    groups.forEach((group, line) => paintDensity(pixels.subarray(line * width, (line + 1) * width), group, { density, timeline, palette, width }));
    fit(this.density, width, groups.length, 1);
    this.density.getContext("2d").putImageData(image, 0, 0);
  }
}

/** Groups worth a line of the overview: every GPU (the first of very many), then the processes: each its own, or one for all where they are many. */
export function overviewGroups(timeline) {
  const useful = timeline.wholeGroups.filter((g) => g.tracks.some((t) => t.slices > 0));
  const gpus = useful.filter((g) => g.tracks.some((t) => t.kind === "stream")).slice(0, GPU_LINES), others = useful.filter((g) => !gpus.includes(g));
  if (!others.length || gpus.length + others.length <= SINGLE_LINES) return [...gpus, ...others];
  return [...gpus, { name: `${others.length} processes`, tracks: others.flatMap((g) => g.tracks) }];
}

function paintDensity(line, group, { density: { bins, binNs, share, category }, timeline, palette, width }) {
  const tracks = group.tracks.filter((t) => t.slices > 0 && t.id * bins < share.length), isGpu = tracks.some((t) => t.kind === "stream");
  const full = 255 * (isGpu ? 1 : Math.max(tracks.length > SINGLE_LINES ? tracks.length / 2 : 1, 1));
  const perPixel = (timeline.opening[1] - timeline.startNs) / binNs / width;
  for (let x = 0; x < width; x++) {
    const from = Math.min(Math.floor(x * perPixel), bins - 1), to = Math.min(Math.max(Math.ceil((x + 1) * perPixel), from + 1), bins);
    let sum = 0, best = 0, top = 0;
    for (const track of tracks) {
      for (let bin = from; bin < to; bin++) {
        const value = share[track.id * bins + bin];
        sum += value;
        if (value > best) {
          best = value;
          top = category[track.id * bins + bin];
        }
      }
    }
    if (sum) line[x] = pixel(mix(palette.panelRgb, rgb(palette.fills[slot(EXACT, top, 0)]), 0.12 + 0.88 * Math.min(sum / (to - from) / full, 1)));
  }
}

export class RulerPainter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
  }

  /** @param {?string} owner whose steps stand in the band @returns {number} ns that the labels count from; 0 is the trace's start */
  paint(scene, owner = null) {
    const { context } = this, { viewport, palette, timeline, dpr } = scene;
    const height = rulerHeight(timeline);
    fit(this.canvas, viewport.width, height, dpr);
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    context.fillStyle = palette.panel;
    context.fillRect(0, 0, viewport.width, height);
    context.font = scene.font;
    const scaleMarks = ticks(viewport);
    this.ticks(scene, scaleMarks);
    if (timeline.steps.length) stepBands(context, scene, timeline.stepsOf(owner), TICK_BAND, STEP_BAND - 2);
    for (const mark of scene.marks) this.span(scene, mark.start, mark.end, palette.warn);
    const area = scene.selection.area;
    if (area) this.span(scene, area.start, area.end, palette.accent);
    context.fillStyle = palette.line;
    context.fillRect(0, height - 1, viewport.width, 1);
    return scaleMarks.base;
  }

  /** Up to the end of the trace; a label stands whole, at the left of its tick where the view ends, or not at all. */
  ticks({ viewport, palette, timeline, charPx }, { ticks: list, minor, step }) {
    const { context } = this, axisEnd = timeline.axisEnd(viewport);
    context.fillStyle = palette.line;
    const minorPx = minor / viewport.nsPerPx;
    const count = Math.round(step / minor);
    if (minorPx >= 5) {
      const first = (list[0]?.ns ?? viewport.start) - step;
      for (let i = 0; i < (list.length + 2) * count && first + i * minor <= axisEnd; i++) context.fillRect(Math.round(viewport.x(first + i * minor)), TICK_BAND - 4, 1, 4);
    }
    context.textBaseline = "middle";
    context.fillStyle = palette.muted;
    let free = 0;
    for (const tick of list) {
      if (tick.ns > axisEnd) break;
      const x = Math.round(tick.x), wide = tick.label.length * charPx + 4, left = x + wide <= viewport.width ? x + 4 : x - wide;
      context.fillRect(x, TICK_BAND - 9, 1, 9);
      if (left < free) continue;
      context.fillText(tick.label, left, TICK_BAND / 2 - 2);
      free = left + wide;
    }
  }

  /** A marked stretch of time with its duration between its ends. */
  span({ viewport, palette, charPx, units }, start, end, colour) {
    const { context } = this;
    const a = viewport.x(start), b = viewport.x(end);
    if (b < 0 || a > viewport.width) return;
    context.fillStyle = colour;
    context.globalAlpha = 0.2;
    context.fillRect(a, 0, Math.max(b - a, 1), TICK_BAND);
    context.globalAlpha = 1;
    for (const x of [a, b]) context.fillRect(Math.round(x), 0, 1.5, TICK_BAND);
    context.fillRect(a, TICK_BAND - 2, Math.max(b - a, 1), 2);
    const text = units.ns(end - start), left = Math.max(a, 0), wide = Math.min(b, viewport.width) - left;
    const textPx = text.length * charPx;
    if (wide < textPx + 12) return;
    const x = left + (wide - textPx) / 2;
    context.fillRect(x - 5, 2, textPx + 10, TICK_BAND - 7);
    context.fillStyle = palette["accent-ink"];
    context.fillText(text, x, TICK_BAND / 2 - 1.5);
  }
}
