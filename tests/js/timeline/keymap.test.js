import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";
import { chord, commandOf, COMMANDS, HELD, KEYS } from "../../../static/js/timeline/model/keymap.js";

const pressed = (key, changes = {}) => ({ key, ctrlKey: false, metaKey: false, altKey: false, shiftKey: false, ...changes });
const nothing = { slice: false, chosen: false, label: false };

test("keys have one name, whatever Shift and Caps Lock do to them", () => {
  assert.equal(chord(pressed("F")), "f");
  assert.equal(chord(pressed("H", { shiftKey: true })), "Shift+h");
  assert.equal(chord(pressed("{", { shiftKey: true })), "{");
  assert.equal(chord(pressed("f", { metaKey: true })), "Ctrl+f");
  assert.equal(chord(pressed("ArrowUp", { altKey: true })), "Alt+ArrowUp");
});

test("arrows go from slice to slice only while one is selected", () => {
  assert.equal(commandOf(pressed("ArrowRight"), nothing), null);
  assert.deepEqual(HELD.ArrowRight, ["pan", 1]);
  assert.equal(commandOf(pressed("ArrowRight"), { ...nothing, slice: true, chosen: true }), "next");
  assert.equal(commandOf(pressed("ArrowDown"), { ...nothing, slice: true, chosen: true }), "callee");
  assert.equal(commandOf(pressed("ArrowDown"), { slice: true, chosen: true, label: true }), "label-down");
  assert.equal(commandOf(pressed("ArrowDown", { shiftKey: true }), { ...nothing, chosen: true }), "extend-down");
});

test("brackets go along a flow", () => {
  assert.equal(commandOf(pressed("]"), nothing), "flow-on");
  assert.equal(commandOf(pressed("["), nothing), "flow-back");
  assert.equal(commandOf(pressed("."), nothing), "next");
});

test("no key means two things at once", () => {
  for (const on of [undefined, "slice", "label", "chosen"]) {
    const keys = KEYS.filter((key) => key.on === on).flatMap((key) => Object.keys(key.bind ?? {}));
    assert.equal(new Set(keys).size, keys.length);
  }
});

test("every key is explained, and every command of the table exists", () => {
  assert.ok(KEYS.every((key) => key.shown && key.what));
  const folder = new URL("../../../static/js/timeline/", import.meta.url);
  const code = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith(".js")).map((name) => readFileSync(new URL(name, folder), "utf8")).join("\n");
  for (const command of COMMANDS) assert.match(code, new RegExp(`(^|[\\s{"])${command}"?: \\(`, "m"), command);
});
