import assert from "node:assert/strict";
import { test } from "node:test";

import { added, countWords, fitting, isEdited, readEdit, shown, toggled, withValues, writeEdit } from "../../../static/js/tune/space_edit_model.js";

const BM = { name: "BM", values: [16, 32, 64] }, STORE = { name: "STORE", values: ["direct", "tma"] }, FLAG = { name: "FLAG", values: [true, false] };
const none = readEdit("");

test("a value is taken out and put back, and its own again are no edit", () => {
  const without = toggled(none, BM, 32);
  assert.deepEqual(without.parameters, { BM: [16, 64] });
  assert.deepEqual(shown(BM, without).map(({ value, on }) => [value, on]), [[16, true], [32, false], [64, true]]);
  const back = toggled(without, BM, 32);
  assert.ok(!isEdited(back) && writeEdit(back) === "");
  assert.deepEqual(toggled(toggled(toggled(none, BM, 16), BM, 32), BM, 64).parameters, { BM: [] }); // the server says that one must be left
});

test("values are added once, of the kind of the others", () => {
  const more = added(none, BM, "128, 64, 128, x");
  assert.deepEqual(more.parameters, { BM: [16, 32, 64, 128, "x"] });
  assert.deepEqual(shown(BM, more).filter(({ own }) => !own).map(({ value }) => value), [128, "x"]);
  assert.deepEqual(added(none, STORE, "2").parameters, { STORE: ["direct", "tma", "2"] });
  assert.ok(!isEdited(added(none, FLAG, "True")));
  assert.deepEqual(toggled(toggled(more, BM, 128), BM, "x").parameters, {});
});

test("an edit is carried as JSON, without what the server adds, and read back", () => {
  const text = writeEdit({ parameters: { BM: [64] }, constraints: ["BM > 1"] });
  assert.deepEqual(readEdit(text), { parameters: { BM: [64] }, constraints: ["BM > 1"] });
  assert.equal(writeEdit(readEdit('{"parameters": {"BM": [64]}, "constraints": [], "own": {"BM": [16]}}')), '{"parameters":{"BM":[64]},"constraints":[]}');
  assert.deepEqual(readEdit("{"), { parameters: {}, constraints: [] });
  assert.deepEqual(fitting({ parameters: { BM: [64], XX: [1] }, constraints: [] }, [BM]).parameters, { BM: [64] });
  assert.deepEqual(withValues(none, BM, [64, 32, 16]).parameters, {});
});

test("a count says whether it is whole", () => {
  assert.deepEqual(countWords({ valid: 1234, size: 3368, whole: true }), ["1,234", "of 3,368 configurations can run"]);
  assert.deepEqual(countWords({ valid: 99, size: 262144, whole: false }), ["at least 99", "of 262,144 configurations can run"]);
  assert.deepEqual(countWords({ valid: null, size: null, whole: true }), ["—", "configurations"]);
});
