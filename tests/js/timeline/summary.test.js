import assert from "node:assert/strict";
import test from "node:test";
import { summaryText } from "../../../static/js/timeline/commands/summary.js";

const ANSWER = { start_ns: 1_000_000, end_ns: 3_000_000, slices: 1234, busy_ns: 500_000, rows: [{ name: "step", category: "annotation", count: 1, total_ns: 2_000_000 }, { name: "gemm", count: 4, total_ns: 400_000 }, { name: "copy", count: 1, total_ns: 100_000 }] };

test("what is in view is said in a sentence", () => {
  assert.equal(summaryText(ANSWER, true), "2.00 ms from 1.00 ms: 1,234 slices. GPU busy 25 %. Most time: gemm, 400 µs in 4; copy, 100 µs in 1.");
});

test("without a GPU or anything that ran, nothing is claimed", () => {
  assert.equal(summaryText({ ...ANSWER, slices: 0, rows: [] }, false), "2.00 ms from 1.00 ms: 0 slices.");
});
