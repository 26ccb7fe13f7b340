import assert from "node:assert/strict";
import test from "node:test";
import { MERGED } from "../../../static/js/timeline/model/model.js";
import { Tiles } from "../../../static/js/timeline/data/tiles.js";
import { busyShare, shareText } from "../../../static/js/timeline/data/utilisation.js";
import { encodeTile } from "./fixture.js";

async function tilesOf(rows) {
  const tiles = new Tiles({ fetchTile: async () => encodeTile([[1, rows, [], [0, 3]]]), endNs: 1000, topLevel: 0, tileBins: 1024, onChange: () => {}, onError: assert.fail });
  tiles.want(0, 0, 1000, [16384]);
  await new Promise((done) => { setTimeout(done, 30); });
  return tiles;
}

test("a stream is busy with GPU work, not with annotations over it", async () => {
  const tiles = await tilesOf([{ start: 0, dur: 1000, category: 8 }, { start: 100, dur: 200, category: 0, depth: 1 }, { start: 600, dur: 100, category: 2, depth: 1 }]);
  const stream = { id: 1, kind: "stream", depths: 2 };
  assert.equal(busyShare(tiles, stream, 0, 0, 1000), 0.3);
  assert.equal(busyShare(tiles, stream, 0, 200, 400), 0.5);
  assert.equal(busyShare(tiles, { ...stream, id: 9 }, 0, 0, 1000), null);
});

test("a thread is as busy as its outer slices, each nested one counted once", async () => {
  const tiles = await tilesOf([{ start: 0, dur: 1000, category: 7 }, { start: 0, dur: 500, category: 5, depth: 1 }, { start: 100, dur: 50, category: 5, depth: 2 }]);
  assert.equal(busyShare(tiles, { id: 1, kind: "thread", depths: 3 }, 0, 0, 1000), 0.5);
});

test("two kernels at once are busy once", async () => {
  const tiles = await tilesOf([{ start: 100, dur: 200, category: 0 }, { start: 200, dur: 200, category: 0, depth: 1 }]);
  assert.equal(busyShare(tiles, { id: 1, kind: "stream", depths: 2 }, 0, 0, 1000), 0.3);
});

test("merged slices count with the time they cover", async () => {
  const tiles = await tilesOf([{ start: 0, dur: 100, category: 0, count: 5, flags: MERGED, fill: 51 }]);
  assert.ok(Math.abs(busyShare(tiles, { id: 1, kind: "stream", depths: 1 }, 0, 0, 100) - 0.2) < 1e-9);
  assert.deepEqual([null, 0, 0.004, 0.376].map(shareText), ["", "0 %", "<1 %", "38 %"]);
});
