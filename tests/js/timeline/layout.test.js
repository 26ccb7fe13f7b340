import assert from "node:assert/strict";
import test from "node:test";
import { decodeTile, Timeline } from "../../../static/js/timeline/model/model.js";
import { depthAt, entryAt, groupKey, LANE, laneTop, layout, rowsBetween, trackKey, valueAt } from "../../../static/js/timeline/model/layout.js";
import { encodeTile, metaOf } from "./fixture.js";

const view = (changes = {}) => ({ folded: new Set(), pinned: new Set(), filter: "", ...changes });
const keys = (rows) => rows.rows.map((row) => row.key);

test("groups and tracks follow each other without gaps", () => {
  const { main, pinned } = layout(new Timeline(metaOf()), view());
  assert.deepEqual(keys(main), ["g:GPU 0", "t:1", "t:2", "t:3", "g:python (1)", "t:0"]);
  assert.equal(pinned.rows.length, 0);
  main.rows.reduce((y, row) => { assert.equal(row.y, y); return y + row.height; }, 0);
  assert.equal(main.height, main.rows.at(-1).y + main.rows.at(-1).height);
  assert.equal(main.rows[5].lanes, 3);
});

test("a folded group stands for its tracks", () => {
  const timeline = new Timeline(metaOf());
  const { main } = layout(timeline, view({ folded: new Set([groupKey(timeline.groups[0])]) }));
  assert.deepEqual(keys(main), ["g:GPU 0", "g:python (1)", "t:0"]);
  assert.equal(main.byTrack.get(2), main.rows[0]);
});

test("a folded track is as high as one lane", () => {
  const timeline = new Timeline(metaOf());
  const thread = (folded) => layout(timeline, view({ folded })).main.byTrack.get(0);
  const open = thread(new Set()), shut = thread(new Set([trackKey(timeline.tracks.get(0))]));
  assert.ok(shut.height < open.height && shut.folded);
});

test("a filter shows tracks that have all its words and opens groups", () => {
  const timeline = new Timeline(metaOf());
  const folded = new Set(timeline.groups.map(groupKey));
  assert.deepEqual(keys(layout(timeline, view({ filter: "GPU stream 8", folded })).main), ["g:GPU 0", "t:2"]);
  assert.equal(layout(timeline, view({ filter: "nothing like it" })).main.rows.length, 0);
});

test("pinned tracks are shown twice", () => {
  const { main, pinned } = layout(new Timeline(metaOf()), view({ pinned: new Set([2]) }));
  assert.deepEqual(keys(pinned), ["t:2"]);
  assert.ok(main.byTrack.has(2));
});

test("tracks without slices are left out", () => {
  const meta = metaOf();
  meta.tracks[1].slices = 0;
  assert.ok(!layout(new Timeline(meta), view()).main.byTrack.has(1));
});

test("a height leads to its row and depth", () => {
  const { main } = layout(new Timeline(metaOf()), view());
  const row = main.byTrack.get(0);
  for (let depth = 0; depth < 3; depth++) assert.equal(depthAt(row, laneTop(row, depth) + LANE / 2), depth);
  assert.equal(depthAt(row, row.y), null);
  assert.deepEqual(rowsBetween(main, row.y + 1, row.y + 2), [row]);
  assert.equal(rowsBetween(main, -100, 1e6).length, main.rows.length);
  assert.equal(rowsBetween(main, main.height + 1, main.height + 9).length, 0);
});

test("the entry under the pointer, or the nearest within reach", () => {
  const tile = decodeTile(encodeTile([[0, [{ start: 0, dur: 10, slice: 1 }, { start: 100, dur: 0, slice: 2, flags: 1 }, { start: 0, dur: 5, slice: 3, depth: 1 }]]])).get(0);
  const runs = [{ level: 0, from: 0, to: 1024, tiles: [{ tile, start: 0 }] }];
  const at = (depth, ns, tolerance) => entryAt(runs, depth, ns, tolerance)?.slice;
  assert.equal(at(0, 5, 0), 1);
  assert.equal(at(0, 12, 3), 1);
  assert.equal(at(0, 50, 3), undefined);
  assert.equal(at(0, 102, 3), 2);
  assert.equal(at(1, 4, 0), 3);
  assert.equal(at(7, 4, 0), undefined);
});

test("a counter holds its value until the next sample", () => {
  const tile = decodeTile(encodeTile([[0, [], [[10, 1], [20, 5]]]])).get(0);
  const runs = [{ level: 0, from: 0, to: 1024, tiles: [{ tile, start: 0 }] }];
  assert.deepEqual([5, 10, 19, 20, 900].map((ns) => valueAt(runs, ns)), [null, 1, 1, 5, 5]);
});
