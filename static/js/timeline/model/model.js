// What a timeline is in memory: its tracks (from /timeline/) and tiles as typed arrays (from /tiles/). Knows no DOM.
//
// Times are nanoseconds since trace start in doubles: exact up to 2^53 ns (104 days).

import { grouped, stepOwners } from "./grouping.js";

export const TILE_MAGIC = 0x32545052;   // "RPT2"
export const DENSITY_MAGIC = 0x31445052;     // "RPD1"
export const INSTANT = 1;
export const MERGED = 2;
export const OVERFLOW = 4;              // overlaps another slice in part: its lane is no nesting

/**
 * Categories by number (profiles.ingest.trace.Category): CSS custom property that colours them, words for people, and whether
 * they are work. What is not work (annotations over a GPU lane, synchronisation, the profiler's overhead) is drawn lighter.
 */
export const CATEGORIES = [
  { key: "compute", css: "--cat-compute", label: "Compute kernel", gpu: true },
  { key: "communication", css: "--cat-communication", label: "Communication kernel", gpu: true },
  { key: "memcpy", css: "--cat-memory", label: "Memory copy", gpu: true },
  { key: "memset", css: "--cat-memory", label: "Memory set", gpu: true },
  { key: "runtime", css: "--cat-runtime", label: "Runtime call" },
  { key: "cpu_op", css: "--cat-cpu", label: "CPU operator" },
  { key: "python", css: "--cat-python", label: "Python" },
  { key: "annotation", css: "--cat-annotation", label: "Annotation" },
  { key: "gpu_annotation", css: "--cat-annotation", label: "GPU annotation", faint: true },
  { key: "sync", css: "--cat-idle", label: "Synchronisation", faint: true },
  { key: "overhead", css: "--cat-other", label: "Profiler overhead", faint: true },
  { key: "other", css: "--cat-other", label: "Other" },
];
export const SHADES = 8;
const OWN_COLOURS = 1024;       // distinct ones of a profile; palette.js has as many places
const OPENING_AIR = 0.02;       // behind the last slice, as a share of the window
export const ANNOTATIONS = new Set([7, 8]);     // they cover work without being work

/** Category facts for a number or an API word; unknown ones are "other". */
export function category(value) {
  if (typeof value === "number") return CATEGORIES[value] ?? CATEGORIES.at(-1);
  const word = String(value).toLowerCase();
  return CATEGORIES.find((c) => c.key === word) ?? CATEGORIES.at(-1);
}

/** FNV-1a of a text: the same name has the same shade in every profile. */
export function hashText(text) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return (hash ^ (hash >>> 15)) >>> 0;
}

/**
 * @typedef {{id: number, kind: string, name: string, group: string, device: ?number, stream: ?number, unit: ?string,
 *   depths: number, slices: number, sort: number, rank: ?string, aside: ?string}} Track
 *   rank: of a joined job; aside: why it stands in the last, folded group ("profiler", "empty")
 */
export class Timeline {
  /** @param {object} meta answer of GET …/timeline/ */
  constructor(meta) {
    this.meta = meta;
    this.startNs = meta.start_ns ?? 0;
    this.endNs = Math.max(meta.end_ns, this.startNs + 1);
    // The window that opens: up to the last work. A mark or the profiler's own span may lie far behind it.
    const last = meta.last_ns > 0 ? Math.min(Math.ceil(meta.last_ns + (meta.last_ns - this.startNs) * OPENING_AIR), this.endNs) : this.endNs;
    this.opening = [this.startNs, this.endNs - last > (this.endNs - this.startNs) * OPENING_AIR ? last : this.endNs];
    /** End of the last work; behind it there may be marks and what the profiler did. */
    this.lastNs = meta.last_ns > 0 ? Math.min(meta.last_ns, this.endNs) : this.endNs;
    this.tileBins = meta.tile_bins ?? 1024;
    this.topLevel = meta.levels - 1;    // one tile of this level covers the trace
    /** @type {Map<number, Track>} */
    this.tracks = new Map(meta.tracks.map((track) => [track.id, track]));
    /** Tracks of kernels, once they were asked for. @type {?Track[]} */
    this.kernels = null;
    this.group("rank");
    /** Groups as the overview shows them, whatever the tracks below are grouped by. */
    this.wholeGroups = this.groups.filter((group) => !group.isAside);
    const takenOn = (meta.step_tracks ?? []).map((id) => this.tracks.get(id));
    this.ownerOf = stepOwners(takenOn);
    this.steps = (meta.steps ?? []).map((step, at) => ({ ...step, owner: takenOn[at] ? this.ownerOf(takenOn[at]) : null }));
    this.density = null;
    this.namesMissing = new Set();      // ids whose names were wanted and are to be asked for
    this.names = null;
    this.labels = {};
    this.shades = new Uint8Array(0);
    const given = Object.entries(meta.colours ?? {});
    /** Colours that the program gave to names, each once. @type {string[]} */
    this.ownColours = [...new Set(given.map(([, colour]) => colour))].slice(0, OWN_COLOURS);
    /** By name id: number of its own colour, from 1; 0 and undefined are none. */
    this.own = new Uint16Array(given.reduce((most, [id]) => Math.max(most, Number(id) + 1), 0));
    const numbers = new Map(this.ownColours.map((colour, at) => [colour, at + 1]));
    for (const [id, colour] of given) this.own[id] = numbers.get(colour) ?? 0;
  }

