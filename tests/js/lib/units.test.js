import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as units from "../../../static/js/lib/units.js";

const cases = JSON.parse(readFileSync(new URL("../../data/numbers.json", import.meta.url), "utf8"));

test("the browser writes numbers as the templates do", () => {
  for (const [value, text] of cases.ns) assert.equal(units.ns(value), text);
  for (const [value, text] of cases.nbytes) assert.equal(units.bytes(value), text);
  for (const [value, text] of cases.pct) assert.equal(units.pct(value), text);
  for (const [value, text] of cases.count) assert.equal(units.count(value), text);
  for (const [value, unit, text] of cases.si) assert.equal(units.si(value, unit), text);
});

test("unknown is a dash, zero is a number", () => {
  for (const unknown of [null, undefined, "", NaN, Infinity, "n/a"]) assert.equal(units.ns(unknown), "—");
  assert.equal(units.ns(0), "0 ns");
});

test("a noun agrees with its count", () => {
  const told = [[1, "launch", "1 launch"], ["1", "record", "1 record"], [0, "launch", "0 launches"], [2, "copy", "2 copies"], [12345, "record", "12,345 records"], [null, "launch", "— launches"]];
  for (const [count, one, text] of told) assert.equal(units.plural(count, one), text);
});
