// Rules for the widths that somebody set.

import assert from "node:assert/strict";
import test from "node:test";

import { clamp, widthRules } from "../../../static/js/grid/widths.js";

test("no width is no rule, and each column gets its own", () => {
  assert.equal(widthRules("table", 3, new Map(), () => true), "");
  const css = widthRules("table", 3, new Map([[0, 200], [2, 90]]), () => true);
  assert.match(css, /nth-child\(3\):last-child/);
  assert.match(css, /width: 410px !important/); // 200 + 120 of the one that nobody knows + 90
  assert.match(css, /:nth-child\(1\) \{ width: 200px/);
  assert.match(css, /:nth-child\(3\) \{ width: 90px/);
});

test("a table is as wide as the columns that it shows", () => {
  assert.match(widthRules("table", 2, new Map([[0, 200], [1, 90]]), (at) => at === 0), /width: 200px !important/);
});

test("a column keeps a width that can be caught again", () => {
  assert.deepEqual([-5, 77.4, 1e6].map(clamp), [40, 77, 1600]);
});
