import assert from "node:assert/strict";
import { test } from "node:test";

import { band, curve, nearest, spread, timeTicks, wholeTicks } from "../../../static/js/tune/curve_model.js";
import { bestSoFar, byTime } from "../../../static/js/tune/trials.js";

const trial = (number, median_ms, more = {}) => ({ number, median_ms, config: { BM: number }, outcome: median_ms === null ? "rejected" : "measured", reason: "", message: "", min_ms: median_ms, p90_ms: median_ms, n: 1, facts: {}, at_s: number / 2, ...more });
const job = { most: 10, seconds: 60, default_ms: null, library_ms: null };
const usual = { over: "trials", log: true, whole: false };

test("the best so far is of measured trials, and a trial that was given up in a race is never the best", () => {
  const told = (...trials) => bestSoFar(trials).map(({ trial: one, best_ms }) => [one.number, best_ms]);
  assert.deepEqual(told(trial(0, 5), trial(1, null), trial(2, 3), trial(3, 4)), [[0, 5], [2, 3], [3, 3]]);
  assert.deepEqual(told(trial(0, 5), trial(1, 3, { facts: { ended: "raced" } }), trial(2, 4)), [[0, 5], [1, 5], [2, 4]]);
});

test("rows stand by time, what failed last", () => {
  assert.deepEqual(byTime([trial(0, 5), trial(1, null), trial(2, 3), trial(3, 5), trial(4, null)]).map(({ number }) => number), [2, 0, 3, 1, 4]);
});

test("the band reaches to twice the best, or to what it is compared with, and never beyond what was measured", () => {
  assert.equal(band([], null, job), null);
  assert.deepEqual(band([1, 1.5, 50], 1, job), { low: 1, high: 2 });
  assert.deepEqual(band([1, 1.5, 50], 1, { default_ms: 4, library_ms: 0.9 }), { low: 0.9, high: 4 });
  assert.deepEqual(band([1, 1.2], 1, job), { low: 1, high: 1.2 });
  assert.deepEqual(band([1, 8, 9, 10, 50], 1, job), { low: 1, high: 9 }); // half of the trials are inside
  assert.deepEqual(band([1, 1.5, 50], 1, { default_ms: 4, library_ms: null }, true), { low: 1, high: 50 });
  assert.deepEqual(band([], null, { default_ms: 3, library_ms: 2 }), { low: 2, high: 3 }); // the levels come before the first trial
});

test("what is slower than the band is marked, counted and still there", () => {
  const trials = [trial(0, 1), trial(1, 1.5), trial(2, 50), trial(3, null)], found = curve(trials, job, usual);
  assert.deepEqual(found.dots.map(({ x, outside }) => [x, outside]), [[1, false], [2, false], [3, true]]);
  assert.equal(found.outside, 1);
  assert.ok(found.y.low < 1 && found.y.high > 2 && found.y.high < 3);
  assert.equal(curve(trials, job, { ...usual, whole: true }).outside, 0);
  assert.deepEqual(found.x, { low: 0, high: 10 });
  assert.deepEqual(curve(trials, job, { ...usual, over: "seconds" }).x, { low: 0, high: 60 });
  assert.equal(curve([trial(30, 1)], job, usual).x.high, 31); // extended: wider than the budget was
});

test("axes have some round marks, all of them inside", () => {
  for (const [low, high] of [[0.17, 0.65], [0.98, 1.02], [2, 30], [0.001, 9]]) {
    const marks = timeTicks({ low, high, log: true });
    assert.ok(marks.length >= 2 && marks.length <= 6 && marks.every((mark) => mark >= low && mark <= high), `${low}..${high}: ${marks}`);
  }
  assert.deepEqual(wholeTicks(602, 8), [0, 100, 200, 300, 400, 500, 600]);
  assert.deepEqual(wholeTicks(3, 8), [0, 1, 2, 3]);
});

test("labels keep apart, in their order", () => {
  assert.deepEqual(spread([10, 12, 100], 15), [10, 25, 100]);
  assert.deepEqual(spread([12, 10], 15), [25, 10]);
});

test("a hand finds the nearest dot within reach", () => {
  const places = [{ x: 0, y: 0 }, { x: 10, y: 0 }];
  assert.equal(nearest(places, 7, 1, 14), 1);
  assert.equal(nearest(places, 7, 40, 14), null);
});
