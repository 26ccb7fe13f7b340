import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { posix } from "node:path";
import test from "node:test";

const FOLDER = new URL("../../static/js/", import.meta.url);
const names = readdirSync(FOLDER, { recursive: true }).filter((name) => name.endsWith(".js"));
const code = Object.fromEntries(names.map((name) => [name, readFileSync(new URL(name, FOLDER), "utf8").replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, "")]));

// Each may import what stands left of it. Features know lib and grid, and nothing of each other; `base` is the frame and home.
const ROOMS = ["lib", "grid", ["capture", "fleet", "gate", "profiles", "sql", "threads", "timeline", "tune"], "base"];
const TIMELINE = ["model", "data", "widgets", "draw", "stage", "panels", "input", "commands", "."];
const NO_DOM = /^timeline\/(model|data)\//;
const MOST_FILES = 25;

/** Modules that one imports, now or later, as paths below static/js. */
function imports(name) {
  const targets = [...code[name].matchAll(/(?:from |^import |\bimport\()"(\.[^"]+)"/gm)].map(([, path]) => posix.join(posix.dirname(name), path));
  return targets.filter((path) => !path.startsWith("../vendor/"));
}

/** Names of the modules whose code has a word, of one folder. */
const having = (word, folder) => Object.keys(code).filter((name) => name.startsWith(folder) && word.test(code[name]));

const room = (name) => ROOMS.findIndex((room) => [room].flat().includes(name.split("/")[0]));
const part = (name) => TIMELINE.indexOf(posix.dirname(posix.relative("timeline", name)));

test("every module has its room and imports from its own or from the left", () => {
  for (const name of names) {
    assert.ok(room(name) >= 0, `${name} has no room`);
    for (const target of imports(name)) {
      assert.ok(target in code, `${name} imports ${target}`);
      assert.ok(target.split("/")[0] === name.split("/")[0] || room(target) < room(name), `${name} imports ${target}`);
    }
  }
});

test("so do the rooms of the timeline", () => {
  for (const name of names.filter((name) => name.startsWith("timeline/"))) {
    assert.ok(part(name) >= 0, `${name} has no room`);
    for (const target of imports(name).filter((target) => target.startsWith("timeline/"))) assert.ok(part(target) <= part(name), `${name} imports ${target}`);
  }
});

test("no module imports itself, by whatever way", () => {
  const done = new Set();
  const visit = (name, way) => {
    assert.ok(!way.includes(name), [...way, name].join(" → "));
    if (!done.has(name)) for (const target of imports(name)) visit(target, [...way, name]);
    done.add(name);
  };
  for (const name of names) visit(name, []);
});

test("no folder holds more than a person overlooks", () => {
  const counts = new Map();
  for (const name of names) counts.set(posix.dirname(name), (counts.get(posix.dirname(name)) ?? 0) + 1);
  for (const [folder, count] of counts) assert.ok(count <= MOST_FILES, `${folder} holds ${count}`);
});

test("the timeline's model and data know no DOM", () => {
  for (const name of names.filter((name) => NO_DOM.test(name))) assert.doesNotMatch(code[name], /\b(document|window\.|HTMLElement|addEventListener)\b/, name);
});

test("one module of the timeline fetches, few draw, two listen to the stage", () => {
  assert.deepEqual(having(/\bfetch\(/, "timeline/"), ["timeline/data/api.js"]);
  assert.ok(having(/getContext\(/, "timeline/").every((name) => name.startsWith("timeline/draw/")));
  assert.deepEqual(having(/"(pointerdown|wheel|keyup|dblclick)"/, "timeline/").sort(), ["timeline/input/input.js", "timeline/input/pointer.js"]);
  assert.deepEqual(having(/history\[|history\.(push|replace)State/, "timeline/"), ["timeline/commands/history.js"]);
});
