import assert from "node:assert/strict";
import test from "node:test";

import { span } from "../../../static/js/grid/rows.js";

test("only rows in view and a few beside them are drawn", () => {
  assert.deepEqual(span(0, 560, 28, 5000), [0, 40]);
  assert.deepEqual(span(28 * 1000, 560, 28, 5000), [980, 1040]);
  assert.deepEqual(span(28 * 4980, 560, 28, 5000), [4960, 5000]);
});

test("a scroll position past the end of fewer rows draws the last ones", () => {
  const [first, last] = span(28 * 4980, 560, 28, 300);
  assert.ok(first < 300 && last === 300);
});
