import assert from "node:assert/strict";
import test from "node:test";
import { sortRows, toCsv } from "../../static/js/timeline/selection.js";

const row = (name, total_ns, count = 1) => ({ name, category: "compute", count, total_ns, mean_ns: total_ns, min_ns: 1, max_ns: 2, share_pct: 50 });

test("rows are ordered by numbers and by names", () => {
  const rows = [row("b", 9), row("a", 10), row("c", 100)];
  assert.deepEqual(sortRows(rows, "total_ns", true).map((r) => r.name), ["c", "a", "b"]);
  assert.deepEqual(sortRows(rows, "name", false).map((r) => r.name), ["a", "b", "c"]);
  assert.deepEqual(rows.map((r) => r.name), ["b", "a", "c"]);
});

test("CSV quotes kernel names and defuses formulas", () => {
  const [head, first, second] = toCsv([row('void k<float, 2>("x")', 12416), row("=1+1", 1)]).split("\r\n");
  assert.equal(head, "name,category,count,total_ns,mean_ns,min_ns,max_ns,share_pct");
  assert.equal(first, '"void k<float, 2>(""x"")",compute,1,12416,12416,1,2,50');
  assert.ok(second.startsWith("'=1+1,"));
});
