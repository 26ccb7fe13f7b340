import assert from "node:assert/strict";
import { test } from "node:test";
import { History, indented } from "../../../static/js/sql/editor.js";

const storage = () => { const held = new Map(); return { getItem: (key) => held.get(key) ?? null, setItem: (key, value) => held.set(key, value) }; };

test("history keeps queries newest first, once", () => {
  const history = new History(storage());
  for (const sql of ["a", "b", " a ", ""]) history.add(sql);
  assert.deepEqual(history.entries, ["a", "b"]);
});

test("steps through history come back to what was being written", () => {
  const history = new History(storage());
  for (const sql of ["old", "new"]) history.add(sql);
  assert.equal(history.step(1, "draft"), "new");
  assert.equal(history.step(1, "new"), "old");
  assert.equal(history.step(1, "old"), null);
  assert.equal(history.step(-1, "old"), "new");
  assert.equal(history.step(-1, "new"), "draft");
  assert.equal(history.step(-1, "draft"), null);
});

test("a storage with something else in it is an empty history", () => {
  const held = storage();
  held.setItem("ridgepoint.sql.history", "{not json");
  assert.deepEqual(new History(held).entries, []);
  held.setItem("ridgepoint.sql.history", "{\"a\": 1}");
  assert.deepEqual(new History(held).entries, []);
});

test("Tab indents where the cursor is, or the lines of the selection", () => {
  assert.deepEqual(indented("ab", 1, 1, false), { text: "a  b", start: 3, end: 3 });
  assert.deepEqual(indented("a\nb\nc", 0, 3, false), { text: "  a\n  b\nc", start: 2, end: 7 });
  assert.deepEqual(indented("  a\n b", 0, 6, true), { text: "a\nb", start: 0, end: 3 });
  assert.deepEqual(indented("a", 1, 1, true), { text: "a", start: 1, end: 1 });
});
