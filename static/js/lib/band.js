// The part of an axis worth a look: outliers are marked at its edge and do not press the rest into a line. The rule of
// profiles/band.py as well; tests/data/bands.json holds both to it. No DOM.

const LEAST = 5; // of fewer values none is an outlier
const FENCE = 3; // quartile distances beyond the quartiles: Tukey's "far out" (Exploratory Data Analysis, 1977)
const NOISE = 0.01; // a distance of quartiles below so much of their size says nothing
const GAIN = 2; // an axis is cut only where what is left gets at least so much more of it

/** @param {number[]} known ascending @param {number} share */
function quantile(known, share) {
  const at = share * (known.length - 1), below = Math.floor(at), above = Math.min(below + 1, known.length - 1);
  return known[below] + (at - below) * (known[above] - known[below]);
}

/**
 * The band of values that hold together, with every mark (a baseline, a limit) and, if `zero`, 0 in it; the whole range where cutting
 * would not at least double the room of what stays. 0 to 1 without a number.
 * @param {number[]} values @param {{marks?: number[], zero?: boolean}} [options]
 * @returns {{low: number, high: number, below: number[], above: number[]}} values beyond, ascending
 */
export function band(values, { marks = [], zero = false } = {}) {
  const known = values.filter(Number.isFinite).sort((a, b) => a - b), always = [...marks.filter(Number.isFinite), ...(zero ? [0] : [])];
  const ends = (low, high) => [always.reduce((a, b) => Math.min(a, b), low), always.reduce((a, b) => Math.max(a, b), high)];
  const whole = (low, high) => ({ low, high, below: [], above: [] });
  if (!known.length) return always.length ? whole(...ends(Infinity, -Infinity)) : whole(0, 1);
  const [low, high] = ends(known[0], known[known.length - 1]);
  if (known.length < LEAST) return whole(low, high);
  const first = quantile(known, 0.25), third = quantile(known, 0.75), reach = FENCE * Math.max(third - first, NOISE * Math.max(Math.abs(first), Math.abs(third)));
  const inside = known.filter((value) => value >= first - reach && value <= third + reach);
  const [near, far] = ends(inside[0], inside[inside.length - 1]);
  if (high - low < GAIN * (far - near) || high === low) return whole(low, high);
  return { low: near, high: far, below: known.filter((value) => value < near), above: known.filter((value) => value > far) };
}
