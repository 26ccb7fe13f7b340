// Paints what stands above the tracks: the overview of the whole trace and the ruler with its steps and marks.

import { fit } from "./draw.js";
import { ANNOTATIONS, CATEGORIES } from "./model.js";
import { mix, pixel, rgb, slot, EXACT } from "./palette.js";
import { ticks } from "./viewport.js";

export const OVERVIEW_PX = 52;
export const TICK_BAND = 22;
export const STEP_BAND = 17;
export const rulerHeight = (timeline) => TICK_BAND + (timeline.steps.length ? STEP_BAND : 0);
const HANDLE_PX = 6;
const THREAD_DEPTHS = 3;        // of a thread that its line of the overview is made of

/** Pixel of the overview for a time, and back. */
export const overviewX = (timeline, ns, width) => ((ns - timeline.startNs) / (timeline.endNs - timeline.startNs)) * width;
export const overviewNs = (timeline, x, width) => timeline.startNs + (x / width) * (timeline.endNs - timeline.startNs);

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
      for (let i = 0; i < this.lines; i++) context.drawImage(this.density, 0, i, this.density.width, 1, 0, 4 + i * tall, width, Math.max(tall - 2, 2));
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
  refresh({ tiles, timeline, palette }, width) {
    const key = `${tiles.version} ${width} ${palette.id}`;
    if (key === this.key) return;
    this.key = key;
    const groups = overviewGroups(timeline);
    this.lines = groups.length;
    if (!groups.length) return;
    const image = new ImageData(width, groups.length);
    const pixels = new Uint32Array(image.data.buffer);
    groups.forEach((group, line) => paintDensity(pixels.subarray(line * width, (line + 1) * width), group, { tiles, timeline, palette, width }));
    fit(this.density, width, groups.length, 1);
    this.density.getContext("2d").putImageData(image, 0, 0);
  }
}

/** Groups worth a line of the overview: GPUs first, then the processes with most slices. */
export function overviewGroups(timeline) {
  const weigh = (group) => group.tracks.reduce((sum, t) => sum + t.slices, 0);
  const isGpu = (group) => group.tracks.some((t) => t.kind === "stream");
  const useful = timeline.groups.filter((g) => weigh(g) > 0);
  return [...useful.filter(isGpu), ...useful.filter((g) => !isGpu(g)).sort((a, b) => weigh(b) - weigh(a)).slice(0, 2)].slice(0, 8);
}

function paintDensity(line, group, { tiles, timeline, palette, width }) {
  const gpu = group.tracks.some((t) => t.kind === "stream");
  const classes = CATEGORIES.length;
  const busy = new Float32Array(width * classes);
  const scale = width / (timeline.endNs - timeline.startNs);
  let tracks = 0;
  for (const track of group.tracks) {
    const runs = tiles.runs(track.id, tiles.overviewLevel, timeline.startNs, timeline.endNs);
    if (runs.length && track.slices) tracks++;
    for (const run of runs) for (const { tile, start } of run.tiles) addBusy(busy, tile, start, { gpu, scale, width, classes, origin: timeline.startNs });
  }
  const full = gpu ? 1 : Math.max(Math.min(tracks, 3), 1);
  for (let x = 0; x < width; x++) {
    let sum = 0, top = 0;
    for (let c = 0; c < classes; c++) {
      const share = busy[x * classes + c];
      sum += share;
      if (share > busy[x * classes + top]) top = c;
    }
    if (sum > 0) line[x] = pixel(mix(palette.panelRgb, rgb(palette.fills[slot(EXACT, top, 0)]), 0.12 + 0.88 * Math.min(sum / full, 1)));
  }
}

/** Add the share of each pixel that slices cover: work on GPU lanes at any depth, the outer slices of threads without annotations. */
function addBusy(busy, tile, tileStart, { gpu, scale, width, classes, origin }) {
  const rows = gpu ? tile.n : tile.depthFrom[Math.min(THREAD_DEPTHS, tile.depthFrom.length - 1)];
  for (let i = 0; i < rows; i++) {
    const category = tile.category[i];
    if ((gpu ? category > 3 : ANNOTATIONS.has(category)) || (tile.start[i] < tileStart && tileStart > origin)) continue;
    const a = Math.max((tile.start[i] - origin) * scale, 0), b = Math.min(a + tile.dur[i] * scale, width);
    for (let x = Math.floor(a); x < b; x++) busy[x * classes + category] += Math.min(b, x + 1) - Math.max(a, x);
  }
}

export class RulerPainter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
  }

  /** @returns {number} ns that the labels count from; 0 is the trace's start */
  paint(scene) {
    const { context } = this, { viewport, palette, timeline, dpr } = scene;
    const height = rulerHeight(timeline);
    fit(this.canvas, viewport.width, height, dpr);
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    context.fillStyle = palette.panel;
    context.fillRect(0, 0, viewport.width, height);
    context.font = scene.font;
    const scaleMarks = ticks(viewport);
    this.ticks(scene, scaleMarks);
    if (timeline.steps.length) this.steps(scene);
    for (const mark of scene.marks) this.span(scene, mark.start, mark.end, palette.warn);
    const area = scene.selection.area;
    if (area) this.span(scene, area.start, area.end, palette.accent);
    context.fillStyle = palette.line;
    context.fillRect(0, height - 1, viewport.width, 1);
    return scaleMarks.base;
  }

  ticks({ viewport, palette }, { ticks: list, minor, step }) {
    const { context } = this;
    context.fillStyle = palette.line;
    const minorPx = minor / viewport.nsPerPx;
    const count = Math.round(step / minor);
    if (minorPx >= 5) {
      const first = (list[0]?.ns ?? viewport.start) - step;
      for (let i = 0; i < (list.length + 2) * count; i++) context.fillRect(Math.round(viewport.x(first + i * minor)), TICK_BAND - 4, 1, 4);
    }
    context.textBaseline = "middle";
    for (const tick of list) {
      context.fillStyle = palette.muted;
      context.fillRect(Math.round(tick.x), TICK_BAND - 9, 1, 9);
      context.fillText(tick.label, Math.round(tick.x) + 4, TICK_BAND / 2 - 2);
    }
  }

  steps({ viewport, palette, timeline, charPx }) {
    const { context } = this;
    context.textBaseline = "middle";
    timeline.steps.forEach((step, i) => {
      const a = Math.max(viewport.x(step.start_ns), 0), b = Math.min(viewport.x(step.end_ns), viewport.width);
      if (b <= 0 || a >= viewport.width || b - a < 0.5) return;
      context.globalAlpha = i % 2 ? 0.16 : 0.3;
      context.fillStyle = palette.accent;
      context.fillRect(a, TICK_BAND, Math.max(b - a - 1, 1), STEP_BAND - 2);
      context.globalAlpha = 1;
      const room = Math.floor((b - a - 8) / charPx);
      if (room < 2) return;
      const text = step.name.length <= room ? step.name : shortStep(step.name, room);
      context.fillStyle = palette.text;
      context.fillText(text, a + 4, TICK_BAND + STEP_BAND / 2 - 1);
    });
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

/** "ProfilerStep#12" in few characters: its number says most. */
export function shortStep(name, room) {
  const number = /#?\d+$/.exec(name)?.[0] ?? "";
  if (number && number.length <= room && number.length + 3 > room) return number;
  return number && number.length + 3 <= room ? `${name.slice(0, room - number.length - 1)}…${number}` : `${name.slice(0, room - 1)}…`;
}
