// Whether names of dropped files speak for ranks of one job.

import assert from "node:assert/strict";
import test from "node:test";

import { likeRanks } from "../../../static/js/base/drop.js";

test("names that differ in their rank alone are ranks of one job", () => {
  assert.ok(likeRanks(["train_rank0.json.gz", "train_rank1.json.gz"]));
  assert.ok(likeRanks(["worker3.pt.trace.json", "worker12.pt.trace.json"]));
  assert.ok(!likeRanks(["train_rank0.json", "eval_rank1.json"]));
  assert.ok(!likeRanks(["a.json", "b.json"]));
  assert.ok(!likeRanks(["train_rank0.json"]));
});
