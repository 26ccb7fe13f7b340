// A launch's code as a program: live registers, jumps with a lane each in the margin, who wrote what a row reads. No DOM.

export const LANES = 6;                  // jumps beside each other; one that finds none is a stub at both ends
const MOST_JUMPS = 4_000;                // get a lane: the shortest

/** @typedef {{from: number, to: number, lane: number|null}} Jump */

/**
 * A lane for each jump, the shortest innermost, so that none lies over another.
 * @param {(number|null)[]} targets row -> the row that it jumps to @returns {Jump[]} the shortest first
 */
export function jumps(targets) {
  /** @type {Jump[]} */
  const found = [];
  targets.forEach((to, from) => { if (to !== null && to !== undefined && to !== from) found.push({ from, to, lane: null }); });
  found.sort((a, b) => Math.abs(a.to - a.from) - Math.abs(b.to - b.from) || a.from - b.from);
  /** @type {[number, number][][]} */
  const lanes = Array.from({ length: LANES }, () => []);
  for (const jump of found.slice(0, MOST_JUMPS)) {
    const low = Math.min(jump.from, jump.to), high = Math.max(jump.from, jump.to);
    const free = lanes.findIndex((taken) => taken.every(([first, last]) => high < first || low > last));
    if (free < 0) continue;
    jump.lane = free;
    lanes[free].push([low, high]);
  }
  return found;
}

export class Program {
  /** @param {any} found the answer of …/program/ */
  constructor(found) {
    this.found = found;
    this.jumps = jumps(found.targets);
    this.lanes = Math.max(0, ...this.jumps.map(({ lane }) => lane === null ? 1 : lane + 1));
    /** @type {Map<number, number[]>} row -> rows that read what it wrote */
    this.readersOf = new Map();
    found.writers.forEach((/** @type {number[]} */ rows, /** @type {number} */ row) => {
      for (const writer of rows) {
        const known = this.readersOf.get(writer);
        if (known) known.push(row); else this.readersOf.set(writer, [row]);
      }
    });
  }

  get known() { return this.found.general.length > 0; }

  /** Live general registers of a row; null where nobody knows. @param {number} row @returns {number|null} */
  live(row) { return this.found.general[row] ?? null; }

  /** The most that are live over some rows. @param {number[]} rows @returns {number|null} */
  mostLive(rows) { return this.known && rows.length ? Math.max(...rows.map((row) => this.found.general[row])) : null; }

  /** How near to what the launch holds, 0 to 1. @param {number|null} live */
  pressure(live) { return live !== null && this.found.registers_per_thread ? Math.min(1, live / this.found.registers_per_thread) : 0; }

  /** @param {number} row */
  words(row) {
    if (!this.known) return `live registers are unknown: ${this.found.missing}`;
    const given = this.found.registers_per_thread;
    return `${this.found.general[row]} registers live${given ? ` of ${given} that a thread holds` : ""}, ${this.found.uniform[row]} uniform ones, ${this.found.predicates[row]} predicates`;
  }

  /** @param {number} row @returns {number[]} */
  writers(row) { return this.found.writers[row] ?? []; }

  /** @param {number} row @returns {number[]} */
  readers(row) { return this.readersOf.get(row) ?? []; }

  /** Jumps that cross some rows. @param {number} first @param {number} last one past */
  crossing(first, last) {
    return this.jumps.filter(({ from, to }) => Math.min(from, to) < last && Math.max(from, to) >= first);
  }
}
