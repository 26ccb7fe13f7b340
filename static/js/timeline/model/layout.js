// Which rows the timeline shows and where: groups, tracks, their depths. And what lies under a point. Knows no DOM.

import { arrange } from "./arrange.js";
import { ANNOTATIONS, firstEndingAfter, lowerBound } from "./model.js";

export const LANE = 18;             // px of one depth
export const COMPACT_LANE = 6;      // of one depth of a folded track
export const GROUP = 26;
export const COUNTER = 46;
export const GROUP_DEPTHS = 3;      // depths that a folded group lays over each other
const PAD = 3;                      // above and below the lanes of a track
const FOLDED_LANES = 3;             // depths that a folded track still shows

/**
 * @typedef {{key: string, kind: "group"|"track"|"counter", y: number, height: number, lane: number, lanes: number,
 *   folded: boolean, group: object, track: ?object, tracks: object[]}} Row
 * @typedef {{rows: Row[], height: number, byTrack: Map<number, Row>}} Rows
 */

export const groupKey = (group) => `g:${group.name}`;
export const trackKey = (track) => `t:${track.id}`;

/**
 * @param {import("./model.js").Timeline} timeline
 * @param {import("./arrange.js").View & {folded: Set<string>}} view
 * @returns {{main: Rows, pinned: Rows, arranged: ReturnType<typeof arrange>}}
 */
export function layout(timeline, view) {
  const main = [], pinned = [], arranged = arrange(timeline, view);
  for (const { group, shown } of arranged.groups) {
    const folded = view.folded.has(groupKey(group)) && !arranged.isFiltered;
    main.push({ key: groupKey(group), kind: "group", height: GROUP, lane: GROUP - 8, lanes: 1, folded, group, track: null, tracks: shown });
    if (!folded) for (const track of shown) main.push(trackRow(track, group, view.folded));
  }
  for (const { group, track } of arranged.pinned) pinned.push(trackRow(track, group, view.folded));
  return { main: stack(main), pinned: stack(pinned), arranged };
}

function trackRow(track, group, foldedKeys) {
  const folded = foldedKeys.has(trackKey(track));
  const base = { key: trackKey(track), group, track, tracks: [track], folded };
  if (track.kind === "counter") return { ...base, kind: "counter", height: folded ? LANE + 2 * PAD : COUNTER, lane: 0, lanes: 1 };
  const depths = Math.max(track.depths, 1);
  if (folded) return { ...base, kind: "track", lane: COMPACT_LANE, lanes: Math.min(depths, FOLDED_LANES), height: LANE + 2 * PAD };
  return { ...base, kind: "track", lane: LANE, lanes: depths, height: depths * LANE + 2 * PAD };
}

function stack(rows) {
  let y = 0;
  const byTrack = new Map();
  for (const row of rows) {
    row.y = y;
    y += row.height;
    if (row.track) byTrack.set(row.track.id, row);
    else if (row.folded) for (const track of row.tracks) byTrack.set(track.id, row);
  }
  return { rows, height: y, byTrack };
}

/** Whether a row draws slices: an open group's own row does not, nor a folded one that stands aside. */
export const draws = (row) => row.kind !== "group" || (row.folded && !row.group.isAside);

/** Rows that touch [y0, y1). */
export function rowsBetween(rows, y0, y1) {
  let lo = 0, hi = rows.rows.length;
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (rows.rows[mid].y + rows.rows[mid].height > y0) hi = mid; else lo = mid + 1;
  }
  const from = lo;
  while (lo < rows.rows.length && rows.rows[lo].y < y1) lo++;
  return rows.rows.slice(from, lo);
}

/** Top of a depth inside its row, relative to the content of the pane. */
export function laneTop(row, depth) {
  if (row.kind === "group") return row.y + 4;
  return row.y + PAD + Math.min(depth, row.lanes - 1) * row.lane;
}

export const laneHeight = (row) => (row.kind === "counter" ? row.height - 2 * PAD : row.lane - 1);

/** Depth at y inside a row; null in the padding. */
export function depthAt(row, y) {
  if (row.kind === "group") return 0;
  const depth = Math.floor((y - row.y - PAD) / row.lane);
  return depth < 0 || depth >= row.lanes ? null : depth;
}

/** First and last depth of a row that touch [y0, y1); a folded group lays its tracks' first ones over each other. */
export function depthsBetween(row, y0, y1) {
  if (row.kind !== "track") return [0, 0];
  const first = Math.floor((y0 - row.y - PAD) / row.lane), last = Math.floor((y1 - row.y - PAD) / row.lane);
  return [Math.min(Math.max(first, 0), row.lanes - 1), Math.min(Math.max(last, 0), row.lanes - 1)];
}

/**
 * Entry at `ns` in the drawn runs of one track and depth: what contains the time, else the nearest within `tolerance` ns.
 * @returns {?{start: number, dur: number, name: number, count: number, slice: number, category: number, flags: number, depth: number}}
 */
export function entryAt(runs, depth, ns, tolerance) {
  let best = null, bestDistance = tolerance;
  for (const run of runs) {
    if (ns < run.from - tolerance || ns > run.to + tolerance) continue;
    for (const { tile } of run.tiles) {
      if (depth + 1 >= tile.depthFrom.length) continue;
      const lo = tile.depthFrom[depth], hi = tile.depthFrom[depth + 1];
      const near = firstEndingAfter(tile, lo, hi, ns);
      for (let row = Math.max(near - 1, lo); row < Math.min(near + 2, hi); row++) {
        const distance = Math.max(tile.start[row] - ns, ns - tile.start[row] - tile.dur[row], 0);
        if (distance < bestDistance || (distance === 0 && !best)) {
          best = entry(tile, row);
          bestDistance = distance;
        }
      }
    }
  }
  return best;
}

/** Entry of a folded group's track at `ns`: the deepest that is drawn there. */
export function groupEntryAt(runs, ns, tolerance) {
  for (let depth = GROUP_DEPTHS - 1; depth >= 0; depth--) {
    const found = entryAt(runs, depth, ns, tolerance);
    if (found && !ANNOTATIONS.has(found.category)) return found;
  }
  return null;
}

/** Value of a counter at `ns`: its last sample up to then; null before the first. */
export function valueAt(runs, ns) {
  const run = runs.find((r) => ns >= r.from && ns < r.to);
  for (const { tile } of [...(run?.tiles ?? [])].reverse()) {
    const at = lowerBound(tile.time, ns + 1e-3) - 1;
    if (at >= 0) return Number.isNaN(tile.value[at]) ? null : tile.value[at];
  }
  return null;
}

function entry(tile, row) {
  return {
    start: tile.start[row], dur: tile.dur[row], name: tile.name[row], count: tile.count[row], slice: tile.slice[row],
    category: tile.category[row], flags: tile.flags[row], depth: tile.depth[row],
  };
}
