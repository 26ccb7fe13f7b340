// Paints a pane's tracks on its canvas: a function of the scene, called at most once per animation frame.
//
// Slices are rastered into one line of pixels per depth and the line is stretched to the lane's height, so a frame costs
// what its pixels cost (a thousand slices or a million). Text, hatches and counters are drawn over it. Measured in headless
// Chromium without a GPU, 44 lanes of 1,220 px with a slice per pixel: lines stretched 1.9 ms, whole lanes as pixels 3.6 ms.
// What a frame remembers (labels, hatches, lines) lies in columns that are made once.

import { counter } from "./counter.js";
import { SliceNames } from "./names.js";
import { draws, GROUP_DEPTHS, laneHeight, laneTop, rowsBetween } from "../model/layout.js";
import { ANNOTATIONS, CATEGORIES, firstEndingAfter, INSTANT, MERGED, OVERFLOW, SHADES } from "../model/model.js";
import { DIM, DIM_SOFT, EXACT, ownSlot, soft } from "../model/palette.js";
import { BAND } from "../data/tiles.js";
import { ticks } from "../model/viewport.js";
import { firstStep, stepBands } from "./steps.js";

const OWN_FROM = CATEGORIES.findIndex((category) => !category.gpu);      // what a GPU runs keeps the colour of its category
const LABEL_MIN_PX = 28;
const HATCH_MIN_PX = 5;
const MOST_HATCHES = 4096;
const MOST_LINES = 512;

/**
 * @typedef {{timeline: import("../model/model.js").Timeline, viewport: import("../model/viewport.js").Viewport,
 *   tiles: import("../data/tiles.js").Tiles, palette: object, match: ?Uint8Array, dpr: number, font: string, charPx: number,
 *   selection: object, hover: ?object, marks: object[], hits: object[]}} Scene
 */
