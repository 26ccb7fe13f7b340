// Paints a pane's tracks on its canvas: a function of the scene, called at most once per animation frame.
//
// Slices are rastered into one line of pixels per depth and the line is stretched to the lane's height, so a frame costs
// what its pixels cost (a thousand slices or a million). Text, hatches and counters are drawn over it.

import { COUNTER, GROUP_DEPTHS, laneHeight, laneTop, rowsBetween } from "./layout.js";
import { ANNOTATIONS, firstEndingAfter, INSTANT, lowerBound, MERGED, SHADES } from "./model.js";
import { DIM, DIM_SOFT, EXACT, SOFT } from "./palette.js";
import { ticks } from "./viewport.js";

const LABEL_MIN_PX = 28;
const HATCH_MIN_PX = 5;

/**
 * @typedef {{timeline: import("./model.js").Timeline, viewport: import("./viewport.js").Viewport,
 *   tiles: import("./tiles.js").Tiles, palette: object, match: ?Uint8Array, dpr: number, font: string, charPx: number,
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
    this.texts = new Map();         // "name id * 512 + characters" -> shortened text
  }

  /**
   * @param {Scene} scene @param {import("./layout.js").Rows} rows
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
    const job = { lanes: [], labels: [], hatches: [], entries: 0 };
    this.prepareLines(viewport.width * dpr, height);
    for (const row of visible) {
      if (row.kind === "counter") this.counter(scene, row, row.y - scroll);
      else this.rasterRow(scene, row, scroll, height, job);
    }
    this.composeLanes(job, dpr);
    this.hatch(scene, job.hatches);
    this.write(scene, job.labels);
    return job.entries;
  }

  background(scene, rows, scroll, height) {
    const { context } = this, { viewport, palette, timeline } = scene;
    context.fillStyle = palette.raised;
    for (const row of rows) if (row.kind === "group") context.fillRect(0, row.y - scroll, viewport.width, row.height);
    context.fillStyle = palette.line;
    context.globalAlpha = 0.55;
    for (const tick of ticks(viewport).ticks) context.fillRect(Math.round(tick.x), 0, 1, height);
    context.globalAlpha = 1;
    for (const row of rows) context.fillRect(0, row.y - scroll + row.height - 1, viewport.width, 1);
    context.fillStyle = palette.accent;
    context.globalAlpha = 0.35;
    for (const step of timeline.steps) {
      const x = Math.round(viewport.x(step.start_ns));
      if (x >= 0 && x < viewport.width) context.fillRect(x, 0, 1, height);
    }
    context.globalAlpha = 1;
  }

  prepareLines(width, height) {
    const w = Math.max(Math.ceil(width), 1), lines = Math.ceil(height / 5) + 8;
    if (!this.image || this.image.width !== w || this.image.height < lines) {
      this.image = new ImageData(w, lines);
      this.pixels = new Uint32Array(this.image.data.buffer);
      fit(this.scratch, w, lines, 1);
    }
  }

  rasterRow(scene, row, scroll, height, job) {
    const { viewport, tiles, timeline } = scene;
    const level = viewport.level(timeline.topLevel);
    if (row.kind === "group") {
      if (!row.folded) return;
      const line = this.newLine(job, laneTop(row, 0) - scroll, laneHeight(row), true);
      for (const track of row.tracks) {
        if (track.kind === "counter") continue;
        const runs = tiles.runs(track.id, level, viewport.start, viewport.end);
        for (let depth = 0; depth < GROUP_DEPTHS; depth++) this.rasterLane(scene, runs, depth, line, job, false);
      }
      return;
    }
    const runs = tiles.runs(row.track.id, level, viewport.start, viewport.end);
    for (let depth = 0; depth < row.lanes; depth++) {
      const y = laneTop(row, depth) - scroll;
      if (y + row.lane <= 0 || y >= height) continue;
      this.rasterLane(scene, runs, depth, this.newLine(job, y, laneHeight(row)), job, !row.folded);
    }
  }

  newLine(job, y, height, workOnly = false) {
    const line = { at: job.lanes.length, y, height, workOnly };
    job.lanes.push(line);
    const w = this.image.width;
    this.pixels.fill(0, line.at * w, (line.at + 1) * w);
    return line;
  }

  /**
   * Slices of one depth as pixels of one line; what is wide enough is remembered for its text or hatch.
   * The line of a folded group leaves annotations out: they would cover the work.
   */
  rasterLane(scene, runs, depth, line, job, labelled) {
    const { viewport, palette, match, dpr, timeline } = scene, { pixels } = this, { pixels: colours } = palette;
    const shades = timeline.shades, width = this.image.width, base = line.at * width;
    const startNs = viewport.start, scale = (viewport.width * dpr) / viewport.span;
    const labelMin = LABEL_MIN_PX * dpr, hatchMin = HATCH_MIN_PX * dpr, gapMin = 3 * dpr;
    for (const run of runs) {
      const from = Math.max((run.from - startNs) * scale, 0), to = Math.min((run.to - startNs) * scale, width);
      const fromNs = Math.max(run.from, startNs);
      let lastPixel = -1, lastDur = 0;
      for (let t = 0; t < run.tiles.length; t++) {
        const { tile, start: tileStart } = run.tiles[t];
        if (depth + 1 >= tile.depthFrom.length) continue;
        const { start, dur, name, category, flags, count } = tile;
        const hi = tile.depthFrom[depth + 1];
        for (let i = firstEndingAfter(tile, tile.depthFrom[depth], hi, fromNs - 1 / scale); i < hi; i++) {
          const s = start[i];
          if (t > 0 && s < tileStart) continue;        // the tile before has drawn it
          if (line.workOnly && ANNOTATIONS.has(category[i])) continue;
          let a = (s - startNs) * scale;
          if (a >= to) break;
          const d = dur[i];
          let b = Math.min(a + d * scale, to);
          a = a < from ? from | 0 : a | 0;
          b |= 0;
          job.entries++;
          if (b <= a) {
            b = a + (flags[i] & INSTANT ? 2 : 1);
            if (a === lastPixel && d < lastDur) continue;
            lastPixel = a;
            lastDur = d;
          }
          const merged = flags[i] & MERGED, id = name[i];
          const variant = match && !match[id] ? (merged ? DIM_SOFT : DIM) : merged ? SOFT : EXACT;
          const colour = variant + category[i] * SHADES + (shades[id] | 0);
          const wide = b - a >= gapMin;
          pixels.fill(colours[colour], base + a, base + Math.min(wide && b < width ? b - 1 : b, width));
          if (!wide || !labelled) continue;
          if (merged && b - a >= hatchMin) job.hatches.push(a / dpr, line.y, (b - a) / dpr, line.height);
          if (b - a >= labelMin) job.labels.push({ x: a / dpr, w: (b - a) / dpr, y: line.y, h: line.height, name: id, colour, count: merged ? count[i] : 0 });
        }
      }
    }
  }

  composeLanes(job, dpr) {
    const { context, scratch, image } = this;
    if (!job.lanes.length) return;
    this.scratchContext.putImageData(image, 0, 0, 0, 0, image.width, job.lanes.length);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.imageSmoothingEnabled = false;
    for (const { at, y, height } of job.lanes) {
      const top = Math.round(y * dpr);
      context.drawImage(scratch, 0, at, image.width, 1, 0, top, image.width, Math.max(Math.round((y + height) * dpr) - top, 1));
    }
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
  }

  /** Merged entries are hatched: what is drawn there is many slices, not one. */
  hatch(scene, rects) {
    if (!rects.length) return;
    const { context } = this;
    context.beginPath();
    for (let i = 0; i < rects.length; i += 4) context.rect(rects[i], rects[i + 1], rects[i + 2] - 1, rects[i + 3]);
    context.fillStyle = hatchPattern(context, scene.palette.panel);
    context.fill();
  }

  /** Names in slices. Grouped by ink: setting the fill style is dearer than the text. */
  write(scene, labels) {
    const { context } = this, { palette, font, charPx, timeline } = scene;
    if (!labels.length) return;
    context.font = font;
    context.textBaseline = "middle";
    let ink = "";
    for (const label of labels) {
      const inner = label.w - 8, room = Math.floor(inner / charPx);
      const counted = label.count ? `×${label.count}` : "";
      const name = this.shorten(timeline, label.name, room - (counted ? counted.length + 1 : 0));
      const text = counted && name ? `${name} ${counted}` : name || (counted.length <= room ? counted : "");
      if (!text) continue;
      const next = palette.inks[label.colour];
      if (next !== ink) context.fillStyle = ink = next;
      const middle = label.y + label.h / 2 + 0.5;
      const slack = inner - text.length * charPx;
      context.fillText(text, label.x + 4 + Math.max(slack / 2, 0), middle);
    }
  }

  shorten(timeline, id, room) {
    if (room < 2) return "";
    const key = id * 512 + Math.min(room, 511);
    let text = this.texts.get(key);
    if (text === undefined) {
      const name = timeline.name(id);
      if (!timeline.names) return "";
      text = name.length <= room ? name : `${name.slice(0, room - 1)}…`;
      if (this.texts.size > 50000) this.texts.clear();
      this.texts.set(key, text);
    }
    return text;
  }

  /** A counter as a stepped area between its least and greatest value of the whole trace. */
  counter(scene, row, top) {
    const { context } = this, { viewport, palette, tiles, timeline } = scene;
    const range = counterRange(tiles, timeline, row.track.id);
    if (!range) return;
    const bottom = top + row.height - 3, tall = row.height - 8;
    const y = (value) => bottom - ((value - range.min) / (range.max - range.min || 1)) * tall;
    const points = counterPoints(scene, row.track.id);
    if (!points.length) return;
    context.beginPath();
    context.moveTo(viewport.x(points[0].time), y(points[0].value));
    for (let i = 1; i < points.length; i++) {
      context.lineTo(viewport.x(points[i].time), y(points[i - 1].value));
      context.lineTo(viewport.x(points[i].time), y(points[i].value));
    }
    context.lineTo(viewport.width, y(points.at(-1).value));
    context.strokeStyle = palette.accent;
    context.lineWidth = 1.2;
    context.stroke();
    context.lineTo(viewport.width, y(Math.max(range.min, Math.min(0, range.max))));
    context.lineTo(viewport.x(points[0].time), y(Math.max(range.min, Math.min(0, range.max))));
    context.globalAlpha = 0.22;
    context.fillStyle = palette.accent;
    context.fill();
    context.globalAlpha = 1;
    if (row.height < COUNTER) return;
    context.fillStyle = palette.muted;
    context.font = scene.font;
    context.textBaseline = "top";
    context.fillText(scene.units.si(range.max, row.track.unit ?? ""), 4, top + 3);
  }
}

