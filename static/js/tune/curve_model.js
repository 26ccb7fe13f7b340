// What the curve of a search shows: its band of times, each trial's place in it, the best so far, the levels. No DOM.

import { ticks } from "./space.js";
import { bestSoFar } from "./trials.js";

/** @typedef {import("./trials.js").Trial} Trial */
/** @typedef {import("./space.js").RangeAxis} RangeAxis */
/** @typedef {{default_ms: number|null, library_ms: number|null}} Levels */
/** @typedef {{trial: Trial, x: number, ms: number, best_ms: number, outside: boolean}} Dot */

const ABOVE = 2; // the band reaches to so many times the best: what is slower is no candidate
const NARROW = 8;
const AIR = 0.06; // of the band's height, above and below

/**
 * The times worth a look: from the fastest to the slowest of default, library, half of the trials and twice the best. What is
 * slower is marked at the edge, so that one bad trial does not press the rest into a line.
 * @param {number[]} times_ms of measured trials @param {number|null} best_ms @param {Levels} levels @param {boolean} whole every time
 * @returns {{low: number, high: number}|null} null: nothing to show
 */
export function band(times_ms, best_ms, levels, whole = false) {
  const marks = [levels.default_ms, levels.library_ms, best_ms].filter((ms) => ms !== null && ms > 0), all = [...times_ms, ...marks];
  if (!all.length) return null;
  const sorted = [...times_ms].sort((a, b) => a - b), slowest = Math.max(...all.slice(-marks.length || undefined), sorted[sorted.length - 1] ?? 0);
  const median = sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;
  const low = Math.min(sorted[0] ?? Infinity, ...marks), high = whole ? slowest : Math.min(slowest, Math.max(...marks, median, ABOVE * (best_ms ?? low)));
  return { low, high: high > low * 1.001 ? high : low * 1.05 };
}

/**
 * @param {Trial[]} trials in order @param {Levels & {most: number, seconds: number}} job
 * @param {{over: "trials"|"seconds", log: boolean, whole: boolean}} how
 * @returns {{dots: Dot[], x: {low: number, high: number}, y: RangeAxis|null, outside: number, best_ms: number|null}}
 */
export function curve(trials, job, { over, log, whole }) {
  const found = bestSoFar(trials), best_ms = found.length ? found[found.length - 1].best_ms : null;
  const seen = band(found.map(({ trial }) => trial.median_ms), best_ms, job, whole);
  const place = over === "seconds" ? (trial) => trial.at_s : (trial) => trial.number + 1;
  const last = trials.length ? place(trials[trials.length - 1]) : 0, high = Math.max(over === "seconds" ? job.seconds : job.most, last, 1);
  const dots = found.map(({ trial, best_ms: best }) => ({ trial, x: place(trial), ms: trial.median_ms, best_ms: best, outside: trial.median_ms > seen.high * 1.000001 }));
  return { dots, x: { low: 0, high }, y: seen && axisOf(seen, log), outside: dots.filter((dot) => dot.outside).length, best_ms };
}

/** The band with air around it. @returns {RangeAxis} */
function axisOf({ low, high }, log) {
  const air = log ? (high / low) ** AIR : AIR * (high - low);
  const range = log ? { low: low / air, high: high * air } : { low: Math.max(0, low - air), high: high + air };
  return { name: "ms", title: "median time", kind: "range", unit: "ms", log, of: (trial) => trial.median_ms, ...range };
}

/** Round times on the axis; a band is seldom wider than a power of ten, where steps of equal size tell more. @param {RangeAxis} axis @returns {number[]} */
export const timeTicks = (axis, most = 6) => ticks(axis.high < NARROW * axis.low ? { ...axis, log: false } : axis, most);

/** Marks of an axis of trials or seconds: 1, 2 or 5 times a power of ten. @param {number} high @param {number} most @returns {number[]} */
export function wholeTicks(high, most = 8) {
  const rough = high / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough));
  return Array.from({ length: Math.floor(high / step) + 1 }, (_, at) => at * step);
}

/** Places of labels, moved apart so that none covers another. @param {number[]} wanted from the top, px @param {number} apart px @returns {number[]} */
export function spread(wanted, apart) {
  const order = wanted.map((_, at) => at).sort((a, b) => wanted[a] - wanted[b]), placed = [...wanted];
  order.forEach((at, turn) => { if (turn) placed[at] = Math.max(placed[at], placed[order[turn - 1]] + apart); });
  return placed;
}

/** The dot nearest to a place, within reach; null: none. @param {{x: number, y: number}[]} places @param {number} x @param {number} y @param {number} reach px */
export function nearest(places, x, y, reach) {
  let found = null, least = reach ** 2;
  places.forEach((place, at) => {
    const away = (place.x - x) ** 2 + (place.y - y) ** 2;
    if (away <= least) [found, least] = [at, away];
  });
  return found;
}