  /** Put the tracks in groups. By kernel only once the tracks of kernels are known, until then by rank. @param {"rank"|"stream"|"kernel"} by */
  group(by) {
    this.by = by;
    this.groups = grouped(this.meta.tracks, by, this.kernels);
  }

  /** @param {Track[]} tracks lanes of kernels, each `of` a stream, of most time first */
  setKernels(tracks) {
    this.kernels = tracks;
    for (const track of tracks) this.tracks.set(track.id, track);
  }

  /** Where tracks are grouped by kernel, the lane on which a stream's slice stands. @param {{track: number, name?: string}} slice @returns {?Track} */
  kernelLane({ track, name }) {
    if (this.by !== "kernel" || !name) return null;
    return this.kernels?.find((lane) => lane.of === track && (lane.kernel ?? name) === name) ?? null;
  }

  /** The trace's own tracks that some tracks stand for: of a kernel's lane its stream. @param {number[]} ids @returns {number[]} */
  ownTracks(ids) { return [...new Set(ids.map((id) => this.tracks.get(id)?.of ?? id))]; }

  /** Where the axis ends: with the last work, or at the last mark behind it where the window reaches there. @param {{end: number}} viewport */
  axisEnd(viewport) { return viewport.end > this.opening[1] * (1 + 1e-9) ? this.endNs : this.lastNs; }

  /** Whose steps a row shows: its track's owner; of a group the owner of all its tracks, "" where they have several. */
  rowOwner(row) {
    const owner = this.ownerOf(row.tracks[0]);
    return row.track || row.tracks.every((track) => this.ownerOf(track) === owner) ? owner : "";
  }

  /** Steps that a track shows, in order of start; of a track without an owner all. */
  stepsOf(owner) {
    if (owner === null || owner === undefined) return this.steps;
    if (!this.stepsByOwner) {
      this.stepsByOwner = new Map();
      for (const step of this.steps) this.stepsByOwner.set(step.owner, [...(this.stepsByOwner.get(step.owner) ?? []), step]);
    }
    return this.stepsByOwner.get(owner) ?? [];
  }

  /** Number of a name's own colour, 0: it has none. */
  ownOf(name) {
    if (!this.ownColours.length) return 0;
    if (!this.ownByName && this.names) {
      this.ownByName = new Map();
      this.own.forEach((own, id) => { if (own && this.names[id]) this.ownByName.set(this.names[id], own); });
    }
    return this.ownByName?.get(name) ?? 0;
  }

  get hasSlices() { return this.meta.tracks.some((t) => t.slices > 0 || t.kind === "counter"); }
  get hasGpuWork() { return this.meta.tracks.some((t) => t.kind === "stream" && t.slices > 0); }

  /**
   * @param {string[]} names index is the name id of tiles: all of them, or the first of very many @param {number} total
   * @param {Record<string, string>} labels of kernels, by name id: what the kernel table calls them
   */
  setNames(names, total = names.length, labels = {}) {
    this.names = names;
    this.labels = labels;
    this.namesTotal = total;
    this.shades = new Uint8Array(total);
    names.forEach((name, id) => { this.shades[id] = hashText(name) % SHADES; });
  }

  /** Names that were asked for by id. @param {Record<string, string>} found */
  addNames(found, labels = {}) {
    Object.assign(this.labels, labels);
    for (const [id, name] of Object.entries(found)) {
      this.names[id] = name;
      this.shades[id] = hashText(name) % SHADES;
      this.namesMissing.delete(Number(id));
    }
  }

  /** "" while it is not here yet; `namesMissing` then holds its id. */
  name(id) {
    const name = this.names?.[id];
    if (name === undefined && this.names && id < this.namesTotal) this.namesMissing.add(id);
    return name ?? "";
  }

  /** What stands on a slice: a kernel's label, else the name. */
  label(id) {
    return this.labels[id] || this.name(id);
  }

