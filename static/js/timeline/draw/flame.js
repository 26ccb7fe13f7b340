// Paints a flame graph: boxes in the colours that their slices have on the timeline, names where there is room for them.

import { fit } from "./tracks.js";
import { CATEGORIES, hashText, SHADES } from "../model/model.js";
import { DIM, EXACT, ownSlot, slot } from "../model/palette.js";

export const ROW_PX = 18;
const TEXT_PX = 22;             // a narrower box has no name
const PAD_PX = 4;

/**
 * @param {HTMLCanvasElement} canvas @param {{boxes: import("../model/flame_model.js").Box[], current: ?object, hover: ?object, hits: ?Set<object>,
 *   upwards: boolean, rows: number}} view upwards: the root is at the bottom
 */
export function paintFlame(canvas, view, { palette, font, charPx, dpr }) {
  const width = canvas.clientWidth, height = canvas.clientHeight, context = canvas.getContext("2d");
  fit(canvas, width, height, dpr);
  context.setTransform(dpr, 0, 0, dpr, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = font;
  context.textBaseline = "middle";
  for (const box of view.boxes) {
    const y = top(view, box.row), x = box.x0 * width, w = Math.max((box.x1 - box.x0) * width - 0.5, 0.5);
    const [fill, ink] = colours(box.node, palette, view.hits && !view.hits.has(box.node));
    context.fillStyle = fill;
    context.fillRect(x, y, w, ROW_PX - 1);
    if (w >= TEXT_PX) {
      context.fillStyle = ink;
      context.fillText(cut(box.node.name, Math.floor((w - 2 * PAD_PX) / charPx)), x + PAD_PX, y + ROW_PX / 2);
    }
  }
  for (const [box, line] of [[view.hover, 1], [view.current, 2]]) {
    if (!box) continue;
    context.strokeStyle = palette.text;
    context.lineWidth = line;
    context.strokeRect(box.x0 * width + line / 2, top(view, box.row) + line / 2, Math.max((box.x1 - box.x0) * width - line, 1), ROW_PX - 1 - line);
  }
}

/** Top of a row in pixels. */
export const top = ({ upwards, rows }, row) => (upwards ? rows - 1 - row : row) * ROW_PX;

/** Row under a pixel. */
export const rowAt = ({ upwards, rows }, y) => (upwards ? rows - 1 - Math.floor(y / ROW_PX) : Math.floor(y / ROW_PX));

function colours({ category, name }, palette, isDim) {
  if (category === null) return [isDim ? palette.panel : palette.raised, palette.muted];
  const variant = isDim ? DIM : EXACT, kind = Math.min(category, CATEGORIES.length - 1), own = CATEGORIES[kind].gpu ? 0 : palette.ownOf?.(name);
  const at = own ? ownSlot(variant, own) : slot(variant, kind, hashText(name) % SHADES);
  return [palette.fills[at], palette.inks[at]];
}

const cut = (text, chars) => (text.length <= chars ? text : chars > 1 ? `${text.slice(0, chars - 1)}…` : "");
