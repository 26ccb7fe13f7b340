// The trials of a job, in order, as the snapshots bring them.

/** @typedef {{number: number, config: Record<string, any>, outcome: string, reason: string, message: string, median_ms: number|null, min_ms: number|null, p90_ms: number|null, n: number|null, facts: Record<string, any>, at_s: number}} Trial */

/** Given up against the best so far: a dot, but no best. @param {Trial} trial */
export const isRaced = (trial) => trial.facts?.ended === "raced";

/** The measured trials, each with the best so far in ms. @param {Trial[]} trials in order @returns {{trial: Trial, best_ms: number}[]} */
export function bestSoFar(trials) {
  const found = [];
  let best = Infinity;
  for (const trial of trials) {
    if (trial.median_ms === null) continue;
    if (!isRaced(trial) || best === Infinity) best = Math.min(best, trial.median_ms);
    found.push({ trial, best_ms: best });
  }
  return found;
}

/** Fastest first, then what failed, each in the order in which it was known. @param {Trial[]} trials @returns {Trial[]} */
export const byTime = (trials) => [...trials].sort((a, b) => (a.median_ms ?? Infinity) - (b.median_ms ?? Infinity) || a.number - b.number || 0);

/** @param {Record<string, any>} config */
export const configText = (config) => Object.entries(config).map(([name, value]) => `${name}=${value}`).join(" ");