  /** Name ids that a search found, as a byte per name. @param {number[]} ids */
  matchIds(ids) {
    const bytes = new Uint8Array(Math.max(this.names?.length ?? 0, ...ids.slice(-1).map((id) => id + 1)));
    for (const id of ids) bytes[id] = 1;
    return bytes;
  }

  /** Name ids whose name contains the text, as a byte per name; null without a text or names. */
  matches(text) {
    if (!text || !this.names) return null;
    const wanted = text.toLowerCase();
    return Uint8Array.from(this.names, (name) => (name.toLowerCase().includes(wanted) ? 1 : 0));
  }
}

/**
 * One track's rows of one tile: equally long columns ordered by depth, then start. `depthFrom[d]` is the first row of
 * depth d, `depthFrom[d + 1]` the one behind its last.
 * @typedef {{n: number, start: Float64Array, dur: Float64Array, name: Uint32Array, count: Uint32Array, slice: Uint32Array,
 *   depth: Uint16Array, category: Uint8Array, flags: Uint8Array, fill: Uint8Array, depthFrom: Uint32Array,
 *   m: number, time: Float64Array, value: Float64Array}} TrackTile
 */

/**
 * @param {ArrayBuffer} buffer little-endian tile as the API sends it
 * @returns {{track: number, first: number, last: number, tile: TrackTile}[]} what was asked for: a track's depths first…last
 */
export function decodeUnits(buffer) {
  const head = new DataView(buffer);
  if (buffer.byteLength < 8 || head.getUint32(0, true) !== TILE_MAGIC) throw new Error("not a timeline tile");
  const count = head.getUint32(4, true), units = [];
  let rows = 0, samples = 0;
  for (let u = 0; u < count; u++) {
    const at = 8 + u * 16, n = head.getUint32(at + 4, true), m = head.getUint32(at + 8, true);
    units.push({ track: head.getUint32(at, true), first: head.getUint16(at + 12, true), last: head.getUint16(at + 14, true), n, m, row: rows, sample: samples });
    rows += n;
    samples += m;
  }
  let at = align8(8 + count * 16);
  const column = (Type, length) => {
    const view = new Type(buffer, at, length);
    at += view.byteLength;
    return view;
  };
  const all = {
    start: column(Float64Array, rows), dur: column(Float64Array, rows), name: column(Uint32Array, rows),
    count: column(Uint32Array, rows), slice: column(Uint32Array, rows), depth: column(Uint16Array, rows),
    category: column(Uint8Array, rows), flags: column(Uint8Array, rows), fill: column(Uint8Array, rows),
  };
  at = align8(at);
  const time = column(Float64Array, samples), value = column(Float64Array, samples);
  return units.map(({ track, first, last, n, m, row, sample }) => {
    const tile = { n, m, time: time.subarray(sample, sample + m), value: value.subarray(sample, sample + m) };
    for (const key in all) tile[key] = all[key].subarray(row, row + n);
    tile.depthFrom = depthStarts(tile.depth);
    return { track, first, last, tile };
  });
}

/** A tile of whole tracks. @param {ArrayBuffer} buffer @returns {Map<number, TrackTile>} by track id */
export const decodeTile = (buffer) => new Map(decodeUnits(buffer).map(({ track, tile }) => [track, tile]));

/** How busy each track is along the trace. @param {ArrayBuffer} buffer as the API sends it */
export function decodeDensity(buffer) {
  const head = new DataView(buffer);
  if (buffer.byteLength < 24 || head.getUint32(0, true) !== DENSITY_MAGIC) throw new Error("not a timeline's density");
  const tracks = head.getUint32(4, true), bins = head.getUint32(8, true), size = tracks * bins;
  return { bins, binNs: head.getFloat64(16, true), share: new Uint8Array(buffer, 24, size), category: new Uint8Array(buffer, 24 + size, size) };
}

const align8 = (offset) => (offset + 7) & ~7;

function depthStarts(depth) {
  const depths = depth.length ? depth[depth.length - 1] + 1 : 0;
  const from = new Uint32Array(depths + 1);
  for (let row = 0; row < depth.length; row++) from[depth[row] + 1] = row + 1;
  for (let d = 1; d <= depths; d++) from[d] = Math.max(from[d], from[d - 1]);   // a depth without rows is empty
  return from;
}

/** First row of [lo, hi) that ends after `ns` (slices of one depth follow each other, so ends ascend too). */
export function firstEndingAfter(tile, lo, hi, ns) {
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (tile.start[mid] + tile.dur[mid] > ns) hi = mid; else lo = mid + 1;
  }
  return lo;
}

/** First index of an ascending array whose value is ≥ x. */
export function lowerBound(array, x, lo = 0, hi = array.length) {
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (array[mid] < x) lo = mid + 1; else hi = mid;
  }
  return lo;
}
