import assert from "node:assert/strict";
import { test } from "node:test";

import { SourceModel } from "../../../static/js/profiles/source_model.js";

// Two lines of one file (line 4: rows 0 and 2, line 9: row 1), one row of another file, one without a line.
const found = {
  files: [{ number: 0, name: "/a/k.cu", short: "k.cu", text: "one\r\ntwo\nthree\nfour" }, { number: 1, name: "h.hpp", short: "h.hpp", text: null }],
  measures: [{ name: "samples", label: "Stall samples", adds_up: true }, { name: "inst_executed", label: "Executed", adds_up: true }, { name: "threads_per_warp", label: "Threads", adds_up: false }],
  reasons: [{ name: "wait", title: "Wait" }, { name: "barrier", title: "Barrier" }, { name: "drain", title: "Drain" }],
  instructions: { offset: [0, 16, 32, 48, 64], sass: ["A", "B", "C", "D", "E"], ptx: [0, 0, 0, 0, 0], file: [0, 0, 0, 1, null], line: [4, 9, 4, 7, null] },
  ptx: [""],
  values: { samples: [10, 60, 20, 5, 5], inst_executed: [1, 2, 3, 1, 0], threads_per_warp: [32, 8, 16, 32, 0] },
  samples: { wait: [4, 0, 1, 5, 0], barrier: [6, 60, 19, 0, 5], drain: [0, 0, 0, 0, 0] },
  waits: { 1: 0 }, marks: [],
};
const model = new SourceModel(found);

test("a line holds its instructions", () => {
  assert.deepEqual(model.rowsOf(0, 4), [0, 2]);
  assert.deepEqual(model.rowsOf(0, 5), []);
  assert.equal(model.lineKey(4), null);
  assert.equal(model.over("samples", [0, 2]), 30);
  assert.equal(model.share("samples", 30), 30);
});

test("a ratio is a mean by executions, and hot where it is low", () => {
  assert.equal(model.over("threads_per_warp", [0, 2]), (32 + 3 * 16) / 4);
  assert.equal(model.heat("threads_per_warp", 8, "row"), 0.75);
  assert.equal(model.heat("threads_per_warp", 32, "row"), 0);
  assert.equal(model.heat("threads_per_warp", 0, "row", false), 0);
  assert.equal(model.ran(4), false);
});

test("heat is measured by the hottest of its kind", () => {
  assert.equal(model.heat("samples", 60, "row"), 1);
  assert.equal(model.heat("samples", 30, "line"), 0.5);
  assert.deepEqual(model.hottest("samples"), [1, 2, 0, 3, 4]);
  assert.deepEqual(model.hottestLines("samples", 0), [9, 4]);
  assert.deepEqual(model.hottest("threads_per_warp"), [1, 2]);
});

test("states of what is chosen, most first, without those of no sample", () => {
  assert.deepEqual(model.statesOf([0, 2]).map(({ state, samples }) => [state.name, samples]), [["barrier", 25], ["wait", 5]]);
});

test("the next hottest goes round", () => {
  assert.equal(SourceModel.next([9, 4], null, 1), 9);
  assert.equal(SourceModel.next([9, 4], 4, 1), 9);
  assert.equal(SourceModel.next([9, 4], 9, -1), 4);
  assert.equal(SourceModel.next([9, 4], 77, -1), 4);
  assert.equal(SourceModel.next([], 9, 1), null);
});

test("files by heat; lines as text, or those that are known", () => {
  assert.deepEqual(model.filesByHeat("samples").map((file) => file.number), [0, 1]);
  assert.deepEqual(model.lines(0).map(({ text }) => text), ["one", "two", "three", "four"]);
  assert.deepEqual(model.lines(1), [{ line: 7, text: null }]);
});
