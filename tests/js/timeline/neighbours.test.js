import assert from "node:assert/strict";
import test from "node:test";
import { decodeTile, MERGED } from "../../../static/js/timeline/model/model.js";
import { neighbour } from "../../../static/js/timeline/data/neighbours.js";
import { encodeTile } from "./fixture.js";

/** Tiles of one track as the server cuts them: exact from the home level up, merged per bin below. */
function cut(slices, topLevel) {
  let reads = 0;
  const home = (dur) => Math.floor(Math.log2(Math.max(dur, 1)) / 2);
  const readTile = async (level, index) => {
    reads++;
    const bin = 4 ** level, from = index * 1024 * bin, to = from + 1024 * bin, rows = [], bins = new Map();
    for (const s of slices) {
      if (s.start >= to || s.start + Math.max(s.dur, 1) <= from) continue;
      if (home(s.dur) >= level) rows.push({ ...s });
      else {
        const key = `${s.depth} ${Math.floor(s.start / bin)}`, known = bins.get(key);
        if (!known) bins.set(key, { ...s, end: s.start + s.dur, longest: s.dur, count: 1 });
        else {
          known.end = Math.max(known.end, s.start + s.dur);
          known.count++;
          if (s.dur > known.longest) Object.assign(known, { slice: s.slice, longest: s.dur });
        }
      }
    }
    for (const b of bins.values()) rows.push({ ...b, dur: b.end - b.start, flags: b.count > 1 ? MERGED : 0 });
    rows.sort((a, b) => a.depth - b.depth || a.start - b.start);
    return decodeTile(encodeTile([[0, rows]])).get(0);
  };
  return { readTile, timeline: { topLevel, tileBins: 1024, endNs: 1024 * 4 ** topLevel }, reads: () => reads };
}

/** Slices with gaps from none to far, reproducible. */
function manySlices(n, topLevel) {
  let seed = 7;
  const random = () => { seed = (Math.imul(seed, 1103515245) + 12345) >>> 0; return seed / 2 ** 32; };
  const slices = [];
  let at = 3;
  for (let i = 0; i < n; i++) {
    const dur = Math.floor(4 ** (random() * 6));
    slices.push({ start: at, dur, slice: i, depth: 0 });
    at += dur + (random() < 0.5 ? 0 : Math.floor(4 ** (random() * 8)));
  }
  assert.ok(at < 1024 * 4 ** topLevel);
  return slices;
}

test("every slice is reached from its neighbours, in both directions", async () => {
  const slices = manySlices(400, 9), { readTile, timeline, reads } = cut(slices, 9);
  for (let i = 0; i < slices.length; i++) {
    const from = { depth: 0, start_ns: slices[i].start };
    assert.equal((await neighbour(readTile, timeline, from, 1))?.id, slices[i + 1]?.slice, `after ${i}`);
    assert.equal((await neighbour(readTile, timeline, from, -1))?.id, slices[i - 1]?.slice, `before ${i}`);
  }
  assert.ok(reads() / (2 * slices.length) < 8, `${reads() / (2 * slices.length)} tiles a step`);
});

test("other depths do not count, and an empty one has no neighbours", async () => {
  const { readTile, timeline } = cut([{ start: 10, dur: 5, slice: 1, depth: 1 }, { start: 100, dur: 5, slice: 2, depth: 0 }, { start: 5000, dur: 1, slice: 3, depth: 1 }], 5);
  assert.equal((await neighbour(readTile, timeline, { depth: 1, start_ns: 10 }, 1)).id, 3);
  assert.equal(await neighbour(readTile, timeline, { depth: 0, start_ns: 100 }, 1), null);
  assert.equal(await neighbour(readTile, timeline, { depth: 4, start_ns: 0 }, 1), null);
});
