import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";

const FOLDER = new URL("../../static/js/timeline/", import.meta.url);
const code = Object.fromEntries(readdirSync(FOLDER).map((name) => [name, readFileSync(new URL(name, FOLDER), "utf8").replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, "")]));

// Each may import what stands above it, and lib.
const LAYERS = [
  ["model.js", "viewport.js", "url.js", "dom.js", "keymap.js", "arrange.js", "flows.js", "notes.js", "linked.js", "summary.js", "steps.js", "area_state.js", "histogram.js", "flame_model.js"],
  ["layout.js", "tiles.js", "search.js", "palette.js", "neighbours.js", "motion.js", "pointer.js", "tabs.js", "working.js", "perfetto.js"], ["snap.js", "api.js", "utilisation.js"],
  ["draw_counter.js", "draw_names.js"], ["draw.js", "labels.js", "input.js", "details.js", "selection.js"], ["draw_histogram.js", "draw_flame.js", "area_table.js", "launches_card.js"], ["histogram_view.js", "flame_graph.js"], ["flame.js"], ["area.js"], ["draw_ruler.js", "draw_path.js"], ["draw_overlay.js"], ["draw_hits.js"], ["stage.js"],
  ["actions.js", "chosen.js", "exporting.js", "controls.js", "history.js", "label_keys.js", "measure.js", "search_bar.js", "tracks.js", "walk.js", "note_flags.js", "critical.js"], ["notes_view.js"], ["app.js"], ["open.js"], ["main.js", "pair.js"],
];
const PURE = ["model.js", "utilisation.js", "viewport.js", "url.js", "keymap.js", "arrange.js", "flows.js", "notes.js", "linked.js", "steps.js", "area_state.js", "histogram.js", "flame_model.js", "motion.js", "snap.js", "layout.js", "search.js", "palette.js", "neighbours.js"];

/** Names of the modules whose code has a word. */
const having = (word) => Object.keys(code).filter((name) => word.test(code[name]));

test("every module has its layer and imports only from above", () => {
  const level = new Map(LAYERS.flatMap((names, i) => names.map((name) => [name, i])));
  assert.deepEqual([...level.keys()].sort(), Object.keys(code).sort());
  for (const [name, text] of Object.entries(code)) {
    for (const [, target] of text.matchAll(/from "\.\/([\w.]+)"/g)) assert.ok(level.get(target) < level.get(name), `${name} imports ${target}`);
    for (const [, target] of text.matchAll(/from "(\.\.\/[^"]+)"/g)) assert.match(target, /^\.\.\/lib\//, name);
  }
});

test("the core knows no DOM", () => {
  for (const name of PURE) assert.doesNotMatch(code[name], /\b(document|window\.|HTMLElement|addEventListener)\b/, name);
});

test("one module fetches, few draw, two listen to the stage", () => {
  assert.deepEqual(having(/\bfetch\(/), ["api.js"]);
  assert.ok(having(/getContext\(/).every((name) => name.startsWith("draw")));
  assert.deepEqual(having(/"(pointerdown|wheel|keyup|dblclick)"/), ["input.js", "pointer.js"]);
  assert.deepEqual(having(/history\[|history\.(push|replace)State/), ["history.js"]);
});