export class TrackPainter {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.scratch = document.createElement("canvas");
    this.scratchContext = this.scratch.getContext("2d");
    this.image = null;
    this.names = new SliceNames(this.context);
    this.lines = { count: 0, y: new Float32Array(MOST_LINES), height: new Float32Array(MOST_LINES) };
    this.hatches = { count: 0, x: new Float32Array(MOST_HATCHES), width: new Float32Array(MOST_HATCHES), line: new Uint16Array(MOST_HATCHES), overflow: new Uint8Array(MOST_HATCHES) };
    this.entries = 0;
  }

  /**
   * @param {Scene} scene @param {import("../model/layout.js").Rows} rows
   * @param {number} scroll top of the pane in its content, CSS pixels @param {number} height of the pane
   * @returns {number} slices and merged entries looked at
   */
  paint(scene, rows, scroll, height) {
    const { context } = this, { dpr, viewport, palette } = scene;
    fit(this.canvas, viewport.width, height, dpr);
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    context.fillStyle = palette.panel;
    context.fillRect(0, 0, viewport.width, height);
    const visible = rowsBetween(rows, scroll, scroll + height);
    this.background(scene, visible, scroll, height);
    this.lines.count = this.names.count = this.hatches.count = this.entries = 0;
    this.prepareLines(viewport.width * dpr, height);
    for (const row of visible) {
      if (row.kind === "counter") counter(context, scene, row, row.y - scroll);
      else this.rasterRow(scene, row, scroll, height);
    }
    this.composeLanes(dpr);
    this.hatch(scene);
    this.names.write(scene, this.lines);
    return this.entries;
  }

  background(scene, rows, scroll, height) {
    const { context } = this, { viewport, palette, timeline } = scene, axisEnd = timeline.axisEnd(viewport);
    if (viewport.end > axisEnd) {               // behind the end of the trace there is nothing
      context.fillStyle = palette.bg;
      context.fillRect(viewport.x(axisEnd), 0, viewport.width, height);
    }
    context.fillStyle = palette.raised;
    for (const row of rows) if (row.kind === "group") context.fillRect(0, row.y - scroll, viewport.width, row.height);
    context.fillStyle = palette.line;
    context.globalAlpha = 0.55;
    for (const tick of ticks(viewport).ticks) if (tick.ns <= axisEnd) context.fillRect(Math.round(tick.x), 0, 1, height);
    context.globalAlpha = 1;
    for (const row of rows) context.fillRect(0, row.y - scroll + row.height - 1, viewport.width, 1);
    this.steps(scene, rows, scroll);
  }

  /** Steps over the rows of those who took them; on the first row of each of several, their bands with their names. */
  steps(scene, rows, scroll) {
    const { timeline } = scene;
    for (let from = 0, to; from < rows.length; from = to) {
      const owner = timeline.rowOwner(rows[from]), steps = timeline.stepsOf(owner), row = rows[from];
      for (to = from + 1; to < rows.length && timeline.rowOwner(rows[to]) === owner;) to++;
      const last = rows[to - 1];
      this.stepLines(scene.viewport, steps, scene.palette, row.y - scroll, last.y + last.height - row.y);
      if (owner && row.kind === "group" && !row.folded) stepBands(this.context, scene, steps, row.y - scroll + 4, row.height - 8);
    }
  }

  /** Where steps begin; not when they stand so close that they would be a curtain. */
  stepLines(viewport, steps, palette, y, height) {
    const { context } = this, first = firstStep(steps, viewport.start);
    let drawn = 0;
    context.fillStyle = palette.accent;
    context.globalAlpha = 0.35;
    for (let i = first, last = -Infinity, free = -Infinity; i < steps.length && steps[i].start_ns <= viewport.end && drawn < 400; i++) {
      const x = Math.round(viewport.x(steps[i].start_ns));
      if (x < 0 || x - last < 3 || steps[i].start_ns < free) continue;       // of several ranks: those of the one that came first
      free = steps[i].end_ns;
      context.fillRect(x, y, 1, height);
      last = x;
      drawn++;
    }
    context.globalAlpha = 1;
  }

  prepareLines(width, height) {
    const w = Math.max(Math.ceil(width), 1), lines = Math.min(Math.ceil(height / 5) + 8, MOST_LINES);
    if (!this.image || this.image.width !== w || this.image.height < lines) {
      this.image = new ImageData(w, lines);
      this.pixels = new Uint32Array(this.image.data.buffer);
      fit(this.scratch, w, lines, 1);
    }
  }

  rasterRow(scene, row, scroll, height) {
    const { viewport, tiles, timeline } = scene;
    const level = viewport.level(timeline.topLevel);
    if (row.kind === "group") {
      if (!draws(row)) return;
      const line = this.newLine(laneTop(row, 0) - scroll, laneHeight(row));
      for (const track of row.tracks) {
        if (track.kind === "counter") continue;
        const runs = tiles.runs(track.id, level, viewport.start, viewport.end);
        for (let depth = 0; depth < GROUP_DEPTHS; depth++) this.rasterLane(scene, runs, depth, line, false, true);
      }
      return;
    }
    const first = Math.max(Math.floor((scroll - row.y) / row.lane) - 1, 0);
    let runs = null;
    for (let depth = first; depth < row.lanes; depth++) {
      const y = laneTop(row, depth) - scroll;
      if (y + row.lane <= 0) continue;
      if (y >= height) break;
      if (!runs || depth % BAND === 0) runs = tiles.runs(row.track.id, level, viewport.start, viewport.end, depth);
      this.rasterLane(scene, runs, depth, this.newLine(y, laneHeight(row)), !row.folded, false);
    }
  }

  newLine(y, height) {
    const { lines } = this, at = Math.min(lines.count, this.image.height - 1), w = this.image.width;
    lines.y[at] = y;
    lines.height[at] = height;
    lines.count = at + 1;
    this.pixels.fill(0, at * w, (at + 1) * w);
    return at;
  }

  /**
   * Slices of one depth as pixels of one line; what is wide enough is remembered for its text or hatch.
   * The line of a folded group leaves annotations out: they would cover the work.
   */
  rasterLane(scene, runs, depth, line, labelled, workOnly) {
    const { viewport, palette, match, dpr, timeline } = scene, { pixels } = this, { pixels: colours } = palette;
    const { shades, own } = timeline, width = this.image.width, base = line * width;
    const startNs = viewport.start, scale = (viewport.width * dpr) / viewport.span;
    const labelMin = LABEL_MIN_PX * dpr, hatchMin = HATCH_MIN_PX * dpr, gapMin = 3 * dpr;
    for (const run of runs) {
      const from = Math.max((run.from - startNs) * scale, 0), to = Math.min((run.to - startNs) * scale, width);
      const fromNs = Math.max(run.from, startNs);
      let lastPixel = -1, lastDur = 0;
      for (let t = 0; t < run.tiles.length; t++) {
        const { tile, start: tileStart } = run.tiles[t];
        if (depth + 1 >= tile.depthFrom.length) continue;
        const { start, dur, name, category, flags, fill } = tile;
        const hi = tile.depthFrom[depth + 1];
        for (let i = firstEndingAfter(tile, tile.depthFrom[depth], hi, fromNs - 1 / scale); i < hi; i++) {
          const s = start[i];
          if (t > 0 && s < tileStart) continue;        // the tile before has drawn it
          if (workOnly && ANNOTATIONS.has(category[i])) continue;
          let a = (s - startNs) * scale;
          if (a >= to) break;
          const d = dur[i];
          let b = Math.min(a + d * scale, to);
          a = a < from ? from | 0 : a | 0;
          b |= 0;
          this.entries++;
          const flag = flags[i];
          if (b <= a) {
            b = a + (flag & INSTANT ? 2 : 1);
            if (a === lastPixel && d < lastDur) continue;
            lastPixel = a;
            lastDur = d;
          }
          const merged = flag & MERGED, id = name[i];
          const variant = match && !match[id] ? (merged ? DIM_SOFT : DIM) : merged ? soft(fill[i]) : EXACT;
          const colour = own[id] && category[i] >= OWN_FROM ? ownSlot(variant, own[id]) : variant + category[i] * SHADES + (shades[id] | 0);
          if (b - a < gapMin) {
            const end = base + (b < width ? b : width), value = colours[colour];
            for (let p = base + a; p < end; p++) pixels[p] = value;
            continue;
          }
          pixels.fill(colours[colour], base + a, base + (b < width ? b - 1 : b));
          if (!labelled) continue;
          if ((merged || flag & OVERFLOW) && b - a >= hatchMin) this.addHatch(a / dpr, (b - a) / dpr, line, flag & OVERFLOW);
          if (b - a >= labelMin) this.names.add(a / dpr, (b - a) / dpr, line, id, colour, merged ? tile.count[i] : 0);
        }
      }
    }
  }

  addHatch(x, width, line, overflow) {
    const { hatches } = this, at = hatches.count;
    if (at >= MOST_HATCHES) return;
    hatches.x[at] = x;
    hatches.width[at] = width;
    hatches.line[at] = line;
    hatches.overflow[at] = overflow ? 1 : 0;
    hatches.count = at + 1;
  }

  composeLanes(dpr) {
    const { context, scratch, image, lines } = this;
    if (!lines.count) return;
    this.scratchContext.putImageData(image, 0, 0, 0, 0, image.width, lines.count);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.imageSmoothingEnabled = false;
    for (let at = 0; at < lines.count; at++) {
      const top = Math.round(lines.y[at] * dpr);
      context.drawImage(scratch, 0, at, image.width, 1, 0, top, image.width, Math.max(Math.round((lines.y[at] + lines.height[at]) * dpr) - top, 1));
    }
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
  }

  /**
   * Merged entries are hatched: what is drawn there is many slices, not one. Slices that overlap another in part, and so
   * stand on a lane that is no nesting, are hatched the other way.
   */
  hatch(scene) {
    const { context, hatches, lines } = this;
    for (const overflow of [0, 1]) {
      let any = false;
      context.beginPath();
      for (let i = 0; i < hatches.count; i++) {
        if (hatches.overflow[i] !== overflow) continue;
        const line = hatches.line[i];
        context.rect(hatches.x[i], lines.y[line], hatches.width[i] - 1, lines.height[line]);
        any = true;
      }
      if (!any) continue;
      context.fillStyle = hatchPattern(context, overflow ? scene.palette.text : scene.palette.panel, overflow);
      context.fill();
    }
  }
}

const patterns = new Map();
function hatchPattern(context, colour, isRising) {
  const key = `${colour} ${isRising}`, known = patterns.get(key);
  if (known) return known;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const c = tile.getContext("2d");
  c.strokeStyle = colour;
  c.globalAlpha = isRising ? 0.4 : 0.55;
  c.lineWidth = 1.5;
  c.beginPath();
  for (const x of [-6, 0, 6]) {
    c.moveTo(x, isRising ? 0 : 6);
    c.lineTo(x + 6, isRising ? 6 : 0);
  }
  c.stroke();
  const pattern = context.createPattern(tile, "repeat");
  patterns.set(key, pattern);
  return pattern;
}

export function textWidth(context, font, text) {
  context.font = font;
  return context.measureText(text).width;
}

/** Give a canvas the device pixels of its CSS size. Only when it changed: setting a size clears it. */
export function fit(canvas, width, height, dpr) {
  const w = Math.max(Math.round(width * dpr), 1), h = Math.max(Math.round(height * dpr), 1);
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
}
