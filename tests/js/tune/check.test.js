import assert from "node:assert/strict";
import test from "node:test";
import { besideText, fileName, kernelAt, leftOut, refusal, rulesOf } from "../../../static/js/tune/check_model.js";

test("a dropped file gives its name where it is one of a kernel file", () => {
  assert.equal(fileName("C:\\work\\add.cu", "kernel.py"), "add.cu");
  assert.equal(fileName("notes.txt", "kernel.py"), "kernel.py");
});

test("of several files the first that holds a kernel is the kernel's, and the others come with it", () => {
  assert.equal(kernelAt(["X = 1\n", "import triton\n@triton.jit\ndef f(): pass\n", "__global__ void g() {}"]), 1);
  assert.equal(kernelAt(["X = 1\n", "Y = 2\n"]), 0);
  assert.equal(besideText(["near.py", "far.py"]), "With it: near.py, far.py");
  assert.equal(besideText([]), "");
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
