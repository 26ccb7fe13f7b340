// Where the edge of a selection lands: on the nearest edge of a slice, a step or a mark within reach. Knows no DOM.

import { entryAt } from "./layout.js";

/**
 * @param {number} ns @param {number} reach ns to each side @param {Iterable<number>} edges @returns {?number} the nearest edge within reach
 */
export function nearestEdge(ns, reach, edges) {
  let best = null;
  for (const edge of edges) if (Math.abs(edge - ns) <= reach && (best === null || Math.abs(edge - ns) < Math.abs(best - ns))) best = edge;
  return best;
}

/**
 * Starts and ends of the slices near a time on some rows.
 * @param {import("./layout.js").Row[]} rows @param {(track: number, depth: number) => object[]} runsOf what is drawn of a depth
 */
export function* sliceEdges(rows, runsOf, ns, reach) {
  for (const row of rows) {
    if (row.kind !== "track") continue;
    for (let depth = 0; depth < row.lanes; depth++) {
      const runs = runsOf(row.track.id, depth);
      for (const at of [ns, ns - reach, ns + reach]) {
        const entry = entryAt(runs, depth, at, reach);
        if (!entry) continue;
        yield entry.start;
        yield entry.start + entry.dur;
      }
    }
  }
}

/** Starts and ends of spans: steps, marks. @param {{start: number, end: number}[]} spans */
export function* spanEdges(spans) {
  for (const { start, end } of spans) {
    yield start;
    yield end;
  }
}
