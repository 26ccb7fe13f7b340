// How much of the visible window a track is busy, from the tiles that are drawn. Knows no DOM.

import { ANNOTATIONS, CATEGORIES, firstEndingAfter } from "../model/model.js";

const OUTER_DEPTHS = 12;        // of a thread: annotations often stand around its operators
const STREAM_DEPTHS = 4;
const GPU = CATEGORIES.map((category) => Boolean(category.gpu));

/**
 * Share of [start, end] in which a track works: a stream by its GPU work (two kernels at once count once), a thread by its
 * outer slices other than annotations. Merged entries count with the time that their slices cover.
 * @param {import("./tiles.js").Tiles} tiles @returns {?number} 0…1, null where nothing is here yet
 */
export function busyShare(tiles, track, level, start, end) {
  const isStream = track.kind === "stream", covers = [];
  if (!tiles.runs(track.id, level, start, end).length || end <= start) return null;
  const depths = Math.min(track.depths, isStream ? STREAM_DEPTHS : OUTER_DEPTHS);
  for (let depth = 0, goesOn = true; depth < depths && goesOn; depth++) {
    goesOn = cover(tiles.runs(track.id, level, start, end, depth), depth, start, end, isStream, covers) || isStream;
  }
  covers.sort((a, b) => a.from - b.from);
  let covered = 0, reached = start;
  for (const { from, to, fill } of covers) {
    if (to <= reached) continue;
    covered += (to - Math.max(from, reached)) * fill;
    reached = to;
  }
  return Math.min(covered / (end - start), 1);
}

/** @returns {boolean} whether annotations stood there: what they contain is one depth further down */
function cover(runs, depth, start, end, isStream, into) {
  let isAnnotated = false;
  for (const run of runs) {
    const from = Math.max(run.from, start), to = Math.min(run.to, end);
    for (let t = 0; t < run.tiles.length; t++) {
      const { tile, start: tileStart } = run.tiles[t];
      if (depth + 1 >= tile.depthFrom.length) continue;
      const hi = tile.depthFrom[depth + 1];
      for (let i = firstEndingAfter(tile, tile.depthFrom[depth], hi, from); i < hi && tile.start[i] < to; i++) {
        if (t > 0 && tile.start[i] < tileStart) continue;
        const annotation = ANNOTATIONS.has(tile.category[i]);
        isAnnotated ||= annotation;
        if (isStream ? !GPU[tile.category[i]] : annotation) continue;
        into.push({ from: Math.max(tile.start[i], from), to: Math.min(tile.start[i] + tile.dur[i], to), fill: tile.fill[i] / 255 });
      }
    }
  }
  return isAnnotated;
}

/** "37 %", "<1 %", "0" */
export function shareText(share) {
  if (share === null) return "";
  if (share === 0) return "0 %";
  return share < 0.01 ? "<1 %" : `${Math.round(share * 100)} %`;
}
