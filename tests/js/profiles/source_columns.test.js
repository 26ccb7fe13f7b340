import assert from "node:assert/strict";
import test from "node:test";
import { besideCells, chosenColumns, signed } from "../../../static/js/profiles/source_columns.js";

const model = { measure: (name) => ({ adds_up: name !== "ratio" }), share: (_, value) => 100 * value / 50 };

test("a share stands beside the baseline's share of its own launch, the change in percentage points", () => {
  const [base, change] = besideCells(model, "samples", 10, 30, 200, "");
  assert.match(base.text, /^15(\.0)? %$/);
  assert.equal(change.text, "▲ +5");
  assert.match(change.title, /percentage points/);
});

test("a ratio stands as it is", () => {
  const [base, change] = besideCells(model, "ratio", 12, 32, undefined, "");
  assert.equal(base.text.trim(), "32");
  assert.equal(change.text, "▼ −20");
});

test("what the baseline does not have says why", () => {
  const cells = besideCells(model, "samples", 10, undefined, 200, "another file");
  assert.deepEqual(cells.map(({ text, title }) => [text, title]), [["—", "another file"], ["—", "another file"]]);
});

test("changes have a sign, and none is none", () => {
  assert.deepEqual([signed(1.234, " %"), signed(-0.5, ""), signed(0, " %"), signed(null, " %")], ["▲ +1.23 %", "▼ −0.5", "=", "—"]);
});

test("the address names the columns, then what is remembered, and only those that there are", () => {
  const offered = ["live", "inst_executed", "x"];
  assert.deepEqual(chosenColumns(new URLSearchParams("columns=x,gone"), offered), ["x"]);
  assert.deepEqual(chosenColumns(new URLSearchParams("columns="), offered), []);
  assert.deepEqual(chosenColumns(new URLSearchParams(""), offered), ["live", "inst_executed"]);
});
