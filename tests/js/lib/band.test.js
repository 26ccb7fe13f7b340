// The band of an axis: the same cases as the server's rule, and what holds of any values.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { band } from "../../../static/js/lib/band.js";

for (const { says, values, marks, zero, ...told } of JSON.parse(readFileSync(new URL("../../data/bands.json", import.meta.url), "utf8"))) {
  test(`a band where ${says}`, () => assert.deepEqual(band(values, { marks, zero }), told));
}

/** Numbers that look like chance, the same each time. @param {number} seed */
function* chance(seed) {
  for (let state = seed; ;) { state = (state * 1103515245 + 12345) % 2 ** 31; yield state / 2 ** 31; }
}

test("every value is inside or told, every mark inside, at most half outside, whatever the order", () => {
  for (let seed = 1; seed < 300; seed++) {
    const next = chance(seed), draw = () => next.next().value;
    const values = Array.from({ length: Math.floor(40 * draw()) }, () => (draw() < 0.15 ? 1e4 : 1) * draw()), marks = [draw() * 3];
    const found = band(values, { marks }), inside = values.filter((value) => value >= found.low && value <= found.high);
    assert.deepEqual([...found.below, ...inside, ...found.above].sort((a, b) => a - b), [...values].sort((a, b) => a - b));
    assert.ok(found.low <= marks[0] && marks[0] <= found.high && inside.length >= values.length / 2);
    assert.deepEqual(band([...values].reverse(), { marks }), found);
  }
});
