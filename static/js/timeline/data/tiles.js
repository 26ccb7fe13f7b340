// Which tiles a window needs, fetching them, keeping the most recent within a budget of bytes, and finding what to draw
// while finer ones are under way.
//
// What is fetched and kept is a unit: four depths of one track. A stack of sixty depths costs what its visible part costs,
// and a request takes as many units as fit in some 80 kB.

import { decodeUnits } from "../model/model.js";

const MAX_BYTES = 40 * 2 ** 20;     // the process holds some three times as much: what was freed stays with its allocator for a while
const MAX_INFLIGHT = 5;
const SETTLE_MS = 35;           // a fast zoom passes levels quicker than this: they are never asked for
const RETRIES_MS = [400, 1500, 4000];
const ROWS_PER_REQUEST = 6000;  // of some 13 compressed bytes
const UNITS_PER_REQUEST = 48;
const COARSER = 2;              // levels: what is fetched around the window in one tile, to pan into
export const BAND = 4;                 // depths of a unit
const BANDS = 2 ** 14;

/** Tracks from this number on are lanes of kernels: other addresses answer for them, so no request holds both kinds. */
export const FIRST_KERNEL_LANE = 2 ** 20;
export const isKernelLane = (track) => track >= FIRST_KERNEL_LANE;

/** Number of the unit that holds a depth of a track, and what a unit stands for. */
export const unitOf = (track, depth) => track * BANDS + Math.floor(depth / BAND);
export const unitTrack = (unit) => Math.floor(unit / BANDS);
export const unitDepth = (unit) => (unit % BANDS) * BAND;

/**
 * @typedef {{level: number, from: number, to: number, tiles: {tile: import("../model/model.js").TrackTile, start: number}[]}} Run
 *   Neighbouring tiles of one level that together cover [from, to); each `start` is where its tile begins.
 */
export class Tiles {
  /**
   * @param {{fetchTile: (level: number, index: number, units: number[], signal: AbortSignal) => Promise<ArrayBuffer>, endNs: number,
   *   topLevel: number, tileBins: number, onChange: () => void, onError: (error: Error) => void, tracks?: Map<number, object>,
   *   maxBytes?: number, retriesMs?: number[]}} options
   */
  constructor({ fetchTile, endNs, topLevel, tileBins, onChange, onError, tracks = new Map(), maxBytes = MAX_BYTES, retriesMs = RETRIES_MS }) {
    Object.assign(this, { fetchTile, endNs, topLevel, tileBins, onChange, onError, tracks, maxBytes, retriesMs });
    /** @type {Map<string, Map<number, {tile: object, batch: object}>>} "level/index" -> unit */
    this.cells = new Map();
    this.batches = new Set();       // in order of last use: the first is the next to go
    this.bytes = 0;
    this.inflight = new Map();      // "level/index/first unit" -> request
    this.failures = new Map();      // "level/index" -> {tries, notBefore}
    this.queue = [];
    this.version = 0;
    this.runCache = new Map();
    this.timer = 0;
    this.wanted = null;
    this.isHeld = false;
  }

  get pending() {
    let waiting = this.inflight.size;
    for (const request of this.queue) if (!this.isGivenUp(request)) waiting++;
    return waiting;
  }

  isGivenUp(request) { return this.failures.get(request.cell)?.notBefore === Infinity; }
  tileSpan(level) { return this.tileBins * 4 ** level; }

