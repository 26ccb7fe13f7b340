// The visible window of time and the only place where nanoseconds become pixels. Knows no DOM.
//
// Offsets are computed from the window's start, so a pixel is exact at any zoom: no product of a large time and a scale.

import { tickStep, tickText } from "../../lib/time.js";

const MIN_NS_PER_PX = 0.02;     // 50 px per nanosecond: nothing in a trace is finer

export class Viewport {
  /** @param {number} startNs @param {number} endNs limits of the trace */
  constructor(startNs, endNs) {
    this.min = startNs;
    this.max = endNs;
    this.start = startNs;
    this.end = endNs;
    this.width = 1;             // CSS pixels
  }

  get span() { return this.end - this.start; }
  get nsPerPx() { return this.span / this.width; }
  get isWhole() { return this.start <= this.min && this.end >= this.max; }

  x(ns) { return (ns - this.start) * (this.width / this.span); }
  ns(x) { return this.start + x * (this.span / this.width); }

  /** Show [start, end], moved and widened where it would leave the trace or be too narrow to draw. */
  set(start, end) {
    const whole = this.max - this.min;
    const span = Math.min(Math.max(end - start, Math.min(MIN_NS_PER_PX * this.width, whole)), whole);
    const middle = (start + end) / 2;
    let from = end - start === span ? start : middle - span / 2;
    from = Math.min(Math.max(from, this.min), this.max - span);
    const changed = from !== this.start || from + span !== this.end;
    this.start = from;
    this.end = from + span;
    return changed;
  }

  /** Zoom by `factor` (< 1 is in) so that the time under pixel x stays under it. */
  zoomAt(x, factor) {
    const at = this.ns(x), share = x / this.width;
    const whole = this.max - this.min;
    const span = Math.min(Math.max(this.span * factor, Math.min(MIN_NS_PER_PX * this.width, whole)), whole);
    return this.set(at - share * span, at - share * span + span);
  }

  pan(ns) {
    return this.set(this.start + ns, this.start + ns + this.span);
  }

  resize(width) {
    this.width = Math.max(width, 1);
    this.set(this.start, this.end);
  }

  /** The window that shows [start, end] with air around it; an instant gets a window of its own. */
  around(start, end, air = 0.15) {
    const span = Math.max(end - start, 8 * MIN_NS_PER_PX * this.width, 1);
    const middle = (start + end) / 2;
    return [middle - span * (0.5 + air), middle + span * (0.5 + air)];
  }

  /** Level whose bins are half a pixel to two pixels wide: the greatest k with 4^k ≤ 2 ns per pixel. */
  level(topLevel) {
    const k = Math.floor((Math.log2(this.nsPerPx) + 1) / 2 + 1e-9);
    return Math.min(Math.max(k, 0), topLevel);
  }
}

/** Window between two windows at t in 0…1: spans move geometrically, so a zoom feels even. */
export function between(from, to, t) {
  const a = from.end - from.start, b = to.end - to.start;
  const span = a * (b / a) ** t;
  const share = Math.abs(b - a) < 1e-9 * a ? t : (span - a) / (b - a);
  const start = from.start + (to.start - from.start) * share;
  return { start, end: start + span };
}

/**
 * Ticks of a ruler: multiples of 1, 2 or 5 × 10^n ns, at least `gapPx` apart, and how they are divided.
 * Labels count from `base` (a multiple of a thousand steps) once the numbers would grow too long.
 * @returns {{base: number, step: number, minor: number, ticks: {ns: number, x: number, label: string}[]}}
 */
export function ticks(viewport, gapPx = 110) {
  const step = tickStep(viewport.nsPerPx * gapPx, 1);
  const base = viewport.start > 1000 * step ? Math.floor(viewport.start / (1000 * step)) * 1000 * step : 0;
  const minor = step / (String(step)[0] === "2" ? 4 : 5);
  const list = [];
  for (let i = Math.ceil((viewport.start - base) / step); base + i * step <= viewport.end; i++) {
    const ns = base + i * step;
    list.push({ ns, x: viewport.x(ns), label: `${base ? "+" : ""}${tickText(i * step, step)}` });
  }
  return { base, step, minor, ticks: list };
}

const TIP_PX = 14, TIP_EDGE_PX = 6;       // from the pointer; from the edge of the view

/**
 * Where a tip stands: below and right of the pointer, above or left of it where the view ends, and never beyond its edge.
 * @param {{x: number, y: number}} point @param {{width: number, height: number}} tip @param {{width: number, height: number}} view @returns {[number, number]} left, top
 */
export function tipPlace(point, tip, view) {
  const along = (at, size, whole) => {
    const after = at + TIP_PX, before = at - TIP_PX - size;
    const wanted = after + size + TIP_EDGE_PX <= whole || before < TIP_EDGE_PX ? after : before;
    return Math.max(Math.min(wanted, whole - size - TIP_EDGE_PX), Math.min(TIP_EDGE_PX, whole - size));
  };
  return [along(point.x, tip.width, view.width), along(point.y, tip.height, view.height)];
}

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

/** Exact nanoseconds with thousands separated: "12,416 ns". */
export function exactNs(ns) {
  return `${GROUPED.format(Number.isInteger(ns) ? ns : Number(ns.toFixed(3)))} ns`;
}

const GROUPED = new Intl.NumberFormat("en-US");

/** A position on the time axis, exact and readable: "1.234 567 891 s". */
export function clock(ns) {
  const [scale, unit] = UNITS.find(([s]) => Math.abs(ns) >= s) ?? UNITS.at(-1);
  const digits = Math.round(Math.log10(scale));
  const [whole, fraction = ""] = (Math.round(ns) / scale).toFixed(digits).split(".");
  return `${whole}${fraction ? "." + fraction.match(/.{1,3}/g).join("\u202f") : ""} ${unit}`;
}
