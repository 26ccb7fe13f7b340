import assert from "node:assert/strict";
import test from "node:test";
import { arrange, trackFilter, withMove } from "../../../static/js/timeline/model/arrange.js";
import { Timeline } from "../../../static/js/timeline/model/model.js";
import { metaOf } from "./fixture.js";

const view = (changes = {}) => ({ pinned: new Set(), hidden: new Set(), moves: [], filter: "", ...changes });
const shown = (changes) => arrange(new Timeline(metaOf()), view(changes)).groups.map(({ group, shown: tracks }) => [group.name, ...tracks.map((t) => t.id)]);

test("GPUs stand above threads without a wish", () => {
  assert.deepEqual(shown(), [["GPU 0", 1, 2, 3], ["python (1)", 0]]);
});

test("hidden tracks are left out and counted; a group without tracks goes too", () => {
  const arranged = arrange(new Timeline(metaOf()), view({ hidden: new Set([0, 2]) }));
  assert.deepEqual(arranged.groups.map((g) => g.shown.map((t) => t.id)), [[1, 3]]);
  assert.deepEqual([arranged.byHand, arranged.byFilter], [2, 0]);
});

test("a filter is words, or a pattern where it looks like one", () => {
  assert.deepEqual(shown({ filter: "GPU stream" }), [["GPU 0", 1, 2]]);
  assert.deepEqual(shown({ filter: "stream [78]|^thread" }), [["GPU 0", 1, 2], ["python (1)", 0]]);
  assert.deepEqual(shown({ filter: "/STREAM 8/" }), [["GPU 0", 2]]);
  assert.equal(arrange(new Timeline(metaOf()), view({ filter: "stream 8" })).byFilter, 3);
});

test("brackets of a name are found as they are written", () => {
  assert.ok(trackFilter("counter [0]").test("counter [0]"));
  assert.ok(trackFilter("(python)").test("thread 1 (python)"));
});

test("a pattern that is none, or would take for ever, filters nothing and says why", () => {
  for (const text of ["stream [", "/(a+)+$/", "(x*)*"]) {
    const { error, groups } = arrange(new Timeline(metaOf()), view({ filter: text }));
    assert.ok(error, text);
    assert.equal(groups.length, 2);
  }
});

test("tracks move within their group, groups among each other", () => {
  assert.deepEqual(shown({ moves: [["t3", "t1"]] }), [["GPU 0", 3, 1, 2], ["python (1)", 0]]);
  assert.deepEqual(shown({ moves: [["t1", ""]] }), [["GPU 0", 2, 3, 1], ["python (1)", 0]]);
  assert.deepEqual(shown({ moves: [["g0", "g1"]] }), [["python (1)", 0], ["GPU 0", 1, 2, 3]]);
  assert.deepEqual(shown({ moves: [["t1", "t0"], ["t9", "t1"], ["g0", "t1"], ["g7", ""]] }), shown());
});

test("a track moved twice keeps its last place only", () => {
  assert.deepEqual(withMove([["t1", "t2"], ["t3", "t1"]], "t3", "t2"), [["t1", "t2"], ["t3", "t2"]]);
  assert.deepEqual(withMove([], "t1", "t1"), []);
});

test("pinned tracks stand in the order in which they were pinned, hidden ones too", () => {
  const { pinned } = arrange(new Timeline(metaOf()), view({ pinned: new Set([2, 0]), hidden: new Set([2]) }));
  assert.deepEqual(pinned.map((p) => p.track.id), [2, 0]);
});
