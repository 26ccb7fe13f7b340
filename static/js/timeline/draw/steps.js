// Paints steps as bands with their names: on the ruler, and on the first row of each rank where there are several.

import { cutAt } from "../model/shortened.js";

const MOST = 600;               // drawn in a frame

/** First step that begins at or after a time. */
export function firstStep(steps, ns) {
  let lo = 0, hi = steps.length;
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (steps[mid].start_ns < ns) lo = mid + 1; else hi = mid;
  }
  return lo;
}

/** @param {CanvasRenderingContext2D} context @param {object[]} steps by start @param {number} y top of the band @param {number} height px */
export function stepBands(context, { viewport, palette, charPx, font }, steps, y, height) {
  context.font = font;
  context.textBaseline = "middle";
  const first = Math.max(firstStep(steps, viewport.start) - 1, 0), last = firstStep(steps, viewport.end);
  const crowd = Math.max(Math.ceil((last - first) / MOST), 1);
  for (let i = first, free = -Infinity; i < last; i += crowd) {
    const step = steps[i];
    if (step.start_ns < free) continue;           // of several processes whose steps are not known apart: those of the one that came first
    free = step.end_ns;
    const a = Math.max(viewport.x(step.start_ns), 0), b = Math.min(viewport.x(step.end_ns), viewport.width);
    if (b <= 0 || a >= viewport.width || b - a < 0.5) continue;
    context.globalAlpha = i % 2 ? 0.16 : 0.3;
    context.fillStyle = palette.accent;
    context.fillRect(a, y, Math.max(b - a - 1, 1), height);
    context.globalAlpha = 1;
    const text = shortStep(step.name, Math.floor((b - a - 8) / charPx));
    if (!text) continue;
    context.fillStyle = palette.text;
    context.fillText(text, a + 4, y + height / 2 + 0.5);
  }
}

/** "ProfilerStep#12" in few characters: its number says most, and is there whole or not at all. */
export function shortStep(name, room) {
  if (name.length <= room) return name;
  const number = /#?\d+$/.exec(name)?.[0] ?? "";
  if (number && number.length <= room && number.length + 3 > room) return number;
  if (number) return number.length + 3 <= room ? `${name.slice(0, room - number.length - 1)}…${number}` : "";
  return room < 2 ? "" : cutAt(name, room);
}
