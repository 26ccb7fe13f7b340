// The only module that talks to the server: which tiles a window needs, fetching them in batches of tracks, keeping the
// most recent within a budget of bytes, and finding what to draw while finer ones are under way.

import { decodeTile } from "./model.js";

const MAX_BYTES = 128 * 2 ** 20;
const MAX_INFLIGHT = 5;
const SETTLE_MS = 35;           // a fast zoom passes levels quicker than this: they are never asked for
const RETRIES_MS = [400, 1500, 4000];
const OVERVIEW_TRACKS = 64;

/** Addresses of one profile's timeline API and the two ways to read them. */
export class Api {
  /** @param {string} base "/api/profiles/3/" @param {(url: string, options?: object) => Promise<any>} getJson */
  constructor(base, getJson) {
    this.base = base;
    this.getJson = getJson;
  }

  url(path, parameters = {}) {
    const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null));
    return `${this.base}${path}${query.size ? `?${query}` : ""}`;
  }

  timeline() { return this.getJson(this.url("timeline/")); }
  names() { return this.getJson(this.url("names/")); }
  slice(id, signal) { return this.getJson(this.url(`slices/${id}/`), { signal }); }
  slices(parameters, signal) { return this.getJson(this.url("slices/", parameters), { signal }); }
  selection(parameters, signal) { return this.getJson(this.url("selection/", parameters), { signal }); }

  async tile(level, index, tracks, signal) {
    const answer = await fetch(this.url(`tiles/${level}/${index}/`, { tracks: tracks.join(",") }), { signal, credentials: "same-origin" })
      .catch((error) => { throw error.name === "AbortError" ? error : new Error("the server cannot be reached"); });
    if (!answer.ok) {
      const problem = await answer.json().catch(() => ({}));
      throw Object.assign(new Error(problem.error ?? problem.detail ?? `the server answered ${answer.status}`), { status: answer.status });
    }
    return answer.arrayBuffer();
  }
}

/**
 * @typedef {{level: number, from: number, to: number, tiles: {tile: import("./model.js").TrackTile, start: number}[]}} Run
 *   Neighbouring tiles of one level that together cover [from, to); each `start` is where its tile begins.
 */
export class Tiles {
  /**
   * @param {{fetchTile: Function, endNs: number, topLevel: number, tileBins: number, onChange: () => void,
   *   onError: (error: Error) => void, maxBytes?: number, retriesMs?: number[]}} options
   */
  constructor({ fetchTile, endNs, topLevel, tileBins, onChange, onError, maxBytes = MAX_BYTES, retriesMs = RETRIES_MS }) {
    Object.assign(this, { fetchTile, endNs, topLevel, tileBins, onChange, onError, maxBytes, retriesMs });
    /** @type {Map<string, {tracks: Map<number, {tile: object, batch: object}>}>} by "level/index" */
    this.cells = new Map();
    this.batches = new Set();       // in order of last use: the first is the next to go
    this.bytes = 0;
    this.inflight = new Map();      // "level/index/tracks" -> {controller, level, index, tracks}
    this.failures = new Map();      // "level/index" -> {tries, notBefore}
    this.queue = [];
    this.version = 0;
    this.runCache = new Map();
    this.timer = 0;
    this.overviewTracks = [];
  }

  get overviewLevel() { return Math.max(this.topLevel - 1, 0); }
  get pending() { return this.queue.filter((r) => !this.isGivenUp(r)).length + this.inflight.size; }
  isGivenUp(request) { return this.failures.get(`${request.level}/${request.index}`)?.notBefore === Infinity; }
  tileSpan(level) { return this.tileBins * 4 ** level; }

  /** Tracks whose coarse tiles are always kept: the overview draws them. */
  setOverview(tracks) {
    this.overviewTracks = tracks.slice(0, OVERVIEW_TRACKS);
  }

