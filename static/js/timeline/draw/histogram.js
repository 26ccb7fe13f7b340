// Paints a histogram of durations: bars, the brushed ones in the accent colour, decades below.

import { bars, decades } from "../model/histogram.js";
import { fit } from "./tracks.js";

export const AXIS_PX = 18;

/** @param {HTMLCanvasElement} canvas @param {{classes: import("../model/histogram.js").Class[], what: string, brush: ?[number, number], cursor: number}} view */
export function paintHistogram(canvas, { classes, what, brush, cursor }, { palette, font, dpr, units }) {
  const width = canvas.clientWidth, height = canvas.clientHeight, context = canvas.getContext("2d");
  fit(canvas, width, height, dpr);
  context.setTransform(dpr, 0, 0, dpr, 0, 0);
  context.clearRect(0, 0, width, height);
  const floor = height - AXIS_PX, [low, high] = brush ? [Math.min(...brush), Math.max(...brush)] : [-1, -1];
  context.font = font;
  context.fillStyle = palette.line;
  context.fillRect(0, floor, width, 1);
  for (const { ns, at } of decades(classes)) {
    const x = Math.round(at * width), text = units.ns(ns), wide = context.measureText(text).width;
    context.fillStyle = palette.line;
    context.fillRect(x, 0, 1, floor + 4);
    context.fillStyle = palette.muted;
    if (x + wide + 4 < width) context.fillText(text, x + 3, height - 5);
  }
  for (const bar of bars(classes, width, floor - 6, what)) {
    const inside = !brush || (bar.at >= low && bar.at <= high);
    context.fillStyle = inside ? palette.accent : palette.muted;
    context.globalAlpha = inside ? 1 : 0.35;
    context.fillRect(bar.x + 0.5, floor - bar.height, Math.max(bar.width - 1, 0.5), bar.height);
  }
  context.globalAlpha = 1;
  if (cursor < 0) return;
  const step = width / Math.max(classes.length, 1);
  context.strokeStyle = palette.text;
  context.strokeRect(cursor * step + 0.5, 0.5, Math.max(step - 1, 1), floor);
}
