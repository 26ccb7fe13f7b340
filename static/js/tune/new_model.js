// What the form of a new job works out from what is typed: shapes, efforts, how long it takes. No DOM.

/** @typedef {{title: string, trials: number, seconds: number, plateau: number|null, explanation: string}} Effort */
/** @typedef {{trials: number|null, seconds: number|null, plateau: number|null}} Numbers null: left empty */

/** "N=64, M = 2" and "M=2 N=64" are one shape. @param {string} text */
export function canonical(text) {
  const parts = [...text.matchAll(/([A-Za-z_]\w*)\s*[=:]\s*(-?\d+)/g)].map(([, name, value]) => `${name}=${Number(value)}`);
  return parts.sort().join(" ");
}

/** The shapes of a text, one a line, each once. @param {string} text @returns {string[]} */
export const shapesOf = (text) => [...new Map(text.split("\n").filter((line) => line.trim()).map((line) => [canonical(line) || line, line.trim()])).values()];

/** @param {string} shape @param {{name: string}[]} dims whether it names just these */
export function fits(shape, dims) {
  const names = [...shape.matchAll(/([A-Za-z_]\w*)\s*[=:]/g)].map(([, name]) => name).sort().join();
  return names === dims.map(({ name }) => name).sort().join();
}

/** The effort whose numbers these are, "" for one's own. @param {Record<string, Effort>} efforts @param {Numbers} numbers */
export function effortOf(efforts, numbers) {
  const same = ([, effort]) => effort.trials === numbers.trials && effort.seconds === numbers.seconds && effort.plateau === numbers.plateau;
  return Object.entries(efforts).find(same)?.[0] ?? "";
}

/** @param {number} seconds */
export const duration = (seconds) => seconds < 90 ? `${Math.max(1, Math.round(seconds))} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;

/**
 * How long one job takes, at least and at most: a plateau may end it as soon as its trials have won nothing.
 * @param {Numbers} numbers @param {number} trial_s @param {number} valid configurations, Infinity where unknown
 * @returns {{least_s: number, most_s: number, trials: number, by: "trials"|"seconds"|"space"}}
 */
export function predict({ trials, seconds, plateau }, trial_s, valid = Infinity) {
  const most = Math.min(trials ?? Infinity, valid), limit_s = seconds ?? Infinity;
  const most_s = Math.min(most * trial_s, limit_s);
  const least_s = plateau ? Math.min(most_s, (plateau + 1) * trial_s) : most_s;
  return { least_s, most_s, trials: most, by: most * trial_s > limit_s ? "seconds" : valid < (trials ?? Infinity) ? "space" : "trials" };
}
