import assert from "node:assert/strict";
import { test } from "node:test";

import { passes, reduced } from "../../../static/js/profiles/roofline_filter.js";

const point = { name: "void at::softmax<float>(int)", short_name: "softmax", precision_label: "FP32", bound: "memory", profile_id: 7, time_ns: 5000 };
const everything = { q: "", precisions: null, bounds: null, profiles: null, minNs: 0 };

test("every word must occur, in the short or the full name", () => {
  assert.ok(passes(point, everything));
  assert.ok(passes(point, { ...everything, q: "AT:: soft" }));
  assert.ok(!passes(point, { ...everything, q: "soft gemm" }));
});

test("precision and time narrow further", () => {
  assert.ok(passes(point, { ...everything, precisions: new Set(["FP32"]), minNs: 5000 }));
  assert.ok(!passes(point, { ...everything, precisions: new Set(["FP64"]) }));
  assert.ok(!passes(point, { ...everything, precisions: new Set() }));
  assert.ok(!passes(point, { ...everything, minNs: 5001 }));
});

test("what bounds it and the profile narrow too", () => {
  assert.ok(passes(point, { ...everything, bounds: new Set(["memory", "compute"]), profiles: new Set(["7"]) }));
  assert.ok(!passes(point, { ...everything, bounds: new Set(["latency"]) }));
  assert.ok(!passes(point, { ...everything, profiles: new Set(["8"]) }));
});

test("rows are taken out of every column, typed arrays too", () => {
  assert.deepEqual(reduced({ x: Float64Array.of(1, 2, 3), name: ["a", "b", "c"] }, [true, false, true]), { x: [1, 3], name: ["a", "c"] });
});
