// What the figure of a search shows: its band of times, each trial's place and outcome, the best so far, the levels. No DOM.

import { count, msAsTime, UNKNOWN } from "../lib/units.js";
import { bestSoFar, configText, isRaced } from "./trials.js";

/** @typedef {import("./trials.js").Trial} Trial */
/** @typedef {{default_ms: number|null, library_ms: number|null, ceiling_ms?: number|null}} Levels */
/** @typedef {{over: "trials"|"seconds", log: boolean, whole: boolean}} How */
/** @typedef {Record<string, (number|string)[]>} Columns */

const ABOVE = 2; // the band reaches to so many times the best: what is slower is no candidate
const AIR = 0.06; // of the band's height, above and below
const FAINT = 0.15, CLEAR = 0.75;
const EDGE = { failed: 0.975, slower: 0.935 }; // of the frame's height
const US = 1000; // a ms
const LABEL_PX = 15; // between two labels
export const LEVELS = ["default", "library", "ceiling"];
export const KINDS = ["measured", "raced", "failed", "slower"];

/**
 * The times worth a look: from the fastest, or a ceiling that is not far, to the slowest of default, library, half of the trials and twice the best. What is
 * slower is marked at the edge, so that one bad trial does not press the rest into a line.
 * @param {number[]} times_ms of measured trials @param {number|null} best_ms @param {Levels} levels @param {boolean} whole every time
 * @returns {{low: number, high: number}|null} null: nothing to show
 */
export function band(times_ms, best_ms, levels, whole = false) {
  const near = levels.ceiling_ms && (best_ms === null || levels.ceiling_ms * ABOVE >= best_ms) ? levels.ceiling_ms : null; // a far one is told at the edge
  const marks = [levels.default_ms, levels.library_ms, near, best_ms].filter((ms) => ms !== null && ms > 0), all = [...times_ms, ...marks];
  if (!all.length) return null;
  const sorted = [...times_ms].sort((a, b) => a - b), slowest = Math.max(...marks, sorted[sorted.length - 1] ?? 0);
  const median = sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;
  const low = Math.min(sorted[0] ?? Infinity, ...marks), high = whole ? slowest : Math.min(slowest, Math.max(...marks, median, ABOVE * (best_ms ?? low)));
  return { low, high: high > low * 1.001 ? high : low * 1.05 };
}

/** The trials of a snapshot and those that a message brought since, each once, in order. @param {Trial[]} rows @param {Map<number, Trial>} news */
export function merged(rows, news) {
  const last = rows.length ? rows[rows.length - 1].number : -1;
  const later = [...news.values()].filter(({ number }) => number > last).sort((a, b) => a.number - b.number);
  return later.length ? rows.concat(later) : rows;
}

/**
 * Everything that the figure's sources hold, in µs, and its ranges.
 * @param {Trial[]} trials in order @param {Levels & {most: number, seconds: number, ended?: boolean}} job @param {How} how
 * @param {(trial: Trial) => boolean} picked @param {number} height_px of the frame
 * @returns {{points: Record<string, Columns>, order: {kind: string, at: number, trial: Trial}[], best: Columns, levels: Record<string, number[]>, labels: Columns, x: {low: number, high: number}, y: {low: number, high: number}|null, outside: number, best_ms: number|null}}
 */
export function progress(trials, job, how, picked = () => true, height_px = 220) {
  const found = bestSoFar(trials), best_ms = found.length ? found[found.length - 1].best_ms : null;
  const seen = band(found.map(({ trial }) => trial.median_ms), best_ms, job, how.whole);
  const place = how.over === "seconds" ? (trial) => trial.at_s : (trial) => trial.number + 1;
  const last = trials.length ? place(trials[trials.length - 1]) : 0, high = Math.max(how.over === "seconds" ? job.seconds : job.most, last, 1);
  const bests = new Map(found.map(({ trial, best_ms: best }) => [trial.number, best]));
  const points = Object.fromEntries(KINDS.map((kind) => [kind, columns(kind)])), order = [];
  for (const trial of trials) {
    const kind = trial.median_ms === null ? "failed" : trial.median_ms > seen.high * 1.000001 ? "slower" : isRaced(trial) ? "raced" : "measured";
    order.push({ kind, at: points[kind].trial.length, trial });
    add(points[kind], row(trial, kind, bests.get(trial.number) ?? null, picked(trial)));
  }
  const across = how.over === "seconds" ? "at_s" : "trial", line = found.map(({ trial, best_ms: best }) => [place(trial), best * US]);
  if (line.length && last > line[line.length - 1][0]) line.push([last, best_ms * US]); // what failed since took its time as well
  return {
    points, order, best_ms, outside: points.slower.trial.length, best: { [across]: line.map(([x]) => x), us: line.map(([, us]) => us) },
    levels: Object.fromEntries(LEVELS.map((name) => [name, job[`${name}_ms`] ? [job[`${name}_ms`] * US] : []])),
    x: { low: 0, high }, y: seen && range(seen, how.log), labels: seen ? labels(job, best_ms, high, range(seen, how.log), how.log, height_px, points.slower.trial.length) : columns("labels"),
  };
}

