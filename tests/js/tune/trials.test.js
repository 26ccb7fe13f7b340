import assert from "node:assert/strict";
import { test } from "node:test";

import { secondsLeft, Trials, withoutGain } from "../../../static/js/tune/trials.js";

const trial = (number, median_ms) => ({ number, median_ms, config: { BM: number }, outcome: median_ms === null ? "rejected" : "measured", reason: "", message: "", min_ms: median_ms, p90_ms: median_ms, n: 1, facts: {}, at_s: number });

test("the best so far is the same in whatever order trials arrive, twice or once", () => {
  const trials = new Trials();
  for (const one of [trial(2, 3), trial(0, 5), trial(2, 3), trial(1, null), trial(3, 4)]) trials.add(one);
  assert.equal(trials.size, 4);
  assert.deepEqual(trials.columns().number, [1, 3, 4]);
  assert.deepEqual(trials.columns().best, [5, 3, 3]);
  assert.equal(trials.columns().config[1], "BM=2");
});

test("a trial that was given up in a race is never the best, and what is not picked is faint", () => {
  const trials = new Trials();
  for (const one of [trial(0, 5), { ...trial(1, 3), facts: { ended: "raced" } }, trial(2, 4)]) trials.add(one);
  assert.deepEqual(trials.columns().best, [5, 5, 4]);
  assert.deepEqual(trials.columns((one) => one.number === 2).alpha, [0.08, 0.08, 0.55]);
});

test("trials without a gain are counted as the loop counts them", () => {
  const count = (...times) => withoutGain(times.map((ms, at) => trial(at, ms)));
  assert.equal(count(null, null, 5), 0);
  assert.equal(count(5, null, 6, 4.99), 3);
  assert.equal(count(5, 4.97, 4.94, 4.93), 1); // two small gains add up to one per cent
  assert.equal(withoutGain([trial(0, 5), { ...trial(1, 3), facts: { ended: "raced" } }]), 1);
});

test("a page catches up from the last trial before the first gap", () => {
  const trials = new Trials();
  assert.equal(trials.contiguous, -1);
  trials.add(trial(0, 1));
  trials.add(trial(2, 1));
  assert.equal(trials.contiguous, 0);
  trials.add(trial(1, 1));
  assert.equal(trials.contiguous, 2);
});

test("time left is of the budget that ends first, and unknown before the first trial", () => {
  assert.equal(secondsLeft({ trials: 0, most: 10, elapsed_s: 0, budget_seconds: 60 }), null);
  assert.equal(secondsLeft({ trials: 5, most: 10, elapsed_s: 10, budget_seconds: 60 }), 10);
  assert.equal(secondsLeft({ trials: 5, most: 1000, elapsed_s: 10, budget_seconds: 12 }), 2);
});
