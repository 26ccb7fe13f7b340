// The slice before or after a moment on one depth of a track, found in a handful of tiles. Knows no DOM.
//
// Level 0 holds every slice exactly, but its tiles are short. A tile of level k and its neighbour reach at least
// 1024 · 4^k ns, which is a bin of level k + 5: what a merged entry of level k + 5 could hide beside the moment was seen
// at level k. So levels 0, 5, 10, … are enough, and level 0 then names the slice at the edge of a merged entry.

import { firstEndingAfter, lowerBound, MERGED } from "../model/model.js";

const LEVEL_STEP = 5;

/**
 * @param {(level: number, index: number) => Promise<import("../model/model.js").TrackTile>} readTile of the track
 * @param {{topLevel: number, tileBins: number, endNs: number}} timeline
 * @param {{depth: number, start_ns: number}} from @param {1|-1} direction
 * @returns {Promise<?{id: number, depth: number, start_ns: number, dur_ns: number}>}
 */
export async function neighbour(readTile, timeline, from, direction) {
  const levels = [];
  for (let k = 0; k < timeline.topLevel; k += LEVEL_STEP) levels.push(k);
  for (const level of [...levels, timeline.topLevel]) {
    const found = await nearest(readTile, timeline, level, from, direction);
    if (!found) continue;
    if (!found.merged || level === 0) return found;
    // the first of the merged slices begins where the entry begins; the last one ends where it ends
    const edge = direction > 0 ? { ...from, start_ns: found.start_ns - 1 } : { ...from, start_ns: found.start_ns + found.dur_ns };
    return nearest(readTile, timeline, 0, edge, direction);
  }
  return null;
}

/** Nearest entry of a level that begins after (or before) `from`, in its tile and the next one that way. */
async function nearest(readTile, { topLevel, tileBins, endNs }, level, { depth, start_ns }, direction) {
  const span = tileBins * 4 ** level, index = Math.floor(start_ns / span), last = level === topLevel ? 0 : Math.floor((endNs - 1) / span);
  let best = null;
  for (const i of [index, index + direction]) {
    if (i < 0 || i > last) continue;
    const tile = await readTile(level, i);
    if (depth + 1 >= tile.depthFrom.length) continue;
    const lo = tile.depthFrom[depth], hi = tile.depthFrom[depth + 1];
    const row = direction > 0 ? lowerBound(tile.start, start_ns + 1, lo, hi) : lowerBound(tile.start, start_ns, lo, hi) - 1;
    if (row < lo || row >= hi) continue;
    const found = entryOf(tile, row, depth);
    if (!best || direction * (found.start_ns - best.start_ns) < 0) best = found;
  }
  return best;
}

const entryOf = (tile, row, depth) => ({ id: tile.slice[row], depth, start_ns: tile.start[row], dur_ns: tile.dur[row], merged: Boolean(tile.flags[row] & MERGED) });

/** The slice of a depth that covers a time, from the tile in which every slice stands exactly; null where there is none. */
export async function sliceAt(readTile, { tileBins, endNs }, depth, ns) {
  const time = Math.min(Math.max(ns, 0), endNs - 1), tile = await readTile(0, Math.floor(time / tileBins));
  if (depth < 0 || depth + 1 >= tile.depthFrom.length) return null;
  const hi = tile.depthFrom[depth + 1], row = firstEndingAfter(tile, tile.depthFrom[depth], hi, time);
  return row < hi && tile.start[row] <= time ? entryOf(tile, row, depth) : null;
}

/** The deepest slice that covers a time. */
export async function deepestAt(readTile, timeline, depths, ns) {
  for (let depth = depths - 1; depth >= 0; depth--) {
    const found = await sliceAt(readTile, timeline, depth, ns);
    if (found) return found;
  }
  return null;
}

/** The slice of a depth that covers a time, else the one whose edge is nearest to it. */
export async function nearestAt(readTile, timeline, depth, ns) {
  const covering = await sliceAt(readTile, timeline, depth, ns);
  if (covering) return covering;
  const before = await neighbour(readTile, timeline, { depth, start_ns: ns }, -1), after = await neighbour(readTile, timeline, { depth, start_ns: ns }, 1);
  if (!before || !after) return before ?? after;
  return ns - (before.start_ns + before.dur_ns) <= after.start_ns - ns ? before : after;
}
