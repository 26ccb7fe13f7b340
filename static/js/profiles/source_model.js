// What the side-by-side view knows: instructions as columns, the lines they belong to, and heat of both. No DOM.

/** @typedef {{number: number, name: string, short: string, text: string|null}} SourceFile */
/** @typedef {{name: string, label: string, unit: string, meaning: string, adds_up: boolean}} Measure */
/** @typedef {{name: string, title: string, meaning: string, fix: string}} State */

export class SourceModel {
  /** @param {any} found the answer of /api/profiles/…/source/… */
  constructor(found) {
    this.found = found;
    /** @type {SourceFile[]} */
    this.files = found.files;
    /** @type {Measure[]} */
    this.measures = found.measures;
    /** @type {State[]} */
    this.states = found.reasons;
    this.code = found.instructions;
    this.size = this.code.offset.length;
    /** @type {Map<string, number[]>} "file:line" -> rows */
    this.rowsByLine = new Map();
    for (let row = 0; row < this.size; row += 1) {
      const key = this.lineKey(row);
      if (key === null) continue;
      const rows = this.rowsByLine.get(key);
      if (rows) rows.push(row); else this.rowsByLine.set(key, [row]);
    }
    this.rowByOffset = new Map(this.code.offset.map((/** @type {number} */ offset, /** @type {number} */ row) => [offset, row]));
    this.cache = new Map();
  }

  /** @param {number} row @returns {string|null} */
  lineKey(row) {
    const file = this.code.file[row], line = this.code.line[row];
    return file === null || line === null ? null : `${file}:${line}`;
  }

  /** @param {number} file @param {number} line @returns {number[]} */
  rowsOf(file, line) { return this.rowsByLine.get(`${file}:${line}`) ?? []; }

  /** @param {string} name @returns {number[]} a measure per instruction */
  values(name) { return this.found.values[name] ?? this.found.samples[name] ?? new Array(this.size).fill(0); }

  /** @param {string} name */
  measure(name) { return this.measures.find((each) => each.name === name) ?? this.measures[0]; }

  /** A measure over some instructions: their sum, or for a ratio the mean weighted by executions. @param {string} name @param {number[]} rows */
  over(name, rows) {
    const values = this.values(name);
    if (this.measure(name)?.adds_up !== false || !this.found.values.inst_executed) return rows.reduce((sum, row) => sum + values[row], 0);
    const weights = this.values("inst_executed");
    const weight = rows.reduce((sum, row) => sum + weights[row], 0);
    return weight ? rows.reduce((sum, row) => sum + values[row] * weights[row], 0) / weight : 0;
  }

  /** Total, greatest instruction and greatest line of a measure. @param {string} name */
  scale(name) {
    let known = this.cache.get(name);
    if (!known) {
      const values = this.values(name);
      const lines = [...this.rowsByLine.values()].map((rows) => this.over(name, rows));
      known = { total: values.reduce((sum, value) => sum + value, 0), row: Math.max(0, ...values), line: Math.max(0, ...lines) };
      this.cache.set(name, known);
    }
    return known;
  }

  /** Share of the total in percent; for a ratio the value itself. @param {string} name @param {number} value */
  share(name, value) {
    if (this.measure(name)?.adds_up === false) return value;
    const { total } = this.scale(name);
    return total ? 100 * value / total : 0;
  }

  /** How hot, 0 to 1: a ratio is hot where it is low. @param {string} name @param {number} value @param {"row"|"line"} of @param {boolean} ran whether it was executed at all */
  heat(name, value, of, ran = true) {
    if (this.measure(name)?.adds_up === false) return ran ? Math.max(0, Math.min(1, 1 - value / 32)) : 0;
    const most = this.scale(name)[of];
    return most ? Math.min(1, value / most) : 0;
  }

  /** @param {number} row */
  ran(row) { return !this.found.values.inst_executed || this.values("inst_executed")[row] > 0; }

  /** Samples by warp state over some instructions, most first. @param {number[]} rows @returns {{state: State, samples: number}[]} */
  statesOf(rows) {
    return this.states.map((state) => ({ state, samples: rows.reduce((sum, row) => sum + this.found.samples[state.name][row], 0) }))
      .filter(({ samples }) => samples > 0).sort((a, b) => b.samples - a.samples);
  }

  /** Instructions by a measure, hottest first; those without any left out. @param {string} name @returns {number[]} */
  hottest(name) {
    const heat = this.values(name).map((value, row) => this.heat(name, value, "row", this.ran(row)));
    return heat.map((_, row) => row).filter((row) => heat[row] > 0).sort((a, b) => heat[b] - heat[a] || a - b);
  }

  /** Lines of a file by a measure, hottest first. @param {string} name @param {number} file @returns {number[]} */
  hottestLines(name, file) {
    const lines = [...this.rowsByLine].map(([key, rows]) => ({ key: key.split(":").map(Number), heat: this.heat(name, this.over(name, rows), "line", rows.some((row) => this.ran(row))) }));
    return lines.filter(({ key, heat }) => key[0] === file && heat > 0).sort((a, b) => b.heat - a.heat || a.key[1] - b.key[1]).map(({ key }) => key[1]);
  }

  /** The hottest of some instructions. @param {number[]} rows @param {string} name */
  hottestOf(rows, name) {
    const values = this.values(name);
    return rows.reduce((best, row) => values[row] > values[best] ? row : best, rows[0]);
  }

  /** The next one in order of heat, round and round. @param {number[]} order @param {number|null} now @param {1|-1} step @returns {number|null} */
  static next(order, now, step) {
    if (!order.length) return null;
    const at = now === null ? -1 : order.indexOf(now);
    if (at < 0) return order[step > 0 ? 0 : order.length - 1];
    return order[(at + step + order.length) % order.length];
  }

  /** Lines of a file as text; of a file without text, the lines that have instructions. @param {number} file @returns {{line: number, text: string|null}[]} */
  lines(file) {
    const text = this.files[file]?.text;
    if (text) return text.split("\n").map((each, at) => ({ line: at + 1, text: each.replace(/\r$/, "") }));
    const known = [...this.rowsByLine.keys()].map((key) => key.split(":").map(Number)).filter(([number]) => number === file).map(([, line]) => line);
    return known.sort((a, b) => a - b).map((line) => ({ line, text: null }));
  }

  /** Files that instructions belong to, the one with the most of a measure first. @param {string} name @returns {SourceFile[]} */
  filesByHeat(name) {
    const sums = new Map();
    for (const [key, rows] of this.rowsByLine) {
      const file = Number(key.split(":")[0]);
      sums.set(file, (sums.get(file) ?? 0) + rows.reduce((sum, row) => sum + this.values(name)[row], 0));
    }
    return this.files.filter((file) => sums.has(file.number)).sort((a, b) => sums.get(b.number) - sums.get(a.number) || a.number - b.number);
  }
}
