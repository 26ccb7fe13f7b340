// What has been tried of a space, for its pictures: axes, what is picked on them, slices and cells. No DOM.

/** @typedef {import("./trials.js").Trial} Trial */
/** @typedef {string|number|boolean} Value */
/** @typedef {{name: string, title: string, kind: "values", values: Value[], of: (trial: Trial) => Value|null}} ValueAxis */
/** @typedef {{name: string, title: string, kind: "range", low: number, high: number, log: boolean, unit: string, of: (trial: Trial) => number|null}} RangeAxis */
/** @typedef {ValueAxis|RangeAxis} Axis */
/** @typedef {{values: Set<string>}|{low: number, high: number}} Pick */

/** Slower than the best by up to …: the classes of every picture, the last one is all that is slower still. */
export const SLOWER = [1.05, 1.25, 1.5, 2, 4, Infinity];
export const TIME = "ms";
export const FAILED = "failed"; // why a trial has no time
const FACTS = [["registers", "registers", ""], ["smem_bytes", "shared memory", "B"], ["spills", "spills", ""], ["occupancy", "occupancy", ""]];

/** @param {number} ms @param {number} best_ms @returns {number} index of SLOWER */
export const slowness = (ms, best_ms) => SLOWER.findIndex((limit) => ms <= best_ms * limit);

/** The fastest; a raced trial was given up after a few samples and is only taken where there is nothing else. @param {Trial[]} trials @returns {number|null} */
export function bestOf(trials) {
  const fastest = (some) => some.reduce((best, { median_ms }) => (median_ms !== null && (best === null || median_ms < best) ? median_ms : best), null);
  return fastest(trials.filter(({ facts }) => facts?.ended !== "raced")) ?? fastest(trials);
}

/** Numbers in order, then texts. @param {Value} a @param {Value} b */
function compare(a, b) {
  if (typeof a === "string" || typeof b === "string") return typeof a === typeof b ? String(a).localeCompare(String(b)) : typeof a === "string" ? 1 : -1;
  return Number(a) - Number(b);
}

/**
 * One axis per parameter that has more than one value so far, in the order in which configurations are written.
 * @param {Trial[]} trials @returns {ValueAxis[]}
 */
export function parameters(trials) {
  /** @type {Map<string, Map<string, Value>>} */
  const seen = new Map();
  for (const { config } of trials) {
    for (const [name, value] of Object.entries(config)) {
      if (!seen.has(name)) seen.set(name, new Map());
      seen.get(name).set(String(value), value);
    }
  }
  return [...seen].filter(([, values]) => values.size > 1).map(([name, values]) => ({
    name, title: name, kind: "values", values: [...values.values()].sort(compare), of: (trial) => trial.config[name] ?? null,
  }));
}

/**
 * What the compiler told, where at least two trials differ in it.
 * @param {Trial[]} trials @returns {RangeAxis[]}
 */
export function facts(trials) {
  const found = [];
  for (const [name, title, unit] of FACTS) {
    const of = (trial) => typeof trial.facts?.[name] === "number" ? trial.facts[name] : null;
    const known = trials.map(of).filter((value) => value !== null);
    const low = known.reduce((a, b) => Math.min(a, b), Infinity), high = known.reduce((a, b) => Math.max(a, b), -Infinity);
    if (high > low) found.push({ name, title, kind: "range", low, high, log: false, unit, of });
  }
  return found;
}

/** @param {Trial[]} trials @returns {RangeAxis|null} null: nothing is measured */
export function timeAxis(trials) {
  const known = trials.map((trial) => trial.median_ms).filter((ms) => ms !== null);
  if (!known.length) return null;
  const low = known.reduce((a, b) => Math.min(a, b)), high = known.reduce((a, b) => Math.max(a, b));
  return { name: TIME, title: "median time", kind: "range", low, high: high > low ? high : low * 1.01, log: true, unit: "ms", of: (trial) => trial.median_ms };
}

/** @param {RangeAxis} axis @param {number} value @returns {number} 0 at the low end, 1 at the high one */
export function placeOf(axis, value) {
  const at = axis.log ? (x) => Math.log(x) : (x) => x;
  return axis.high > axis.low ? (at(value) - at(axis.low)) / (at(axis.high) - at(axis.low)) : 0;
}

/** The other way round. @param {RangeAxis} axis @param {number} place */
export function valueAt(axis, place) {
  return axis.log ? axis.low * (axis.high / axis.low) ** place : axis.low + place * (axis.high - axis.low);
}

