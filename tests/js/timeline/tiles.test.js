import assert from "node:assert/strict";
import test from "node:test";
import { BAND, FIRST_KERNEL_LANE, Tiles, unitDepth, unitOf, unitTrack } from "../../../static/js/timeline/data/tiles.js";
import { encodeTile } from "./fixture.js";

const settle = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

/** Everything that is wanted is here, or given up. */
async function quiet(tiles) {
  do await settle(60); while (tiles.pending);
}

const of = (...tracks) => tracks.map((track) => unitOf(track, 0));

/** A server whose tiles hold one slice per track; it remembers what was asked for. */
function server({ delayMs = 0, fail = () => false, endNs = 1024 * 64, topLevel = 3, maxBytes, tracks } = {}) {
  const asked = [], aborted = [], errors = [];
  const fetchTile = (level, index, units, signal) => new Promise((resolve, reject) => {
    asked.push({ level, index, units });
    const timer = setTimeout(() => (fail(level, index) ? reject(new Error("out of order")) : resolve(encodeTile(units.map((unit) => [unitTrack(unit), [{ start: index * 1024 * 4 ** level, dur: 1, slice: level, depth: unitDepth(unit) }], [], [unitDepth(unit), unitDepth(unit) + BAND - 1]])))), delayMs);
    signal.addEventListener("abort", () => { clearTimeout(timer); aborted.push(`${level}/${index}`); reject(new DOMException("stop", "AbortError")); });
  });
  const tiles = new Tiles({ fetchTile, tracks, endNs, topLevel, tileBins: 1024, onChange: () => {}, onError: (error) => errors.push(error), maxBytes, retriesMs: [5, 10, 20] });
  return { tiles, asked, aborted, errors };
}

test("the coarsest tile comes first, then the window, all tracks in one request each", async () => {
  const { tiles, asked } = server();
  tiles.want(1, 0, 8000, of(0, 5));
  await quiet(tiles);
  assert.deepEqual(asked[0], { level: 3, index: 0, units: of(0, 5) });
  assert.ok(asked.every((r) => r.units.join() === of(0, 5).join()));
  assert.ok(tiles.isComplete(1, 0, 8000, of(0, 5)));
  assert.equal(tiles.pending, 0);
});

test("only the tracks that are missing are asked for again", async () => {
  const { tiles, asked } = server();
  tiles.want(1, 0, 4000, of(0));
  await quiet(tiles);
  asked.length = 0;
  tiles.want(1, 0, 4000, of(0, 1));
  await quiet(tiles);
  assert.ok(asked.length > 0 && asked.every((r) => r.units.join() === String(unitOf(1, 0))));
});

test("coarser tiles are drawn where the finer are not here yet", async () => {
  const { tiles } = server();
  tiles.want(3, 0, 65536, of(0));
  await quiet(tiles);
  assert.deepEqual(tiles.runs(0, 1, 0, 10000).map((r) => [r.level, r.from, r.to, r.tiles.length]), [[3, 0, 12288, 1]]);
  tiles.want(1, 4096, 8000, of(0));
  await quiet(tiles);
  const runs = tiles.runs(0, 1, 0, 65535);
  assert.equal(runs[0].level, 1);
  assert.equal(runs.at(-1).level, 3);
  runs.reduce((end, run) => { assert.equal(run.from, end); return run.to; }, 0);      // no hole, no overlap
});

test("neighbouring tiles of one level are one run", async () => {
  const { tiles } = server();
  tiles.want(1, 0, 16000, of(0));
  await quiet(tiles);
  const runs = tiles.runs(0, 1, 0, 16000);
  assert.deepEqual(runs.map((r) => [r.level, r.from, r.to, r.tiles.map((t) => t.start)]), [[1, 0, 16384, [0, 4096, 8192, 12288]]]);
});

test("requests that a fast zoom left behind are stopped", async () => {
  const { tiles, aborted } = server({ delayMs: 150 });
  tiles.want(0, 0, 3000, of(0));
  await settle(20);
  tiles.want(0, 60000, 65000, of(0));
  await settle(80);
  assert.ok(aborted.includes("0/0") && !aborted.includes("3/0"));
});

test("the least recently used tiles go, the coarse ones stay", async () => {
  const { tiles } = server({ maxBytes: 2000 });
  for (let at = 0; at < 60000; at += 5000) {
    tiles.want(0, at, at + 1000, of(0));
    await quiet(tiles);
  }
  assert.ok(tiles.bytes < 4000, `${tiles.bytes}`);
  assert.ok(tiles.get(3, 0, 0) && tiles.get(0, 53, 0) && !tiles.get(0, 0, 0));
});

test("a tile that fails is tried again, then reported, and can be asked for anew", async () => {
  let broken = true;
  const { tiles, asked, errors } = server({ fail: (level) => broken && level === 1 });
  tiles.want(1, 0, 1000, of(0));
  await quiet(tiles);
  assert.equal(asked.filter((r) => r.level === 1 && r.index === 0).length, 4);
  assert.ok(errors.length >= 1);
  assert.equal(tiles.pending, 0);
  broken = false;
  tiles.retry();
  await quiet(tiles);
  assert.ok(tiles.isComplete(1, 0, 1000, of(0)));
});

test("a track without slices in the tile counts as loaded", async () => {
  const { tiles } = server();
  tiles.fetchTile = async (level, index, units) => encodeTile(units.map((unit) => [unitTrack(unit), []]));
  tiles.want(0, 0, 1000, of(4));
  await quiet(tiles);
  assert.ok(tiles.isComplete(0, 0, 1000, of(4)));
});

test("depths are fetched four by four, those on screen first, and drawn from their own unit", async () => {
  const { tiles, asked } = server();
  tiles.want(2, 0, 1000, [unitOf(7, 8)], [unitOf(7, 12)]);
  await quiet(tiles);
  assert.deepEqual(asked.map((r) => [r.level, r.units]).slice(0, 2), [[3, [unitOf(7, 8)]], [2, [unitOf(7, 8)]]]);
  assert.deepEqual(asked.at(-1).units, [unitOf(7, 12)]);
  assert.equal(tiles.runs(7, 2, 0, 1000, 9)[0].tiles[0].tile.depthFrom.length, 10);
  assert.equal(tiles.runs(7, 2, 0, 1000, 0).length, 0);
});

test("a request takes as many units as fit in some 80 kB", async () => {
  const tracks = new Map(Array.from({ length: 40 }, (_, id) => [id, { id, depths: 4, slices: 10_000_000 }]));
  const { tiles, asked } = server({ tracks });
  tiles.want(2, 0, 1000, of(...tracks.keys()));
  await quiet(tiles);
  assert.ok(asked.every((r) => r.units.length === 1), JSON.stringify(asked.map((r) => r.units.length)));
  for (const track of tracks.values()) track.slices = 10;
  asked.length = 0;
  tiles.want(1, 0, 1000, of(...tracks.keys()));
  await quiet(tiles);
  assert.ok(asked.filter((r) => r.level === 1).every((r) => r.units.length === 40));
});

test("lanes of kernels have requests of their own", async () => {
  const { tiles, asked } = server();
  tiles.want(1, 0, 8000, of(0, 5, FIRST_KERNEL_LANE, FIRST_KERNEL_LANE + 1));
  await quiet(tiles);
  assert.deepEqual(new Set(asked.map(({ units }) => units.map(unitTrack).join())), new Set(["0,5", `${FIRST_KERNEL_LANE},${FIRST_KERNEL_LANE + 1}`]));
});