  /**
   * Say what is on screen; call it on every frame whose window or rows changed.
   * @param {number} level @param {number} start @param {number} end @param {number[]} tracks visible ones
   */
  want(level, start, end, tracks) {
    const key = `${level} ${this.indexOf(level, start)} ${this.indexOf(level, end)} ${tracks.join(",")}`;
    if (key === this.wanted?.key) return;
    this.wanted = { key, level, start, end, tracks };
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.plan(), this.cells.size && level !== this.plannedLevel ? SETTLE_MS : 0);
  }

  indexOf(level, ns) {
    return Math.floor(Math.min(Math.max(ns, 0), this.endNs - 1) / this.tileSpan(level));
  }

  /** Build the queue anew: coarse tiles of new tracks, the window, the overview, then one screen to each side. */
  plan() {
    if (!this.wanted) return;
    const { level, start, end, tracks } = this.wanted;
    this.plannedLevel = level;
    this.queue = [];
    const wantedCells = new Set();
    const add = (k, index, ids) => {
      wantedCells.add(`${k}/${index}`);
      const missing = ids.filter((id) => !this.cells.get(`${k}/${index}`)?.has(id) && !this.isUnderWay(k, index, id));
      if (missing.length) this.queue.push({ level: k, index, tracks: missing });
    };
    add(this.topLevel, 0, tracks);
    const first = this.indexOf(level, start), last = this.indexOf(level, end);
    const middle = (first + last) / 2;
    const order = Array.from({ length: last - first + 1 }, (_, i) => first + i).sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle));
    for (const index of order) add(level, index, tracks);
    const overviewEnd = this.indexOf(this.overviewLevel, this.endNs);
    for (let index = 0; index <= overviewEnd; index++) add(this.overviewLevel, index, this.overviewTracks);
    const margin = end - start;
    for (let i = last + 1; i <= this.indexOf(level, end + margin); i++) add(level, i, tracks);
    for (let i = first - 1; i >= this.indexOf(level, start - margin); i--) add(level, i, tracks);
    for (const request of this.inflight.values()) {
      if (!wantedCells.has(`${request.level}/${request.index}`)) request.controller.abort();
    }
    this.pump();
  }

  isUnderWay(level, index, track) {
    for (const r of this.inflight.values()) if (r.level === level && r.index === index && r.tracks.includes(track)) return true;
    return false;
  }

  pump() {
    const now = Date.now();
    while (this.inflight.size < MAX_INFLIGHT) {
      const at = this.queue.findIndex((r) => (this.failures.get(`${r.level}/${r.index}`)?.notBefore ?? 0) <= now);
      if (at < 0) break;
      this.load(this.queue.splice(at, 1)[0]);
    }
    this.onChange();
  }

  async load(request) {
    const cell = `${request.level}/${request.index}`;
    const key = `${cell}/${request.tracks.join(",")}`;
    request.controller = new AbortController();
    this.inflight.set(key, request);
    try {
      const buffer = await this.fetchTile(request.level, request.index, request.tracks, request.controller.signal);
      this.store(cell, decodeTile(buffer), buffer.byteLength);
      this.failures.delete(cell);
    } catch (error) {
      if (error.name !== "AbortError") this.failed(cell, request, error);
    } finally {
      this.inflight.delete(key);
      this.pump();
    }
  }

  failed(cell, request, error) {
    const tries = (this.failures.get(cell)?.tries ?? 0) + 1;
    const wait = this.retriesMs[tries - 1];
    this.failures.set(cell, { tries, notBefore: wait ? Date.now() + wait : Infinity });
    this.queue.push(request);
    if (wait) setTimeout(() => this.pump(), wait + 1);
    else this.onError(error);
  }

  /** Ask again for what could not be had. */
  retry() {
    this.failures.clear();
    this.plan();
  }

  store(cell, tracks, bytes) {
    const batch = { cell, ids: [...tracks.keys()], bytes: Math.max(bytes, 256), keep: this.isKept(cell) };
    if (!this.cells.has(cell)) this.cells.set(cell, new Map());
    for (const [id, tile] of tracks) this.cells.get(cell).set(id, { tile, batch });
    this.batches.add(batch);
    this.bytes += batch.bytes;
    this.evict(batch);
    this.changed();
  }

  isKept(cell) {
    const level = Number(cell.split("/")[0]);
    return level === this.topLevel || level === this.overviewLevel;
  }

  evict(newest) {
    for (const batch of this.batches) {
      if (this.bytes <= this.maxBytes) break;
      if (batch.keep || batch === newest) continue;
      this.batches.delete(batch);
      this.bytes -= batch.bytes;
      const cell = this.cells.get(batch.cell);
      for (const id of batch.ids) if (cell?.get(id)?.batch === batch) cell.delete(id);
      if (cell && !cell.size) this.cells.delete(batch.cell);
    }
  }

  changed() {
    this.version++;
    this.runCache.clear();
  }

  get(level, index, track) {
    return this.cells.get(`${level}/${index}`)?.get(track);
  }

  /**
   * What to draw of a track between start and end: tiles of `level` where they are here, else the nearest coarser ones.
   * @returns {Run[]} ordered by time, without overlap
   */
  runs(track, level, start, end) {
    const first = this.indexOf(level, start), last = this.indexOf(level, end);
    const key = `${track} ${level} ${first} ${last}`;
    const known = this.runCache.get(key);
    if (known) return known;
    const runs = [];
    for (let index = first; index <= last; index++) this.appendRun(runs, track, level, index);
    if (this.runCache.size > 4000) this.runCache.clear();
    this.runCache.set(key, runs);
    return runs;
  }

  appendRun(runs, track, level, index) {
    const span = this.tileSpan(level);
    for (let k = level, i = index; k <= this.topLevel; k++, i = Math.floor(i / 4)) {
      const found = this.get(k, i, track);
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
  isComplete(level, start, end, tracks) {
    for (let i = this.indexOf(level, start); i <= this.indexOf(level, end); i++) {
      for (const track of tracks) if (!this.get(level, i, track)) return false;
    }
    return true;
  }
}
