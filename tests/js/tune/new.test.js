import assert from "node:assert/strict";
import { test } from "node:test";

import { canonical, duration, effortOf, fits, predict, shapesOf } from "../../../static/js/tune/new_model.js";

test("shapes are one a line, each once however it is written", () => {
  assert.deepEqual(shapesOf("M=1, N = 2\n\nN:2 M=1\nM=3 N=4\n"), ["N:2 M=1", "M=3 N=4"]);
  assert.equal(canonical("N=64, M = 002"), "M=2 N=64");
  assert.ok(fits("K=1 M=2", [{ name: "M" }, { name: "K" }]) && !fits("M=2", [{ name: "M" }, { name: "K" }]));
});

test("numbers of an effort are that effort, all others are one's own", () => {
  const efforts = { quick: { trials: 30, seconds: 90, plateau: 15 }, full: { trials: 1000, seconds: 900, plateau: null } };
  assert.equal(effortOf(efforts, { trials: 30, seconds: 90, plateau: 15 }), "quick");
  assert.equal(effortOf(efforts, { trials: 1000, seconds: 900, plateau: null }), "full");
  assert.equal(effortOf(efforts, { trials: 31, seconds: 90, plateau: 15 }), "");
});

test("how long it takes is bounded by trials, seconds, the space and the plateau", () => {
  assert.deepEqual(predict({ trials: 100, seconds: 600, plateau: null }, 1.5), { least_s: 150, most_s: 150, trials: 100, by: "trials" });
  assert.deepEqual(predict({ trials: 100, seconds: 60, plateau: 20 }, 1.5), { least_s: 31.5, most_s: 60, trials: 100, by: "seconds" });
  assert.deepEqual(predict({ trials: 100, seconds: 600, plateau: null }, 1, 40), { least_s: 40, most_s: 40, trials: 40, by: "space" });
  assert.deepEqual([duration(0.2), duration(200), duration(7200)], ["1 s", "3 min", "2.0 h"]);
});
