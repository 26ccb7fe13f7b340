import assert from "node:assert/strict";
import test from "node:test";
import { fileName, leftOut, refusal, rulesOf } from "../../../static/js/tune/check_model.js";

test("a dropped file gives its name where it is one of a kernel file", () => {
  assert.equal(fileName("C:\\work\\add.cu", "kernel.py"), "add.cu");
  assert.equal(fileName("notes.txt", "kernel.py"), "kernel.py");
});

test("what is too large or empty is not read", () => {
  assert.equal(refusal({ name: "a.py", size: 10 }, 100), "");
  assert.equal(refusal({ name: "a.py", size: 0 }, 100), "a.py is empty");
  assert.equal(refusal({ name: "a.py", size: 3000 }, 1000), "a.py: 3,000 bytes; at most 1,000");
});

test("constraints are one a line", () => {
  assert.deepEqual(rulesOf(" BM <= 4 \n\nBN > 1"), ["BM <= 4", "BN > 1"]);
  assert.deepEqual(leftOut({ reason: "fits", expression: "BM <= 4", left_out: 1200 }), ["1,200", "fits: BM <= 4"]);
  assert.deepEqual(leftOut({ reason: "BM <= 4", expression: "BM <= 4", left_out: 0 }), ["0", "BM <= 4"]);
});
