// The trials of a job in order, whatever order they arrive in: over the WebSocket, from the API, twice.

/** @typedef {{number: number, config: Record<string, any>, outcome: string, reason: string, message: string, median_ms: number|null, min_ms: number|null, p90_ms: number|null, n: number|null, facts: Record<string, any>, at_s: number}} Trial */

const SHOWN = 0.55, FAINT = 0.08; // opacity of a dot

export class Trials {
  constructor() {
    /** @type {Map<number, Trial>} */
    this.known = new Map();
    this.contiguous = -1; // every trial up to this number is known
    /** @type {Trial[]|null} */
    this.ordered = null; // by number, until the next one comes
  }

  /** @param {Trial} trial @returns {boolean} whether it is new */
  add(trial) {
    if (this.known.has(trial.number)) return false;
    this.known.set(trial.number, trial);
    this.ordered = null;
    while (this.known.has(this.contiguous + 1)) this.contiguous += 1;
    return true;
  }

  get size() { return this.known.size; }

  /** @returns {Trial[]} by number */
  inOrder() { return this.ordered ??= [...this.known.values()].sort((a, b) => a.number - b.number); }

  /** Columns of the figure's live source: measured trials and the best so far, times in ms. Same as tuner/jobs/charts.py. @param {(trial: Trial) => boolean} picked */
  columns(picked = () => true) {
    const columns = { number: [], ms: [], best: [], config: [], at_s: [], alpha: [] };
    let best = Infinity;
    for (const trial of this.inOrder()) {
      if (trial.median_ms === null) continue;
      if (trial.facts?.ended !== "raced" || best === Infinity) best = Math.min(best, trial.median_ms); // a raced trial was given up: no best
      columns.number.push(trial.number + 1);
      columns.ms.push(trial.median_ms);
      columns.best.push(best);
      columns.config.push(configText(trial.config));
      columns.at_s.push(trial.at_s);
      columns.alpha.push(picked(trial) ? SHOWN : FAINT);
    }
    return columns;
  }
}

const PLATEAU_GAIN = 0.01; // as in tuner/search/loop.py

/**
 * Trials in a row without a gain: what a plateau counts. Small gains since the last one add up, a raced trial wins nothing.
 * @param {Trial[]} trials in order
 */
export function withoutGain(trials) {
  let best = Infinity, last = Infinity, count = 0;
  for (const { median_ms, facts } of trials) {
    if (median_ms !== null && facts?.ended !== "raced") best = Math.min(best, median_ms);
    if (best === Infinity) continue;
    count += 1;
    if (best < last * (1 - PLATEAU_GAIN)) [last, count] = [best, 0];
  }
  return count;
}

/** @param {Record<string, any>} config */
export const configText = (config) => Object.entries(config).map(([name, value]) => `${name}=${value}`).join(" ");

/**
 * Seconds left at the present rate, by whichever budget ends first; null while unknown.
 * @param {{trials: number, most: number, elapsed_s: number, budget_seconds: number}} job
 */
export function secondsLeft({ trials, most, elapsed_s, budget_seconds }) {
  if (!trials || !elapsed_s) return null;
  return Math.max(0, Math.min((most - trials) * elapsed_s / trials, budget_seconds - elapsed_s));
}
