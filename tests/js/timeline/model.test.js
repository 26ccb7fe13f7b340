import assert from "node:assert/strict";
import test from "node:test";
import { category, decodeTile, firstEndingAfter, hashText, INSTANT, lowerBound, MERGED, Timeline } from "../../../static/js/timeline/model/model.js";
import { cutAt, shortened } from "../../../static/js/timeline/model/shortened.js";
import { encodeTile, metaOf } from "./fixture.js";
import { overviewNs, overviewX } from "../../../static/js/timeline/draw/ruler.js";

test("a tile is decoded into columns per track", () => {
  const tile = decodeTile(encodeTile([
    [3, [{ start: 10, dur: 5, name: 7, slice: 42, category: 1 }, { start: 2 ** 50 + 1, dur: 1, count: 9, depth: 2, flags: MERGED }]],
    [0, [], [[5, 1.5], [9, -2]]],
    [8, [{ start: 1, dur: 0, flags: INSTANT }]],
  ]));
  assert.deepEqual([...tile.keys()], [3, 0, 8]);
  const first = tile.get(3);
  assert.deepEqual([...first.start], [10, 2 ** 50 + 1]);       // exact far beyond 32 bits
  assert.deepEqual([first.n, first.name[0], first.slice[0], first.category[0], first.count[1], first.flags[1]], [2, 7, 42, 1, 9, MERGED]);
  assert.deepEqual([...first.depthFrom], [0, 1, 1, 2]);        // depth 1 is empty
  assert.deepEqual([...tile.get(0).time, ...tile.get(0).value], [5, 9, 1.5, -2]);
  assert.equal(tile.get(8).flags[0], INSTANT);
});

test("an odd number of rows keeps the samples aligned", () => {
  const tile = decodeTile(encodeTile([[1, [{ start: 1, dur: 1 }], [[4, 8]]]]));
  assert.deepEqual([tile.get(1).time[0], tile.get(1).value[0]], [4, 8]);
});

test("what is no tile is refused", () => {
  assert.throws(() => decodeTile(new ArrayBuffer(4)), /not a timeline tile/);
  assert.throws(() => decodeTile(new ArrayBuffer(64)), /not a timeline tile/);
});

test("the levels are those of the server", () => {
  assert.equal(new Timeline(metaOf(48_660_453)).topLevel, 8);
  assert.equal(new Timeline(metaOf(1)).topLevel, 0);
});

test("names match without regard to case", () => {
  const timeline = new Timeline(metaOf());
  assert.equal(timeline.matches("gemm"), null);                // names are not here yet
  timeline.setNames(["ampere_GEMM", "copy"]);
  assert.deepEqual([...timeline.matches("gemm")], [1, 0]);
  assert.equal(timeline.matches(""), null);
  assert.equal(hashText("copy"), hashText("copy"));
});

test("categories answer to number and word", () => {
  assert.equal(category(1).key, "communication");
  assert.equal(category("cpu_op"), category(5));
  assert.equal(category(200).key, "other");
});

test("rows are found by time", () => {
  const tile = decodeTile(encodeTile([[0, [0, 10, 20].map((start) => ({ start, dur: 5 }))]])).get(0);
  assert.deepEqual([-1, 4, 5, 12, 26].map((ns) => firstEndingAfter(tile, 0, 3, ns)), [0, 0, 1, 1, 3]);
  assert.deepEqual([0, 10, 11, 99].map((ns) => lowerBound(tile.start, ns)), [0, 1, 2, 3]);
});

test("of very many names the first come at once, the others when they are wanted", () => {
  const timeline = new Timeline(metaOf());
  timeline.setNames(["a", "b"], 5);
  assert.equal(timeline.name(1), "b");
  assert.equal(timeline.name(4), "");
  assert.deepEqual([...timeline.namesMissing], [4]);
  timeline.addNames({ 4: "late" });
  assert.equal(timeline.name(4), "late");
  assert.equal(timeline.namesMissing.size, 0);
  assert.equal(timeline.name(9), "");
  assert.equal(timeline.namesMissing.size, 0);
});

test("a slice of a kernel is called as the kernel table calls it", () => {
  const timeline = new Timeline(metaOf());
  assert.equal(timeline.label(0), "");                         // nothing is here yet
  timeline.setNames(["void f<int>(int)", "aten::add"], 3, { 0: "f<int>" });
  assert.deepEqual([0, 1].map((id) => timeline.label(id)), ["f<int>", "aten::add"]);
  timeline.addNames({ 2: "void g()" }, { 2: "g" });
  assert.deepEqual([timeline.label(2), timeline.name(2)], ["g", "void g()"]);
});

test("what tells a kernel from its siblings stays longest where there is little room", () => {
  const label = "clover::par_ranged2d_kernel<PdV_kernel #1>";
  assert.equal(shortened(label, 50), label);
  assert.equal(shortened(label, 30), "clover::par_ra…<PdV_kernel #1>");
  assert.equal(shortened(label, 18), "clove…<PdV_kernel…");
  assert.deepEqual([10, 8].map((room) => shortened(label, room)), ["cl…<PdV_k…", "clover:…"]);
  assert.equal(shortened("aten::convolution_backward", 10), "aten::con…");
  for (let room = 2; room < 60; room++) assert.ok(shortened(label, room).length <= room);
});

test("a name is never cut within a number, which would be another number", () => {
  assert.equal(shortened("ProfilerStep#128", 15), "ProfilerStep#…");
  assert.equal(shortened("thread 1934010688 (python)", 14), "thread …");
  assert.equal(shortened("thread 1934010688 (python)", 20), "thread 1934010688 (…");
  assert.equal(shortened("copy<float, 128, 12.5>", 14), "cop…<float, …");
  assert.deepEqual([cutAt("1,024 B", 4), cutAt("1,024 B", 6), cutAt("12", 0)], ["…", "1,024…", "…"]);
});

test("the axis ends with the last slice, or at a mark behind it where the window reaches there", () => {
  const timeline = new Timeline(metaOf(1_000_000, { last_ns: 400_000 }));
  assert.equal(timeline.axisEnd({ end: timeline.opening[1] }), 400_000);
  assert.equal(timeline.axisEnd({ end: 900_000 }), 1_000_000);
  assert.equal(new Timeline(metaOf()).axisEnd({ end: 1_000_000 }), 1_000_000);
});

test("a mark far behind the last slice does not shrink the first picture", () => {
  assert.deepEqual(new Timeline(metaOf(1_000_000, { last_ns: 400_000 })).opening, [0, 408_000]);
  assert.deepEqual(new Timeline(metaOf(1_000_000, { last_ns: 990_000 })).opening, [0, 1_000_000]);
  assert.deepEqual(new Timeline(metaOf(1_000_000)).opening, [0, 1_000_000]);
});

test("the overview ends where the timeline opens to, and a time and its pixel belong together", () => {
  const timeline = new Timeline(metaOf(1_000_000, { last_ns: 400_000 }));
  assert.equal(Math.round(overviewX(timeline, 408_000, 800)), 800);
  for (const ns of [0, 200_000, 408_000]) assert.ok(Math.abs(overviewNs(timeline, overviewX(timeline, ns, 800), 800) - ns) < 1);
});
