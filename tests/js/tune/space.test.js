import assert from "node:assert/strict";
import { test } from "node:test";

import { bestOf, cells, common, facts, parameters, Picks, placeOf, slices, slowness, ticks, timeAxis, valueAt } from "../../../static/js/tune/space.js";

let number = 0;
const trial = (config, median_ms, more = {}) => ({ number: number++, config, median_ms, outcome: median_ms === null ? "rejected" : "measured", reason: median_ms === null ? "spills" : "", message: "", min_ms: median_ms, p90_ms: median_ms, n: 1, facts: {}, at_s: 0, ...more });

const TRIALS = [
  trial({ BM: 128, layout: "row", num_warps: 4 }, 1.0, { facts: { registers: 128 } }),
  trial({ BM: 64, layout: "row", num_warps: 4 }, 1.04, { facts: { registers: 64 } }),
  trial({ BM: 16, layout: "col", num_warps: 4 }, 8.0),
  trial({ BM: 128, layout: "col", num_warps: 4 }, null),
  trial({ BM: 128, layout: "row", num_warps: 4 }, 1.3),
];

test("an axis for each parameter that varies, numbers by size and texts by letter", () => {
  const axes = parameters(TRIALS);
  assert.deepEqual(axes.map(({ name, values }) => [name, values]), [["BM", [16, 64, 128]], ["layout", ["col", "row"]]]);
  assert.deepEqual(facts(TRIALS).map(({ name, low, high }) => [name, low, high]), [["registers", 64, 128]]);
  assert.equal(timeAxis([trial({ BM: 1 }, null)]), null);
});

test("classes of slowness count from the best", () => {
  assert.equal(bestOf(TRIALS), 1.0);
  assert.equal(bestOf([...TRIALS, trial({ BM: 8 }, 0.5, { facts: { ended: "raced" } })]), 1.0);
  assert.deepEqual([1.0, 1.05, 1.06, 1.6, 9].map((ms) => slowness(ms, 1.0)), [0, 0, 1, 3, 5]);
});

test("a trial has to be in all that is picked; failures are picked by their reason", () => {
  const picks = new Picks();
  const passing = () => TRIALS.map((one, at) => (picks.passes(one) ? at : -1)).filter((at) => at >= 0);
  picks.toggle("BM", 128);
  assert.deepEqual(passing(), [0, 3, 4]);
  picks.set("ms", { low: 0, high: 1.1 });
  assert.deepEqual(passing(), [0]);
  picks.set("ms", null);
  picks.set("failed", { values: new Set(["spills"]) });
  assert.deepEqual(passing(), [3]);
  picks.toggle("BM", 128);
  assert.equal(picks.size, 1);
  picks.clear();
  assert.equal(passing().length, TRIALS.length);
});

test("the URL's text gives the same picks, and nonsense in it does no harm", () => {
  const picks = new Picks();
  picks.toggle("layout", "a|b;c:d");
  picks.set("ms", { low: 0.18, high: 1e-3 });
  const again = Picks.fromText(picks.toText());
  assert.deepEqual(again.on, picks.on);
  assert.equal(Picks.fromText(";;x;:y;a:%E0%A4%A;").size, 0);
});

test("places on a logarithmic axis go there and back, its marks are round", () => {
  const axis = timeAxis(TRIALS);
  assert.equal(placeOf(axis, 8), 1);
  assert.ok(Math.abs(valueAt(axis, placeOf(axis, 2.5)) - 2.5) < 1e-12);
  assert.deepEqual(ticks(axis), [1, 2, 5]);
  assert.deepEqual(ticks({ ...axis, low: 0.184, high: 0.187 }), [0.184, 0.187]);
  assert.deepEqual(ticks({ ...axis, log: false, low: 32, high: 255 }), [50, 100, 150, 200, 250]);
});

test("what the fast ones have in common", () => {
  const fast = TRIALS.filter(({ median_ms }) => median_ms !== null && median_ms < 2);
  assert.deepEqual(common(fast, parameters(TRIALS)), [{ name: "layout", value: "row", count: 3 }]);
});

test("slices and cells count every trial once and keep the best and the failures", () => {
  const [bm, layout] = parameters(TRIALS);
  assert.deepEqual(slices(TRIALS, bm).map(({ value, best_ms, rejected, trials }) => [value, best_ms, rejected, trials.length]), [[16, 8, 0, 1], [64, 1.04, 0, 1], [128, 1, 1, 3]]);
  const grid = cells(TRIALS, bm, layout);
  assert.deepEqual(grid.map((row) => row.map((cell) => cell && [cell.tried, cell.best?.median_ms ?? null, cell.reason])),
    [[[1, 8, ""], null, [1, null, "spills"]], [null, [1, 1.04, ""], [2, 1, ""]]]);
});
