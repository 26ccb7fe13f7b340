import assert from "node:assert/strict";
import test from "node:test";
import { say, take, usual } from "../../../static/js/timeline/model/area_state.js";
import { bars, brushed, classAt, classesOf, decades, rangeOf } from "../../../static/js/timeline/model/histogram.js";
import { boxAt, boxes, build, path, rows, search, stepFrom } from "../../../static/js/timeline/model/flame_model.js";
import { Steps } from "../../../static/js/timeline/data/steps.js";

const cls = (from_ns, to_ns, count) => ({ from_ns, to_ns, count, total_ns: count * from_ns });
const CLASSES = [cls(8, 10, 4), cls(10, 12, 0), cls(12, 14, 8), cls(14, 16, 1)];

test("bars fill the width, the tallest the height, none of no slice is drawn", () => {
  const drawn = bars(CLASSES, 400, 100);
  assert.deepEqual(drawn.map(({ x, width }) => [x, width]), [[0, 100], [100, 100], [200, 100], [300, 100]]);
  assert.deepEqual(drawn.map(({ height }) => height), [50, 0, 100, 12.5]);
  assert.equal(bars(CLASSES, 400, 100, "total_ns")[0].height, (32 / 96) * 100);
  assert.deepEqual(bars([], 400, 100), []);
});

test("a brush means durations, either way round, and back", () => {
  assert.deepEqual([0, 99, 100, 399, 5000, -3].map((x) => classAt(CLASSES, 400, x)), [0, 0, 1, 3, 3, 0]);
  assert.deepEqual(rangeOf(CLASSES, 2, 0), [8, 14]);
  assert.deepEqual(classesOf(CLASSES, [8, 14]), [0, 2]);
  assert.deepEqual(classesOf(CLASSES, [11, 12]), [1, 1]);
  assert.equal(classesOf(CLASSES, [1, 8]), null);
  assert.equal(classesOf(CLASSES, null), null);
  assert.deepEqual(brushed(CLASSES, [3, 2]), { count: 9, total_ns: 8 * 12 + 14 });
});

test("decades stand where their duration is", () => {
  const [ten] = decades(CLASSES);
  assert.deepEqual(ten, { ns: 10, at: 0.25 });
  assert.deepEqual(decades([]), []);
});

test("a panel's state goes into a URL and comes back", () => {
  const state = { tab: "flame", by: ["name", "arg:Input Dims|%"], row: ["name:3", "grid:4,2,1"], range: [1000, 2000], flame: { mode: "gpu", order: "sandwich", apart: true, focus: 7 } };
  const back = usual();
  for (const key of Object.keys(say)) take[key](back, say[key](state));
  assert.deepEqual(back, state);
  for (const key of Object.keys(say)) {
    assert.equal(say[key](usual()), null, key);
    take[key](back, null);
  }
  assert.deepEqual(back, usual());
});

test("what a URL may not say leaves the usual", () => {
  const state = usual();
  for (const [key, text] of [["tab", "../x"], ["row", "a|b:x|:1"], ["dur", "9"], ["flame", "x.y.z.w"]]) take[key](state, text);
  assert.deepEqual(state, usual());
});

// all 100 = a 60 (b 40 (c 10), d 5) + e 40
const COLUMNS = { label: [-1, 0, 4, 1, 3, 2], parent: [-1, 0, 0, 1, 1, 3], total: [100, 60, 40, 40, 5, 10], self: [0, 15, 40, 30, 5, 10], count: [0, 1, 2, 3, 1, 1], first: [0, 50, 0, 60, 55, 61] };
const ROOT = build(COLUMNS, { names: { 0: "aten::a", 1: "b", 2: "c", 3: "d", 4: "aten::e" }, categories: { 0: 5 } }, (track) => `track ${track}`);
const placed = (list) => list.map(({ node, x0, x1, row }) => [node.name, x0, x1, row]);

