import assert from "node:assert/strict";
import { test } from "node:test";
import { copied, modeOf, NO_MANGLED, shownName } from "../../../static/js/lib/kernel_names.js";

const full = "void f<int, 4>(int*)";

test("what the switch shows in a name's place", () => {
  assert.equal(shownName("short", { full }), null);
  assert.deepEqual(shownName("demangled", { full }), { text: full, note: "" });
  assert.deepEqual(shownName("mangled", { full, mangled: "_Z1fIiLi4EEvPi" }), { text: "_Z1fIiLi4EEvPi", note: "" });
  assert.deepEqual(shownName("mangled", { full }), { text: full, note: NO_MANGLED });     // never an empty cell
});

test("a remembered word that is none of the three is short", () => {
  assert.deepEqual(["short", "demangled", "mangled", "", null, undefined, "loud"].map(modeOf), ["short", "demangled", "mangled", "short", "short", "short", "short"]);
});

test("copying a label gives the full name, copying a part of it the part", () => {
  const name = { label: "f<int, 4>", full };
  assert.equal(copied(" f<int, 4>\n", name), full);
  assert.equal(copied("int", name), null);
  assert.equal(copied("", { label: "", full }), null);
});
