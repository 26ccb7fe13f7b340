// What a table's filters, sorting and exports mean. No DOM, no table library.

/** @typedef {{field: string, title: string, type: "number"|"text"|"html", unit?: string}} Column */

const FACTORS = {
  "": 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12, "%": 1,
  ns: 1, us: 1e3, "µs": 1e3, "μs": 1e3, ms: 1e6, s: 1e9, min: 60e9, h: 3600e9,
  b: 1, kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12, kib: 1024, mib: 2 ** 20, gib: 2 ** 30,
};
const TIME_UNITS_NS = { ns: 1, us: 1e3, ms: 1e6, s: 1e9 };
const TIME_SUFFIX = /^(ns|us|µs|μs|ms|s|min|h)$/;

/** "1.5ms" in a column that holds ns -> 1500000. @param {string} text @param {string} unit of the column's raw values */
export function parseQuantity(text, unit = "") {
  const match = /^\s*(-?[\d.,]+(?:e[+-]?\d+)?)\s*([a-zµμ%]*)\s*$/i.exec(text);
  if (!match) return null;
  const number = Number(match[1].replace(/,/g, ""));
  const suffix = match[2].toLowerCase();
  if (!Number.isFinite(number) || !(suffix in FACTORS)) return null;
  const scale = TIME_SUFFIX.test(suffix) ? TIME_UNITS_NS[unit.toLowerCase()] ?? 1 : 1;
  return number * FACTORS[suffix] / scale;
}

const SCALES = { f: 1e-15, p: 1e-12, n: 1e-9, "µ": 1e-6, "μ": 1e-6, m: 1e-3, k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };
const SI_UNITS = /^(B|B\/s|FLOP|FLOP\/s|FLOP\/B|Hz|W|J|bit\/s|inst\/s)$/;

/**
 * The first number of a text as people read it, in the base of its unit: "▲ +1.50 ms, of 3" -> 1500000 ns, "−7.3 %" -> -7.3 %,
 * "1.2 TFLOP/s" -> 1.2e12 FLOP/s; a bare "45.1 k" -> 45100. @param {string} text @returns {{value: number, unit: string}|null}
 */
export function quantity(text) {
  const match = /([+\-−]?)\s?(\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)[ \u00a0]?([A-Za-zµμ%×°]+(?:\/[A-Za-z]+)?)?/.exec(text);
  if (!match) return null;
  const value = Number(match[2].replace(/,/g, "")) * (match[1] && match[1] !== "+" ? -1 : 1), unit = match[3] ?? "";
  if (!Number.isFinite(value)) return null;
  if (TIME_SUFFIX.test(unit)) return { value: value * FACTORS[unit], unit: "ns" };
  if (/^[KMGT]iB$/.test(unit)) return { value: value * FACTORS[unit.toLowerCase()], unit: "B" };
  if (unit.length === 1 && "kMGTPE".includes(unit)) return { value: value * SCALES[unit], unit: "" };
  if (unit[0] in SCALES && SI_UNITS.test(unit.slice(1))) return { value: value * SCALES[unit[0]], unit: unit.slice(1) };
  return { value, unit: SI_UNITS.test(unit) || unit === "%" || unit === "×" || unit === "°C" ? unit : "" };
}

/**
 * A test for one column's filter: ">1ms", "<=5", "10..20", "=3"; else the words must all occur. "!word" must not.
 * @param {string} query @param {Column} column
 * @returns {((value: any, text: string) => boolean)|null} null = no filter
 */
export function columnTest(query, column) {
  const trimmed = query.trim();
  if (!trimmed) return null;
  if (column.type === "number") {
    const range = /^(.+?)\.\.(.+)$/.exec(trimmed);
    const low = range && parseQuantity(range[1], column.unit), high = range && parseQuantity(range[2], column.unit);
    if (range && low !== null && high !== null) return (value) => value !== null && value >= low && value <= high;
    const compare = /^(>=|<=|>|<|=)(.+)$/.exec(trimmed);
    const limit = compare && parseQuantity(compare[2], column.unit);
    if (compare && limit !== null) {
      const test = { ">": (v) => v > limit, "<": (v) => v < limit, ">=": (v) => v >= limit, "<=": (v) => v <= limit, "=": (v) => v === limit }[compare[1]];
      return (value) => value !== null && test(value);
    }
  }
  const test = wordsTest(trimmed);
  return (_, text) => test(text);
}

/** All words occur, words behind "!" do not; upper and lower case are one. @param {string} query @returns {(text: string) => boolean} */
export function wordsTest(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = words.filter((word) => !word.startsWith("!") || word === "!");
  const unwanted = words.filter((word) => word.startsWith("!") && word !== "!").map((word) => word.slice(1));
  return (text) => {
    const lower = text.toLowerCase();
    return wanted.every((word) => lower.includes(word)) && !unwanted.some((word) => lower.includes(word));
  };
}

/** Order of two raw values; unknown goes last in both directions. @param {"asc"|"desc"} direction */
export function compareValues(a, b, type, direction) {
  const noA = a === null || a === undefined || a === "", noB = b === null || b === undefined || b === "";
  if (noA || noB) return noA && noB ? 0 : (noA ? 1 : -1) * (direction === "asc" ? 1 : -1);
  if (type === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true, sensitivity: "base" });
}

/** A spreadsheet must not run what a kernel is called. @param {any} value */
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

/** @param {Column[]} columns @param {any[][]} rows raw values */
export function toCsv(columns, rows) {
  return [columns.map((column) => csvCell(column.title)), ...rows.map((row) => row.map(csvCell))].map((cells) => cells.join(",")).join("\r\n") + "\r\n";
}

/** For pasting into a sheet or a chat. @param {Column[]} columns @param {any[][]} rows */
export function toTsv(columns, rows) {
  const cell = (value) => (value === null || value === undefined ? "" : String(value).replace(/[\t\r\n]+/g, " "));
  return [columns.map((column) => cell(column.title)), ...rows.map((row) => row.map(cell))].map((cells) => cells.join("\t")).join("\n");
}

/** @param {Column[]} columns @param {any[][]} rows */
export function toJson(columns, rows) {
  return JSON.stringify(rows.map((row) => Object.fromEntries(columns.map((column, index) => [column.title, row[index] ?? null]))), null, 1);
}
