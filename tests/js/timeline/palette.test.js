import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { CATEGORIES, SHADES, Timeline } from "../../../static/js/timeline/model/model.js";
import { DIM, EXACT, luminance, makePalette, OWN_SLOTS, ownSlot, rgb, slot, soft } from "../../../static/js/timeline/model/palette.js";

const sheet = readFileSync(new URL("../../../static/css/base/ridgepoint.css", import.meta.url), "utf8");

/** Custom properties of a theme as the style sheet states them. */
function theme(dark) {
  const blocks = [...sheet.matchAll(/:root(\[data-theme="dark"\])? \{([^}]*)\}/g)].filter((m) => dark || !m[1]);
  const values = Object.fromEntries(blocks.flatMap((m) => [...m[2].matchAll(/(--[\w-]+):\s*([^;]+);/g)].map(([, k, v]) => [k, v.trim()])));
  return (name) => values[name];
}

const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);

for (const dark of [false, true]) {
  test(`names in slices can be read, ${dark ? "dark" : "light"}`, () => {
    const palette = makePalette(theme(dark));
    CATEGORIES.forEach((category, c) => {
      for (let shade = 0; shade < SHADES; shade++) {
        for (const variant of [EXACT, soft(0), soft(100), soft(255)]) {
          const at = slot(variant, c, shade);
          const ratio = contrast(luminance(rgb(palette.fills[at])), luminance(rgb(palette.inks[at])));
          assert.ok(ratio >= 4.5, `${category.key} ${shade}: ${palette.inks[at]} on ${palette.fills[at]} is ${ratio.toFixed(2)}`);
        }
      }
    });
  });
}

test("kernels of one category differ", () => {
  const palette = makePalette(theme(false));
  assert.equal(new Set(Array.from({ length: SHADES }, (_, s) => palette.fills[slot(EXACT, 0, s)])).size, SHADES);
});

for (const dark of [false, true]) {
  test(`names can be read on colours that a program chose, ${dark ? "dark" : "light"}`, () => {
    const own = ["#000000", "#ffffff", "#76b900", "#ff0000", "#808080", "#777777", "#0000ff"], palette = makePalette(theme(dark), own);
    own.forEach((colour, at) => {
      assert.equal(palette.fills[ownSlot(EXACT, at + 1)], colour);
      for (const variant of [EXACT, soft(0), soft(255)]) {
        const place = ownSlot(variant, at + 1);
        assert.ok(contrast(luminance(rgb(palette.fills[place])), luminance(rgb(palette.inks[place]))) >= 4.5, `${colour}: ${palette.inks[place]} on ${palette.fills[place]}`);
      }
    });
    assert.ok(ownSlot(soft(255), OWN_SLOTS) < palette.pixels.length && ownSlot(soft(255), OWN_SLOTS) < 65536);       // the painter's columns hold 16 bits
    assert.notEqual(ownSlot(EXACT, 1), slot(DIM, 0, 0));
  });
}

test("colours of names come from the timeline's answer, each distinct one once", () => {
  const timeline = new Timeline({ tracks: [], end_ns: 10, levels: 1, colours: { 1: "#76b900", 3: "#ff0000", 4: "#76b900" } });
  timeline.setNames(["a", "load", "b", "save", "load 2"]);
  assert.deepEqual([timeline.ownColours, [...timeline.own]], [["#76b900", "#ff0000"], [0, 1, 0, 2, 1]]);
  assert.deepEqual(["load", "save", "b"].map((name) => timeline.ownOf(name)), [1, 2, 0]);
  assert.equal(new Timeline({ tracks: [], end_ns: 10, levels: 1 }).ownOf("load"), 0);
});
