import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { CATEGORIES, SHADES } from "../../../static/js/timeline/model/model.js";
import { EXACT, luminance, makePalette, rgb, slot, soft } from "../../../static/js/timeline/model/palette.js";

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