/** Round values on an axis of a range: 1, 2, 5 times a power of ten. @param {RangeAxis} axis @param {number} most @returns {number[]} */
export function ticks(axis, most = 6) {
  const found = [];
  if (axis.log) {
    for (const steps of [[1, 2, 5], [1, 3], [1]]) {
      found.length = 0;
      for (let power = Math.floor(Math.log10(axis.low)); power <= Math.ceil(Math.log10(axis.high)); power += 1) {
        for (const step of steps) found.push(step * 10 ** power);
      }
      const inside = found.filter((value) => value >= axis.low && value <= axis.high);
      if (inside.length <= most) return inside.length > 1 ? inside : [axis.low, axis.high];
    }
    return [axis.low, axis.high];
  }
  const step = [1, 2, 5, 10, 20, 50].map((factor) => factor * 10 ** Math.floor(Math.log10((axis.high - axis.low) / most)))
    .find((size) => (axis.high - axis.low) / size <= most);
  for (let value = Math.ceil(axis.low / step) * step; value <= axis.high + step / 1e6; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

// ---- what is picked ----

/** What people pick on the axes: parts of several axes, a trial has to be in all of them. */
export class Picks {
  constructor() {
    /** @type {Map<string, Pick>} */
    this.on = new Map();
  }

  get size() { return this.on.size; }

  /** @param {string} name @param {Value} value */
  toggle(name, value) {
    const picked = this.on.get(name), values = picked && "values" in picked ? new Set(picked.values) : new Set();
    if (!values.delete(String(value))) values.add(String(value));
    this.set(name, { values });
  }

  /** @param {string} name @param {Pick|null} pick null or empty: everything again */
  set(name, pick) {
    if (!pick || ("values" in pick && !pick.values.size)) this.on.delete(name);
    else this.on.set(name, pick);
  }

  clear() { this.on.clear(); }

  /** @param {string} name @param {Value} value */
  has(name, value) {
    const picked = this.on.get(name);
    return picked !== undefined && "values" in picked && picked.values.has(String(value));
  }

  /** @param {Trial} trial */
  passes(trial) {
    for (const [name, pick] of this.on) {
      if ("values" in pick) {
        const value = name === FAILED ? trial.reason : trial.config[name];
        if (value === undefined || !pick.values.has(String(value))) return false;
      } else {
        const value = name === TIME ? trial.median_ms : trial.facts?.[name];
        if (typeof value !== "number" || value < pick.low || value > pick.high) return false;
      }
    }
    return true;
  }

  /** For the URL: "BM:128|256;ms:0.18~0.2". */
  toText() {
    const part = (pick) => "values" in pick ? [...pick.values].map(encodeURIComponent).join("|") : `${pick.low}~${pick.high}`;
    return [...this.on].map(([name, pick]) => `${encodeURIComponent(name)}:${part(pick)}`).join(";");
  }

  /** @param {string} text what cannot be read is left out */
  static fromText(text) {
    const picks = new Picks();
    for (const part of text.split(";").slice(0, 64)) {
      const [name, body] = part.split(/:(.*)/s);
      if (!name || !body) continue;
      const range = /^(-?[\d.e+-]+)~(-?[\d.e+-]+)$/.exec(body);
      try {
        if (range && Number.isFinite(Number(range[1])) && Number.isFinite(Number(range[2]))) picks.set(decodeURIComponent(name), { low: Number(range[1]), high: Number(range[2]) });
        else picks.set(decodeURIComponent(name), { values: new Set(body.split("|").map(decodeURIComponent)) });
      } catch { /* a broken escape: not ours */ }
    }
    return picks;
  }
}

/**
 * What a set of trials has in common: the values that most of them share, the surest first.
 * @param {Trial[]} some @param {ValueAxis[]} axes @param {number} least share of the trials
 * @returns {{name: string, value: Value, count: number}[]}
 */
export function common(some, axes, least = 0.7) {
  const found = [];
  for (const axis of axes) {
    const counts = new Map();
    for (const trial of some) {
      const value = axis.of(trial);
      if (value !== null) counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    const [value, count] = [...counts].reduce((a, b) => (b[1] > a[1] ? b : a), [null, 0]);
    if (count && count >= least * some.length) found.push({ name: axis.name, value, count });
  }
  return found.sort((a, b) => b.count - a.count);
}

// ---- slices and cells ----

/** @typedef {{value: Value, trials: Trial[], best_ms: number|null, rejected: number}} Slice */

/** The trials by the value of one parameter. @param {Trial[]} trials @param {ValueAxis} axis @returns {Slice[]} */
export function slices(trials, axis) {
  const found = new Map(axis.values.map((value) => [value, { value, trials: [], best_ms: null, rejected: 0 }]));
  for (const trial of trials) {
    const slice = found.get(axis.of(trial));
    if (!slice) continue;
    slice.trials.push(trial);
    if (trial.median_ms === null) slice.rejected += 1;
    else if (slice.best_ms === null || trial.median_ms < slice.best_ms) slice.best_ms = trial.median_ms;
  }
  return [...found.values()];
}

/** @typedef {{tried: number, rejected: number, best: Trial|null, reason: string}} Cell reason: the most frequent one */

/**
 * The best of each pair of values: rows as in `y.values`, columns as in `x.values`; null was never tried.
 * @param {Trial[]} trials @param {ValueAxis} x @param {ValueAxis} y @returns {(Cell|null)[][]}
 */
export function cells(trials, x, y) {
  const column = new Map(x.values.map((value, at) => [value, at])), row = new Map(y.values.map((value, at) => [value, at]));
  const found = y.values.map(() => x.values.map(() => /** @type {any} */ (null)));
  for (const trial of trials) {
    const at = column.get(x.of(trial)), down = row.get(y.of(trial));
    if (at === undefined || down === undefined) continue;
    const cell = found[down][at] ??= { tried: 0, rejected: 0, best: null, reason: "", reasons: new Map() };
    cell.tried += 1;
    if (trial.median_ms === null) {
      cell.rejected += 1;
      cell.reasons.set(trial.reason, (cell.reasons.get(trial.reason) ?? 0) + 1);
      cell.reason = [...cell.reasons].reduce((a, b) => (b[1] > a[1] ? b : a))[0];
    } else if (!cell.best || trial.median_ms < cell.best.median_ms) cell.best = trial;
  }
  return found;
}