/** Least and greatest value of a counter (zero included): the coarsest tile keeps both. */
export function counterRange(tiles, timeline, track) {
  const tile = tiles.get(timeline.topLevel, 0, track)?.tile;
  if (!tile?.m) return null;
  let min = 0, max = 0;
  for (const value of tile.value) {
    if (value < min) min = value;
    if (value > max) max = value;
  }
  return { min, max };
}

/** Samples of the visible window, begun with the value that holds when it opens. */
export function counterPoints({ tiles, viewport, timeline }, track) {
  const level = viewport.level(timeline.topLevel);
  const points = [];
  for (const run of tiles.runs(track, level, viewport.start, viewport.end)) {
    for (const { tile } of run.tiles) {
      for (let i = lowerBound(tile.time, run.from); i < tile.m && tile.time[i] < run.to && tile.time[i] <= viewport.end; i++) {
        if (tile.time[i] >= viewport.start) points.push({ time: tile.time[i], value: tile.value[i] });
      }
    }
  }
  const before = valueBefore(tiles, timeline, level, track, points[0]?.time ?? viewport.end, viewport.start);
  if (before !== null) points.unshift({ time: viewport.start, value: before });
  return points;
}

function valueBefore(tiles, timeline, level, track, firstTime, ns) {
  for (let k = level; k <= timeline.topLevel; k++) {
    const tile = tiles.get(k, tiles.indexOf(k, ns), track)?.tile;
    if (!tile) continue;
    const at = lowerBound(tile.time, Math.min(ns, firstTime)) - 1;
    if (at >= 0) return tile.value[at];
  }
  return null;
}

const patterns = new Map();
function hatchPattern(context, colour) {
  const known = patterns.get(colour);
  if (known) return known;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const c = tile.getContext("2d");
  c.strokeStyle = colour;
  c.globalAlpha = 0.55;
  c.lineWidth = 1.5;
  c.beginPath();
  for (const x of [-6, 0, 6]) { c.moveTo(x, 6); c.lineTo(x + 6, 0); }
  c.stroke();
  const pattern = context.createPattern(tile, "repeat");
  patterns.set(colour, pattern);
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
