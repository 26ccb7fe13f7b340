import assert from "node:assert/strict";
import { test } from "node:test";
import { columnTest, compareValues, parseQuantity, toCsv, toJson, toTsv, wordsTest, quantity } from "../../../static/js/grid/query.js";

const time = { field: "total", title: "Total", type: "number", unit: "ns" };
const name = { field: "name", title: "Kernel", type: "text" };

test("quantities are read in the column's unit", () => {
  assert.equal(parseQuantity("1.5ms", "ns"), 1.5e6);
  assert.equal(parseQuantity("1.5 ms", "ms"), 1.5);
  assert.equal(parseQuantity("12 µs", "ns"), 12000);
  assert.equal(parseQuantity("1,000"), 1000);
  assert.equal(parseQuantity("2k"), 2000);
  assert.equal(parseQuantity("fast"), null);
});

test("column filters compare numbers, and unknown never passes", () => {
  assert.equal(columnTest(">1ms", time)(2e6, ""), true);
  assert.equal(columnTest(">1ms", time)(null, "—"), false);
  assert.equal(columnTest("10..20", time)(20, ""), true);
  assert.equal(columnTest("10..20", time)(21, ""), false);
  assert.equal(columnTest("", time), null);
  assert.equal(columnTest("gemm !sm80", name)("", "sm90_gemm"), true);
  assert.equal(columnTest("gemm !sm80", name)("", "sm80_gemm"), false);
});

test("one box: all words, any order, any case", () => {
  assert.equal(wordsTest("SOFT max")("max_softmax_fwd"), true);
  assert.equal(wordsTest("soft gemm")("softmax"), false);
});

test("unknown sorts last in both directions", () => {
  for (const direction of ["asc", "desc"]) {
    const sorted = [3, null, 1].sort((a, b) => (direction === "asc" ? 1 : -1) * compareValues(a, b, "number", direction));
    assert.equal(sorted[2], null);
  }
  assert.ok(compareValues("k2", "k10", "text", "asc") < 0);
});

test("exports quote, keep exact values and do not become formulas", () => {
  const rows = [["a,b", 1.5], ["=cmd()", null], ['say "x"', 1e-7]];
  assert.equal(toCsv([name, time], rows), 'Kernel,Total\r\n"a,b",1.5\r\n\'=cmd(),\r\n"say ""x""",1e-7\r\n');
  assert.equal(toTsv([name, time], [["a\tb", 2]]), "Kernel\tTotal\na b\t2");
  assert.deepEqual(JSON.parse(toJson([name, time], rows))[1], { Kernel: "=cmd()", Total: null });
});

test("a quantity is read as people write it, in the base of its unit", () => {
  for (const [text, value, unit] of [
    ["41.2 µs", 41200, "ns"], ["▲ +1.50 ms, of 3", 1500000, "ns"], ["−7.3 %", -7.3, "%"], ["+7.3 %", 7.3, "%"], ["1.04×", 1.04, "×"],
    ["1,234 ns", 1234, "ns"], ["45.1 k", 45100, ""], ["2.00 MiB", 2097152, "B"], ["1.2 TFLOP/s", 1.2e12, "FLOP/s"], ["3.35 TB/s", 3.35e12, "B/s"],
    ["12 launches", 12, ""], ["1980 MHz", 1.98e9, "Hz"], ["59.2 min", 3552e9, "ns"],
  ]) {
    const read = quantity(text);
    assert.ok(read && Math.abs(read.value - value) <= Math.abs(value) * 1e-12 && read.unit === unit, `${text}: ${JSON.stringify(read)}`);
  }
  for (const text of ["—", "", "none"]) assert.equal(quantity(text), null);
});