  /**
   * Say what is on screen; call it on every frame whose window or rows changed.
   * @param {number} level @param {number} start @param {number} end @param {number[]} units visible ones, ascending
   * @param {number[]} [near] units beyond the edges: fetched last
   */
  want(level, start, end, units, near = []) {
    const { wanted } = this, first = this.indexOf(level, start), last = this.indexOf(level, end);
    if (wanted && wanted.level === level && wanted.first === first && wanted.last === last && same(wanted.units, units) && same(wanted.near, near)) return;
    this.wanted = { level, first, last, units, near };
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.plan(), this.cells.size && level !== this.plannedLevel ? SETTLE_MS : 0);
  }

  /** Ask for nothing but the coarsest tile while a page is about to go elsewhere. @param {boolean} on */
  hold(on) {
    this.isHeld = on;
    this.wanted = null;
  }

  indexOf(level, ns) {
    return Math.floor(Math.min(Math.max(ns, 0), this.endNs - 1) / this.tileSpan(level));
  }

  /** Build the queue anew: the coarsest tile of new units, the window from its middle, one coarser tile around it, then the sides. */
  plan() {
    if (!this.wanted) return;
    const { level, first, last, units, near } = this.wanted;
    this.plannedLevel = level;
    this.queue = [];
    this.wantedCells = new Set();
    this.ask(this.topLevel, 0, units);
    if (this.isHeld) { this.pump(); return; }
    const middle = (first + last) / 2, order = Array.from({ length: last - first + 1 }, (_, i) => first + i).sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle));
    for (const index of order) this.ask(level, index, units);
    const coarse = Math.min(level + COARSER, this.topLevel), from = Math.floor(first / 4 ** (coarse - level)), to = Math.floor(last / 4 ** (coarse - level));
    for (let index = from; index <= to; index++) this.ask(coarse, index, units);
    const lastOfAll = this.indexOf(level, this.endNs);
    if (last < lastOfAll) this.ask(level, last + 1, units);
    if (first > 0) this.ask(level, first - 1, units);
    if (near.length) this.ask(coarse, Math.floor(middle / 4 ** (coarse - level)), near);
    for (const request of this.inflight.values()) if (!this.wantedCells.has(request.cell)) request.controller.abort();
    this.pump();
  }

  /** Put what is missing of a tile in the queue, in requests of a bounded size. */
  ask(level, index, units) {
    const cell = `${level}/${index}`, held = this.cells.get(cell);
    this.wantedCells.add(cell);
    let request = null, rows = 0;
    for (const unit of units) {
      if (held?.has(unit) || this.isUnderWay(cell, unit)) continue;
      const more = this.likelyRows(level, unit);
      const isOther = request && isKernelLane(unitTrack(unit)) !== isKernelLane(unitTrack(request.units[0]));
      if (!request || isOther || rows + more > ROWS_PER_REQUEST || request.units.length >= UNITS_PER_REQUEST) {
        request = { level, index, cell, units: [] };
        rows = 0;
        this.queue.push(request);
      }
      request.units.push(unit);
      rows += more;
    }
  }

  /** Rows that a unit may have in a tile: as many as its track's slices would give if they were spread evenly, one or two per bin at most. */
  likelyRows(level, unit) {
    const track = this.tracks.get(unitTrack(unit));
    if (!track) return ROWS_PER_REQUEST / UNITS_PER_REQUEST;
    const depths = Math.max(Math.min(track.depths - unitDepth(unit), BAND), 1), share = Math.min(this.tileSpan(level) / this.endNs, 1);
    const spread = (track.slices / Math.max(track.depths, 1)) * share * 4;
    return (Math.min(spread, 1.2 * this.tileBins) + 8) * depths;
  }

  isUnderWay(cell, unit) {
    for (const r of this.inflight.values()) if (r.cell === cell && !r.controller.signal.aborted && r.units.includes(unit)) return true;
    return false;
  }

  pump() {
    const now = Date.now();
    while (this.inflight.size < MAX_INFLIGHT) {
      const at = this.queue.findIndex((r) => (this.failures.get(r.cell)?.notBefore ?? 0) <= now);
      if (at < 0) break;
      this.load(this.queue.splice(at, 1)[0]);
    }
    this.onChange();
  }

  async load(request) {
    const key = `${request.cell}/${request.units[0]}`;
    request.controller = new AbortController();
    this.inflight.set(key, request);
    try {
      const buffer = await this.fetchTile(request.level, request.index, request.units, request.controller.signal);
      this.store(request, decodeUnits(buffer), buffer.byteLength);
      this.failures.delete(request.cell);
    } catch (error) {
      if (error.name !== "AbortError") this.failed(request, error);
    } finally {
      if (this.inflight.get(key) === request) this.inflight.delete(key);
      this.pump();
    }
  }

  failed(request, error) {
    const tries = (this.failures.get(request.cell)?.tries ?? 0) + 1, wait = this.retriesMs[tries - 1];
    this.failures.set(request.cell, { tries, notBefore: wait ? Date.now() + wait : Infinity });
    this.queue.push(request);
    if (wait) setTimeout(() => this.pump(), wait + 1);
    else this.onError(error);
  }

  /** Ask again for what could not be had. */
  retry() {
    this.failures.clear();
    this.plan();
  }

  store({ cell, level }, units, bytes) {
    const batch = { cell, units: units.map(({ track, first }) => unitOf(track, first)), bytes: Math.max(bytes, 256), keep: level === this.topLevel };
    if (!this.cells.has(cell)) this.cells.set(cell, new Map());
    const held = this.cells.get(cell);
    units.forEach(({ tile }, i) => held.set(batch.units[i], { tile, batch }));
    this.batches.add(batch);
    this.bytes += batch.bytes;
    this.evict(batch);
    this.version++;
    this.runCache.clear();
  }

  /** Forget what was used longest ago; the coarsest tiles last, because they stand in for all others. */
  evict(newest) {
    for (const keep of [false, true]) {
      for (const batch of this.batches) {
        if (this.bytes <= this.maxBytes) return;
        if (batch.keep !== keep || batch === newest) continue;
        this.batches.delete(batch);
        this.bytes -= batch.bytes;
        const cell = this.cells.get(batch.cell);
        for (const unit of batch.units) if (cell?.get(unit)?.batch === batch) cell.delete(unit);
        if (cell && !cell.size) this.cells.delete(batch.cell);
      }
    }
  }

  /** What is here of a tile: the unit with a depth of a track. */
  get(level, index, track, depth = 0) {
    return this.cells.get(`${level}/${index}`)?.get(unitOf(track, depth));
  }

  /**
   * What to draw of a track's depths (the four of a unit, `depth` being one of them) between start and end: tiles of
   * `level` where they are here, else the nearest coarser ones.
   * @returns {Run[]} ordered by time, without overlap
   */
  runs(track, level, start, end, depth = 0) {
    const first = this.indexOf(level, start), last = this.indexOf(level, end), unit = unitOf(track, depth);
    const known = this.runCache.get(unit);
    if (known && known.level === level && known.first === first && known.last === last) return known.runs;
    const runs = [];
    for (let index = first; index <= last; index++) this.appendRun(runs, unit, level, index);
    this.runCache.set(unit, { level, first, last, runs });
    return runs;
  }

  appendRun(runs, unit, level, index) {
    const span = this.tileSpan(level);
    for (let k = level, i = index; k <= this.topLevel; k++, i = Math.floor(i / 4)) {
      const found = this.cells.get(`${k}/${i}`)?.get(unit);
      if (!found) continue;
      this.batches.delete(found.batch);       // most recently used goes last
      this.batches.add(found.batch);
      const open = runs.at(-1);
      const joins = open && open.level === k && open.to === index * span;
      if (!joins) {
        runs.push({ level: k, from: index * span, to: (index + 1) * span, tiles: [{ tile: found.tile, start: i * this.tileSpan(k) }] });
        return;
      }
      open.to = (index + 1) * span;
      if (open.tiles.at(-1).tile !== found.tile) open.tiles.push({ tile: found.tile, start: i * this.tileSpan(k) });
      return;
    }
  }

  /** Are all tiles of the window in their own resolution here? */
  isComplete(level, start, end, units) {
    for (let i = this.indexOf(level, start); i <= this.indexOf(level, end); i++) {
      for (const unit of units) if (!this.cells.get(`${level}/${i}`)?.has(unit)) return false;
    }
    return true;
  }
}

function same(a, b) {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}
