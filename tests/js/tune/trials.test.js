import assert from "node:assert/strict";
import { test } from "node:test";

import { band, describe, intervalText, merged, progress, spread } from "../../../static/js/tune/progress_model.js";
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

test("each trial is a point by its outcome, what is slower than the band or has no time is at the edge", () => {
  const trials = [trial(0, 1), trial(1, 1.5, { facts: { ended: "raced" } }), trial(2, 50), trial(3, null, { reason: "wrong" })], found = progress(trials, job, usual);
  assert.deepEqual(Object.entries(found.points).map(([kind, { trial: numbers }]) => [kind, numbers]), [["measured", [1]], ["raced", [2]], ["failed", [4]], ["slower", [3]]]);
  assert.deepEqual(found.points.failed.outcome, ["wrong"]);
  assert.deepEqual(found.order.map(({ kind, at }) => [kind, at]), [["measured", 0], ["raced", 0], ["slower", 0], ["failed", 0]]);
  assert.equal(found.outside, 1);
  assert.ok(found.y.low < 1000 && found.y.high > 2000 && found.y.high < 3000); // µs
  assert.equal(progress(trials, job, { ...usual, whole: true }).outside, 0);
  assert.deepEqual(found.x, { low: 0, high: 10 });
  assert.deepEqual(progress(trials, job, { ...usual, over: "seconds" }).x, { low: 0, high: 60 });
  assert.equal(progress([trial(30, 1)], job, usual).x.high, 31); // extended: wider than the budget was
  assert.deepEqual(found.best, { trial: [1, 2, 3, 4], us: [1000, 1000, 1000, 1000] }); // what failed since took its time as well
  assert.ok(describe(found, job).startsWith("3 measured trials, the best 1.00 ms; 1 are slower"), describe(found, job));
});

test("default, library and ceiling are lines with their names, and the ceiling is inside the band", () => {
  const found = progress([trial(0, 1)], { ...job, default_ms: 2, ceiling_ms: 0.5 }, usual);
  assert.deepEqual(found.levels, { default: [2000], library: [], ceiling: [500] });
  assert.deepEqual(found.labels.text, ["default 2.00 ms", "ceiling 500 µs", "best so far 1.00 ms"]);
  assert.ok(found.y.low < 500);
  const far = progress([trial(0, 1)], { ...job, ceiling_ms: 0.1 }, usual); // the band stays on what can be told apart
  assert.ok(far.y.low > 900);
  assert.deepEqual(far.labels.text, ["▼ ceiling 100 µs", "best so far 1.00 ms"]);
});

test("what a message brought stands until the snapshot holds it, once", () => {
  const rows = [trial(0, 1), trial(1, 2)], news = new Map([[1, trial(1, 9)], [3, trial(3, 3)], [2, trial(2, 4)]]);
  assert.deepEqual(merged(rows, news).map(({ number, median_ms }) => [number, median_ms]), [[0, 1], [1, 2], [2, 4], [3, 3]]);
  assert.equal(merged(rows, new Map([[0, trial(0, 7)]])), rows); // the same list where nothing came
});

test("a point says how sure its median is, and where that was not kept what is known", () => {
  assert.equal(intervalText(trial(0, 1, { n: 20, interval_ms: [0.99, 1.02] })), "990 µs to 1.02 ms, n 20");
  assert.equal(intervalText(trial(0, 1, { n: 20, min_ms: 0.9, p90_ms: 1.1 })), "not kept; least 900 µs, 90 % below 1.10 ms, n 20");
  assert.equal(intervalText(trial(0, null)), "—");
});

test("labels keep apart, in their order", () => {
  assert.deepEqual(spread([10, 12, 100], 15), [10, 25, 100]);
  assert.deepEqual(spread([12, 10], 15), [25, 10]);
});
