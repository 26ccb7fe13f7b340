// Axis ticks over nanoseconds: 1-2-5 steps, every label in the unit of the step so that neighbours can be told apart.

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

/** The 1-2-5 step (ns) that puts at most `most` ticks into `span_ns`. @param {number} span_ns @param {number} most */
export function tickStep(span_ns, most) {
  const raw = Math.max(span_ns / Math.max(most, 1), 1);
  const power = 10 ** Math.floor(Math.log10(raw) + 1e-12);
  for (const factor of [1, 2, 5, 10]) if (factor * power >= raw * (1 - 1e-12)) return factor * power;
  return 10 * power;
}

/**
 * Time as text, fine enough to tell steps of `step_ns` apart: tickText(1500000, 500000) = "1.5 ms".
 * @param {number} time_ns @param {number} step_ns
 */
export function tickText(time_ns, step_ns) {
  if (time_ns === 0) return "0";
  const [scale, unit] = UNITS.find(([factor]) => Math.abs(time_ns) >= factor) ?? UNITS[3];
  const decimals = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step_ns / scale) - 1e-9)));
  return `${(time_ns / scale).toFixed(decimals)} ${unit}`;
}

/**
 * Ticks of [start_ns, end_ns], ends included.
 * @param {number} start_ns @param {number} end_ns @param {number} most
 * @returns {{ns: number, label: string}[]}
 */
export function ticks(start_ns, end_ns, most = 10) {
  const step = tickStep(end_ns - start_ns, most);
  const found = [];
  for (let k = Math.ceil(start_ns / step); k * step <= end_ns; k += 1) found.push({ ns: k * step, label: tickText(k * step, step) });
  return found;
}

/** "3 min ago" from an ISO time. @param {string} iso @param {number} now_ms */
export function ago(iso, now_ms = Date.now()) {
  const seconds = Math.max(0, (now_ms - Date.parse(iso)) / 1000);
  if (!Number.isFinite(seconds)) return "—";
  if (seconds < 5) return "just now";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return "just now";
}