test("boxes: left heavy by time, or in order of time; narrow ones are left out", () => {
  const near = (actual, expected) => { assert.deepEqual(actual.map((each) => [each[0], each[3]]), expected.map((each) => [each[0], each[3]])); actual.forEach((each, i) => assert.ok(Math.abs(each[1] - expected[i][1]) < 1e-9 && Math.abs(each[2] - expected[i][2]) < 1e-9, each)); };
  near(placed(boxes(ROOT, "heavy", 0.01)), [["all", 0, 1, 0], ["aten::a", 0, 0.6, 1], ["b", 0, 0.4, 2], ["c", 0, 0.1, 3], ["d", 0.4, 0.45, 2], ["aten::e", 0.6, 1, 1]]);
  near(placed(boxes(ROOT, "time", 0.01)), [["all", 0, 1, 0], ["aten::e", 0, 0.4, 1], ["aten::a", 0.4, 1, 1], ["d", 0.4, 0.45, 2], ["b", 0.45, 0.85, 2], ["c", 0.45, 0.55, 3]]);
  assert.deepEqual(boxes(ROOT, "heavy", 0.2).map(({ node }) => node.name), ["all", "aten::a", "b", "aten::e"]);
  assert.equal(rows(ROOT), 4);
});

test("zoom: a node fills the width under what is above it", () => {
  const b = ROOT.children[0].children.find((node) => node.name === "b");
  const list = boxes(b, "heavy", 0.01);
  assert.deepEqual(placed(list), [["b", 0, 1, 2], ["aten::a", 0, 1, 1], ["all", 0, 1, 0], ["c", 0, 0.25, 3]]);
  assert.equal(boxAt(list, 0.1, 3).node.name, "c");
  assert.equal(boxAt(list, 0.5, 3), null);
  assert.deepEqual(path(b), ["aten::a", "b"]);
});

test("search counts time once", () => {
  const { hits, share } = search(ROOT, "aten");
  assert.deepEqual([hits.size, share], [2, 100]);
  assert.equal(search(ROOT, "B").share, 40);
  assert.equal(search(ROOT, " ").hits.size, 0);
});

test("arrow keys lead to caller, callee and neighbours", () => {
  const list = boxes(ROOT, "heavy", 0.01), find = (name) => list.find(({ node }) => node.name === name);
  assert.equal(stepFrom(list, find("all"), "ArrowDown").node.name, "aten::a");
  assert.equal(stepFrom(list, find("b"), "ArrowRight").node.name, "d");
  assert.equal(stepFrom(list, find("d"), "ArrowLeft").node.name, "b");
  assert.equal(stepFrom(list, find("d"), "ArrowUp").node.name, "aten::a");
  assert.equal(stepFrom(list, find("all"), "ArrowUp").node.name, "all");
});

test("negative labels are tracks, the rest and what has no launch", () => {
  const columns = { ...COLUMNS, label: [-1, -12, -2, 1, -3, 2] };
  const root = build(columns, { names: { 1: "b", 2: "c" }, categories: {} }, (track) => `track ${track}`);
  assert.deepEqual(root.children.map((node) => node.name), ["track 2", "launch not recorded"]);
});

test("steps go around, over pages, and fetch each once", async () => {
  const asked = [];
  const steps = new Steps(async (offset, limit) => {
    asked.push(offset);
    return { total: 250, slices: Array.from({ length: Math.min(limit, 250 - offset) }, (_, i) => ({ id: offset + i })) };
  });
  assert.equal(await steps.load(), 250);
  assert.equal(steps.text, "– / 250");
  assert.equal((await steps.step(1)).id, 0);
  assert.equal((await steps.step(-1)).id, 249);
  assert.equal((await steps.step(-1)).id, 248);
  assert.equal(steps.text, "249 / 250");
  assert.equal(steps.current.id, 248);
  assert.deepEqual(asked, [0, 200]);
  assert.equal((await new Steps(async () => ({ total: 0, slices: [] })).step(1)), null);
});
