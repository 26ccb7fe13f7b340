// Where the bars of a histogram of durations stand, and what a brush over them means. Knows no DOM.

/**
 * @typedef {{from_ns: number, to_ns: number, count: number, total_ns: number}} Class [from, to) of durations
 * @typedef {{at: number, x: number, width: number, height: number, share: number}} Bar in pixels, height from the bottom
 */

/** @param {Class[]} classes neighbours on a logarithmic axis @param {"count"|"total_ns"} what @returns {Bar[]} */
export function bars(classes, width, height, what = "count") {
  const most = Math.max(...classes.map((each) => each[what]), 1), step = width / Math.max(classes.length, 1);
  return classes.map((each, at) => ({
    at, x: at * step, width: step, height: each[what] ? Math.max((each[what] / most) * height, 1.5) : 0, share: each[what] / most,
  }));
}

/** Number of the class under a pixel. */
export const classAt = (classes, width, x) => Math.min(Math.max(Math.floor((x / width) * classes.length), 0), classes.length - 1);

/** Durations of the classes a…b (either way round): [at least, less than). */
export function rangeOf(classes, a, b) {
  return [classes[Math.min(a, b)].from_ns, classes[Math.max(a, b)].to_ns];
}

/** The classes of a range, or null where it lies outside. @returns {?[number, number]} */
export function classesOf(classes, range) {
  if (!range) return null;
  const first = classes.findIndex((each) => each.to_ns > range[0]), last = classes.findLastIndex((each) => each.from_ns < range[1]);
  return first >= 0 && last >= first ? [first, last] : null;
}

/** How many slices and how much time a brush holds. */
export function brushed(classes, [a, b]) {
  const held = classes.slice(Math.min(a, b), Math.max(a, b) + 1);
  return { count: held.reduce((sum, each) => sum + each.count, 0), total_ns: held.reduce((sum, each) => sum + each.total_ns, 0) };
}

/** Ticks at powers of ten, as positions 0-1 along the classes. @returns {{ns: number, at: number}[]} */
export function decades(classes) {
  if (!classes.length) return [];
  const ticks = [];
  for (let ns = 1; ns < classes.at(-1).to_ns; ns *= 10) {
    const at = classes.findIndex((each) => each.to_ns > ns);
    if (at < 0 || classes[at].from_ns > ns) continue;
    const { from_ns: from, to_ns: to } = classes[at];
    const inside = from > 0 ? Math.log(ns / from) / Math.log(to / from) : 0;
    ticks.push({ ns, at: (at + inside) / classes.length });
  }
  return ticks;
}
