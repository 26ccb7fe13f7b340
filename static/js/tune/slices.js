// One small picture per parameter: every trial's time over the parameter's values, the best of each value, and what failed.

import { band } from "../lib/band.js";
import { msAsTime } from "../lib/units.js";
import { placeOf, SLOWER, slices, slowness, ticks } from "./space.js";
import { svg } from "./svg.js";

/** @typedef {import("./trials.js").Trial} Trial */

const WIDTH = 240, HEIGHT = 158, LEFT = 48, RIGHT = 8, TOP = 8, BOTTOM = 34;

/** A steady place within a value's column, so that dots do not jump while trials come. @param {number} number */
const scatter = (number) => ((number * 0.6180339887) % 1) - 0.5;

/**
 * @param {HTMLElement} host @param {Trial[]} trials @param {import("./space.js").ValueAxis[]} axes in the order to show
 * @param {import("./space.js").RangeAxis} whole @param {import("./space.js").Picks} picks @param {number} best_ms
 * @param {Map<string, number|null>} shares of the differences in time @param {(name: string, value: any) => void} toggle
 */
export function drawSlices(host, trials, axes, whole, picks, best_ms, shares, toggle) {
  const time = shown(trials, whole, best_ms);
  host.replaceChildren(...axes.map((axis) => {
    const box = document.createElement("figure"), title = document.createElement("figcaption");
    box.className = "slice";
    const share = shares.get(axis.name);
    title.append(Object.assign(document.createElement("b"), { className: "mono", textContent: axis.name }),
      Object.assign(document.createElement("span"), { className: "muted", textContent: share === null || share === undefined ? "" : `${(100 * share).toFixed(share < 0.095 ? 1 : 0)} %`, title: "Of the differences in log time, explained by this parameter and no other (ω² of an additive model)" }));
    box.append(title, picture(trials, axis, time, picks, best_ms, toggle));
    return box;
  }));
}

/** The axis without far outliers: those stand at its slow end. @param {Trial[]} trials @param {import("./space.js").RangeAxis} time @param {number} best_ms */
export function shown(trials, time, best_ms) {
  const logs = trials.filter(({ median_ms }) => median_ms > 0).map(({ median_ms }) => Math.log(median_ms));
  return { ...time, high: Math.min(time.high, Math.exp(band(logs, { marks: [Math.log(best_ms)] }).high) * 1.000001) };
}

function picture(trials, axis, time, picks, best_ms, toggle) {
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "slice-picture", role: "img" });
  const column = (WIDTH - LEFT - RIGHT) / axis.values.length, y = (ms) => TOP + Math.min(1, placeOf(time, ms)) * (HEIGHT - TOP - BOTTOM);
  const slow = trials.filter(({ median_ms }) => median_ms > time.high).length;
  if (slow) drawing.append(svg("text", { x: LEFT - 5, y: HEIGHT - BOTTOM, class: "slice-tick" }, `▼ ${slow}`, svg("title", {}, `${slow} slower than the axis shows, at its end`)));
  const found = slices(trials, axis), dots = new Map(["rest", ...SLOWER.map((_, at) => `s${at}`)].map((name) => [name, []]));
  for (const value of ticks(time, 4)) {
    drawing.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "slice-rule" }), svg("text", { x: LEFT - 5, y: y(value), class: "slice-tick" }, msAsTime(value)));
  }
  let line = "";
  found.forEach((slice, at) => {
    const middle = LEFT + (at + 0.5) * column;
    for (const trial of slice.trials) {
      if (trial.median_ms === null) continue;
      const name = picks.size && !picks.passes(trial) ? "rest" : `s${slowness(trial.median_ms, best_ms)}`;
      dots.get(name).push(`M${Math.round((middle + scatter(trial.number) * Math.min(column * 0.6, 26)) * 10) / 10} ${Math.round(y(trial.median_ms) * 10) / 10}h0`);
    }
    if (slice.best_ms !== null) line += `${line ? "L" : "M"}${middle.toFixed(1)} ${y(slice.best_ms).toFixed(1)}`;
    drawing.append(value(axis, slice, middle, column, picks, toggle));
  });
  for (const [name, paths] of [...dots].reverse()) drawing.append(svg("path", { d: paths.join(""), class: `slice-dots slice-${name}` }));
  drawing.append(svg("path", { d: line, class: "slice-best" }));
  const told = found.map((slice) => `${slice.value}: ${slice.best_ms === null ? "none measured" : `best ${msAsTime(slice.best_ms)}`}, ${slice.trials.length} tried${slice.rejected ? `, ${slice.rejected} failed` : ""}`);
  drawing.setAttribute("aria-label", `${axis.name}. ${told.join("; ")}.`);
  return drawing;
}

/** The value below its column, with what failed of it. */
function value(axis, slice, middle, column, picks, toggle) {
  const group = svg("g", { class: `slice-value${picks.has(axis.name, slice.value) ? " picked" : ""}` });
  const text = String(slice.value), most = Math.max(3, Math.floor(column / 6.5));
  group.append(svg("rect", { x: middle - column / 2 + 1, y: TOP, width: column - 2, height: HEIGHT - TOP - 2, rx: 3 }),
    svg("text", { x: middle, y: HEIGHT - BOTTOM + 13, class: "slice-name" }, text.length > most ? `${text.slice(0, most - 1)}…` : text));
  if (slice.rejected) group.append(svg("text", { x: middle, y: HEIGHT - BOTTOM + 27, class: "slice-failed" }, `✕${slice.rejected}`));
  group.append(svg("title", {}, `${axis.name}=${text}: ${slice.trials.length} trials${slice.best_ms === null ? "" : `, best ${msAsTime(slice.best_ms)}`}${slice.rejected ? `, ${slice.rejected} failed` : ""}. Click to pick them.`));
  group.addEventListener("click", () => toggle(axis.name, slice.value));
  return group;
}
