// Numbers for people, the same text as webapp/templatetags/numbers.py (tests/data/numbers.json holds the shared cases).

const UP = ["", "k", "M", "G", "T", "P", "E"];
const DOWN = ["", "m", "µ", "n", "p", "f"];
const SMALL_UNITS = new Set(["s", "J", "W", "V", "A", "m"]); // units people write with m, µ, n
const TIMES = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"], [60e9, "min"], [3600e9, "h"]];
export const UNKNOWN = "—";

/** @param {unknown} x @returns {number|null} a finite number, or null for what is unknown */
function known(x) {
  if (x === null || x === undefined || x === "" || typeof x === "boolean") return null;
  const value = Number(x);
  return Number.isFinite(value) ? value : null;
}

/** Three significant digits without an exponent. @param {number} value */
export function threeDigits(value) {
  if (value === 0) return "0";
  let decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  decimals = Math.min(decimals, 12);
  if (Number(Math.abs(value).toFixed(decimals)) >= 10 ** (3 - decimals)) decimals = Math.max(0, decimals - 1);
  return value.toFixed(decimals);
}

/** @param {number} value without a prefix a whole number stays whole */
function plain(value) {
  return Number.isInteger(value) && Math.abs(value) < 1000 ? value.toFixed(0) : threeDigits(value);
}

/** @param {unknown} x @param {string} unit */
export function si(x, unit = "") {
  const value = known(x);
  if (value === null) return UNKNOWN;
  let size = Math.abs(value), step = 0;
  while (step < UP.length - 1 && size >= 999.5) { size /= 1000; step += 1; }
  while (size > 0 && size < 0.9995 && -step < DOWN.length - 1 && SMALL_UNITS.has(unit)) { size *= 1000; step -= 1; }
  const number = Math.sign(value) * size;
  return `${step === 0 ? plain(number) : threeDigits(number)} ${step >= 0 ? UP[step] : DOWN[-step]}${unit}`.trimEnd();
}

/** Duration from ns to h. @param {unknown} x nanoseconds */
export function ns(x) {
  const value = known(x);
  if (value === null) return UNKNOWN;
  const size = Math.abs(value);
  let [scale, unit] = TIMES[0];
  for (const [factor, name] of TIMES.slice(1)) if (size >= factor * (factor <= 1e9 ? 0.9995 : 1)) [scale, unit] = [factor, name];
  return `${unit === "ns" ? plain(value / scale) : threeDigits(value / scale)} ${unit}`;
}

/** @param {unknown} x milliseconds */
export const msAsTime = (x) => ns(known(x) === null ? null : Number(x) * 1e6);

/** @param {unknown} x bytes, decimal prefixes */
export const bytes = (x) => si(x, "B");

/** @param {unknown} x 0-100 */
export function pct(x) {
  const value = known(x);
  if (value === null) return UNKNOWN;
  if (value !== 0 && Math.abs(value) < 0.01) return value < 0 ? ">-0.01 %" : "<0.01 %";
  return Math.abs(value) >= 1 || value === 0 ? `${plain(value)} %` : `${value.toFixed(2)} %`;
}

/** Whole numbers, exact below 100,000. @param {unknown} x */
export function count(x) {
  const value = known(x);
  if (value === null) return UNKNOWN;
  return Math.abs(value) < 100000 ? Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",") : si(value);
}

/** A count with its noun: 1, "launch" -> "1 launch"; 3, "copy" -> "3 copies". @param {number|null|undefined} x @param {string} one */
export function plural(x, one) {
  if (Number(x) === 1) return `1 ${one}`;
  return `${count(x)} ${one.endsWith("y") ? `${one.slice(0, -1)}ies` : `${one}${one.endsWith("ch") ? "es" : "s"}`}`;
}