/** @param {string} kind @returns {Columns} */
function columns(kind) {
  if (kind === "labels") return { x: [], us: [], text: [], dy: [] };
  const names = ["trial", "at_s", "us", "alpha", "config", "outcome", "time", "interval", "best"];
  return Object.fromEntries([...names, ...(kind in EDGE ? ["top"] : [])].map((name) => [name, []]));
}

/** @param {Columns} table @param {Record<string, number|string>} values */
function add(table, values) {
  for (const [name, column] of Object.entries(table)) column.push(values[name]);
}

/** One trial as its point says it. @param {Trial} trial @param {string} kind @param {number|null} best_ms @param {boolean} picked */
export function row(trial, kind, best_ms, picked) {
  const outcome = trial.median_ms === null ? `${trial.reason || "failed"}` : isRaced(trial) ? "given up early" : "measured";
  return {
    trial: trial.number + 1, at_s: trial.at_s, us: trial.median_ms === null ? NaN : trial.median_ms * US, alpha: picked ? CLEAR : FAINT,
    config: configText(trial.config), outcome, time: msAsTime(trial.median_ms), interval: intervalText(trial), best: best_ms === null ? UNKNOWN : msAsTime(best_ms), top: EDGE[kind],
  };
}

/** How sure the median is: its 95 % interval, else the spread that is known. @param {Trial} trial */
export function intervalText(trial) {
  if (trial.median_ms === null) return UNKNOWN;
  const n = trial.n ? `, n ${count(trial.n)}` : "";
  if (trial.interval_ms) return `${msAsTime(trial.interval_ms[0])} to ${msAsTime(trial.interval_ms[1])}${n}`;
  return `not kept; least ${msAsTime(trial.min_ms)}, 90 % below ${msAsTime(trial.p90_ms)}${n}`;
}

/** The band with air around it, in µs. @param {{low: number, high: number}} seen in ms @param {boolean} log */
function range({ low, high }, log) {
  const air = log ? (high / low) ** AIR : AIR * (high - low);
  return log ? { low: US * low / air, high: US * high * air } : { low: US * Math.max(0, low - air), high: US * (high + air) };
}

/** The names of the lines at the right edge, moved apart so that none covers another. */
function labels(job, best_ms, x, y, log, height_px, outside) {
  const found = LEVELS.filter((name) => job[`${name}_ms`]).map((name) => ({ us: job[`${name}_ms`] * US, text: `${name} ${msAsTime(job[`${name}_ms`])}` }));
  if (best_ms !== null) found.push({ us: best_ms * US, text: `${job.ended ? "best" : "best so far"} ${msAsTime(best_ms)}` });
  if (outside) found.push({ us: y.high, text: `▲ ${count(outside)} slower` });
  for (const each of found) if (each.us < y.low) Object.assign(each, { us: y.low, text: `▼ ${each.text}` });
  const share = (us) => log ? Math.log(us / y.low) / Math.log(y.high / y.low) : (us - y.low) / (y.high - y.low);
  const wanted = found.map(({ us }) => height_px * (1 - share(us))), placed = spread(wanted, LABEL_PX), over = Math.max(0, ...placed.map((top) => top - height_px));
  return { x: found.map(() => x), us: found.map(({ us }) => us), text: found.map(({ text }) => text), dy: found.map((_, at) => placed[at] - over - wanted[at]) }; // down is positive
}

/** Places of labels, moved apart so that none covers another. @param {number[]} wanted from the top, px @param {number} apart px @returns {number[]} */
export function spread(wanted, apart) {
  const order = wanted.map((_, at) => at).sort((a, b) => wanted[a] - wanted[b]), placed = [...wanted];
  order.forEach((at, turn) => { if (turn) placed[at] = Math.max(placed[at], placed[order[turn - 1]] + apart); });
  return placed;
}

/** The picture in words. @param {ReturnType<typeof progress>} found @param {Levels} job */
export function describe(found, job) {
  const levels = LEVELS.filter((name) => job[`${name}_ms`]).map((name) => `${name} ${msAsTime(job[`${name}_ms`])}`);
  if (found.best_ms === null) return `Nothing measured yet${levels.length ? `; ${levels.join(", ")}` : ""}.`;
  const { measured, raced, failed } = found.points, timed = measured.trial.length + raced.trial.length + found.outside;
  return `${count(timed)} measured trials, the best ${msAsTime(found.best_ms)}${levels.length ? `; ${levels.join(", ")}` : ""}${found.outside ? `; ${count(found.outside)} are slower than the axis shows` : ""}${failed.trial.length ? `; ${count(failed.trial.length)} failed` : ""}.`;
}
