// Parallel coordinates: each trial a line over its parameters to its time, the fast ones on top. Values are buttons, and a
// drag along an axis picks a part of it. The lines of one class of slowness are one path: thousands cost a few elements.

import { bytes, msAsTime } from "../lib/units.js";
import { FAILED, placeOf, SLOWER, slowness, ticks, TIME, valueAt } from "./space.js";
import { svg } from "./svg.js";

/** @typedef {import("./trials.js").Trial} Trial */
/** @typedef {import("./space.js").Axis} Axis */
/** @typedef {{trials: Trial[], axes: Axis[], picks: import("./space.js").Picks, best_ms: number|null}} Scene */

const HEIGHT = 360, TOP = 34, BOTTOM = 12, LEFT = 46, RIGHT = 86;
const SPREAD = 0.62; // of a value's band that its lines use
const FAILED_PX = 19; // of the time axis, below it, for each reason that something failed
const NEAR_PX = 9;
const CLASSES = [...SLOWER.map((_, at) => `s${at}`), "failed"];

/** @param {string} name of an axis @param {number} value */
const label = (name, value) => name === TIME ? msAsTime(value) : name === "smem_bytes" ? bytes(value) : String(Number(value.toPrecision(3)));

export class Parallel {
  /**
   * @param {SVGSVGElement} element @param {HTMLElement} tip
   * @param {{pick: (name: string, pick: any) => void, toggle: (name: string, value: any) => void, choose: (trial: Trial) => void}} on
   */
  constructor(element, tip, on) {
    this.element = element;
    this.tip = tip;
    this.on = on;
    this.built = "";
    /** @type {Scene|null} */
    this.scene = null;
    /** @type {{trial: Trial, path: string, points: ([number, number]|null)[]}[]} */
    this.lines = [];
    this.shown = this.lines;
    /** @type {Trial[]|null} */
    this.laid = null;
    this.width = 0;
    element.addEventListener("pointermove", (event) => this.hover(event));
    element.addEventListener("pointerleave", () => this.show(null));
    element.addEventListener("click", () => { if (this.near) this.on.choose(this.near.trial); });
    element.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {Scene} scene */
  draw(scene) {
    this.scene = scene;
    this.width = Math.max(320, this.element.clientWidth || 900);
    this.reasons = [...new Set(scene.trials.filter((trial) => trial.median_ms === null).map((trial) => trial.reason))].sort();
    const built = JSON.stringify([this.width, this.reasons, scene.axes.map((axis) => [axis.name, axis.kind === "values" ? axis.values : [axis.low, axis.high]])]);
    if (built !== this.built) this.build();
    if (built !== this.built || this.laid !== scene.trials) this.lines = this.layLines(); // what is picked moves no line
    this.built = built;
    this.laid = scene.trials;
    this.shown = this.lines.filter(({ trial }) => scene.picks.passes(trial));
    const parts = new Map(["rest", ...CLASSES].map((name) => [name, []]));
    const shown = new Set(this.shown);
    let best = null;
    for (const line of this.lines) {
      const { trial, path } = line;
      const name = !shown.has(line) ? "rest" : trial.median_ms === null ? "failed" : `s${slowness(trial.median_ms, scene.best_ms)}`;
      parts.get(name).push(path);
      if (name !== "rest" && trial.median_ms !== null && trial.median_ms === scene.best_ms) best = path;
    }
    for (const [name, paths] of parts) this.paths.get(name).setAttribute("d", paths.join(""));
    this.paths.get("best").setAttribute("d", best ?? "");
    this.markPicks();
    this.show(null);
  }

  /** @param {number} at @returns {number} x of an axis */
  x(at) {
    const { axes } = this.scene;
    return axes.length > 1 ? LEFT + at * (this.width - LEFT - RIGHT) / (axes.length - 1) : this.width / 2;
  }

  /** Where an axis of a range has its ends: the time axis leaves room for what failed. @param {Axis} axis */
  ends(axis) {
    const bottom = HEIGHT - BOTTOM;
    return axis.name === TIME ? [TOP, bottom - this.failedHeight] : [TOP, bottom];
  }

  /** @param {number} count @param {number} at counted from below @returns {[number, number]} middle and height of a value's band */
  band(count, at) {
    const height = (HEIGHT - BOTTOM - TOP) / count;
    return [HEIGHT - BOTTOM - (at + 0.5) * height, height];
  }

  /** @param {string} reason @returns {number} */
  failedY(reason) {
    return HEIGHT - BOTTOM - (this.reasons.length - 1 - Math.max(0, this.reasons.indexOf(reason))) * FAILED_PX;
  }

  get failedHeight() { return this.reasons.length ? 10 + this.reasons.length * FAILED_PX : 0; }

  /** @param {import("./space.js").RangeAxis} axis @param {number} value the fast end of the time axis is on top */
  rangeY(axis, value) {
    const [top, bottom] = this.ends(axis), place = placeOf(axis, value);
    return axis.name === TIME ? top + place * (bottom - top) : bottom - place * (bottom - top);
  }

  /** Within a value's band lines stand in the order of their time, so that crowds and their colours show. */
  layLines() {
    const { trials, axes } = this.scene;
    const order = [...trials].sort((a, b) => (a.median_ms ?? Infinity) - (b.median_ms ?? Infinity) || a.number - b.number);
    const lines = order.map((trial) => ({ trial, path: "", points: /** @type {([number, number]|null)[]} */ ([]) }));
    axes.forEach((axis, at) => {
      const x = this.x(at);
      if (axis.kind === "range") {
        for (const line of lines) {
          const value = axis.of(line.trial);
          line.points.push(value !== null ? [x, this.rangeY(axis, value)] : axis.name === TIME ? [x, this.failedY(line.trial.reason)] : null);
        }
        return;
      }
      const bands = new Map(axis.values.map((value, index) => [value, { index, count: 0, next: 0 }]));
      for (const line of lines) { const band = bands.get(axis.of(line.trial)); if (band) band.count += 1; }
      for (const line of lines) {
        const band = bands.get(axis.of(line.trial));
        if (!band) { line.points.push(null); continue; }
        const [middle, height] = this.band(axis.values.length, band.index);
        const share = band.count > 1 ? band.next / (band.count - 1) - 0.5 : 0;
        band.next += 1;
        line.points.push([x, middle + share * Math.min(height * SPREAD, 6 * band.count)]);
      }
    });
    for (const line of lines) line.path = pathOf(line.points);
    return lines;
  }

  // ---- what stands still while lines come ----

  build() {
    const { axes } = this.scene;
    this.element.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.element.style.height = `${HEIGHT}px`;
    this.paths = new Map(["rest", "failed", ...CLASSES.slice(0, -1).reverse(), "best", "near"].map((name) => [name, svg("path", { class: `pc-line pc-${name}` })]));
    const focused = this.element.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
    this.element.replaceChildren(...this.paths.values(), ...axes.map((axis, at) => this.buildAxis(axis, at)));
    const first = this.element.querySelector("[role=button]");
    (focused && this.element.querySelector(`[data-key="${CSS.escape(focused)}"]`) || first)?.setAttribute("tabindex", "0");
    if (focused) /** @type {any} */ (this.element.querySelector("[tabindex='0']"))?.focus();
  }

  /** @param {Axis} axis @param {number} at */
  buildAxis(axis, at) {
    const x = this.x(at), [top, bottom] = this.ends(axis);
    const group = svg("g", { class: "pc-axis", "data-axis": axis.name });
    group.append(svg("line", { x1: x, x2: x, y1: top, y2: bottom, class: "pc-rule" }), svg("text", { x, y: 16, class: "pc-title" }, axis.title));
    const hit = svg("rect", { x: x - 14, y: TOP - 6, width: 28, height: HEIGHT - TOP - BOTTOM + 12, class: "pc-hit" });
    hit.append(svg("title", {}, `Drag along ${axis.title} to pick a part of it`));
    group.append(hit, svg("rect", { x: x - 7, width: 14, y: 0, height: 0, class: "pc-brush" }));
    hit.addEventListener("pointerdown", (event) => this.drag(/** @type {PointerEvent} */ (event), axis, group));
    if (axis.kind === "values") {
      axis.values.forEach((value, index) => {
        const [y, height] = this.band(axis.values.length, index);
        if (index) group.append(svg("line", { x1: x - 5, x2: x + 5, y1: y + height / 2, y2: y + height / 2, class: "pc-part" }));
        group.append(this.button(axis.name, value, String(value), x, y, -1));
      });
    } else {
      for (const value of ticks(axis)) group.append(svg("text", { x: x + 9, y: this.rangeY(axis, value), class: "pc-tick" }, label(axis.name, value)));
      if (axis.name === TIME) for (const reason of this.reasons) group.append(this.button(FAILED, reason, `✕ ${reason}`, x, this.failedY(reason), 1));
    }
    return group;
  }

  /** A value that can be picked. @param {string} name @param {any} value @param {string} text @param {number} side -1: left of the axis */
  button(name, value, text, x, y, side) {
    const shown = text.length > 14 ? `${text.slice(0, 13)}…` : text, width = 8 + 7 * shown.length;
    const group = svg("g", { class: "pc-value", role: "button", tabindex: "-1", "aria-pressed": "false", "aria-label": `${name === FAILED ? "failed" : name} ${value}`, "data-key": `${name}=${value}` });
    group.append(svg("rect", { x: side < 0 ? x - 6 - width : x + 6, y: y - 9, width, height: 18, rx: 4 }),
      svg("text", { x: side < 0 ? x - 10 : x + 10, y, "text-anchor": side < 0 ? "end" : "start" }, shown), svg("title", {}, `Pick the trials with ${text}`));
    group.addEventListener("click", (event) => { event.stopPropagation(); this.focus(group); this.on.toggle(name, value); });
    return group;
  }

  markPicks() {
    const { picks, axes } = this.scene;
    for (const group of this.element.querySelectorAll(".pc-value")) {
      const [name, value] = group.getAttribute("data-key").split(/=(.*)/s);
      group.setAttribute("aria-pressed", String(picks.has(name, value)));
    }
    for (const axis of axes) {
      const brush = this.element.querySelector(`[data-axis="${CSS.escape(axis.name)}"] .pc-brush`), pick = picks.on.get(axis.name);
      const [a, b] = axis.kind === "range" && pick && "low" in pick
        ? [pick.low, pick.high].map((value) => this.rangeY(axis, Math.min(axis.high, Math.max(axis.low, value)))).sort((low, high) => low - high) : [0, 0];
      brush.setAttribute("y", String(a - (b > a ? 2 : 0)));
      brush.setAttribute("height", String(b > a ? b - a + 4 : 0));
    }
  }

  // ---- hands ----

  /** @param {PointerEvent} event @returns {[number, number]} in the drawing's units */
  at(event) {
    const box = this.element.getBoundingClientRect();
    return [(event.clientX - box.left) * this.width / box.width, (event.clientY - box.top) * HEIGHT / box.height];
  }

  /** @param {PointerEvent} down @param {Axis} axis @param {Element} group */
  drag(down, axis, group) {
    const target = /** @type {Element} */ (down.currentTarget), brush = group.querySelector(".pc-brush"), [, from] = this.at(down);
    let to = from;
    target.setPointerCapture(down.pointerId);
    const move = (event) => {
      [, to] = this.at(event);
      brush.setAttribute("y", String(Math.min(from, to)));
      brush.setAttribute("height", String(Math.abs(to - from)));
    };
    const up = () => {
      target.removeEventListener("pointermove", move);
      const [low, high] = [Math.min(from, to), Math.max(from, to)];
      this.on.pick(axis.name, high - low < 4 ? null : this.part(axis, low, high));
    };
    target.addEventListener("pointermove", move);
    target.addEventListener("pointerup", up, { once: true });
    target.addEventListener("pointercancel", up, { once: true });
  }

  /** What lies between two heights of an axis. @param {Axis} axis @param {number} low @param {number} high */
  part(axis, low, high) {
    if (axis.kind === "values") return { values: new Set(axis.values.filter((_, index) => { const [y] = this.band(axis.values.length, index); return y >= low && y <= high; }).map(String)) };
    const [top, bottom] = this.ends(axis);
    const values = [low, high].map((y) => Math.min(1, Math.max(0, (y - top) / (bottom - top)))).map((place) => valueAt(axis, axis.name === TIME ? place : 1 - place));
    return { low: Math.min(...values), high: Math.max(...values) };
  }

  /** @param {Element} group */
  focus(group) {
    for (const each of this.element.querySelectorAll("[role=button]")) each.setAttribute("tabindex", each === group ? "0" : "-1");
    /** @type {any} */ (group).focus();
  }

  /** Arrow keys walk over the values, Enter and Space pick, Escape gives everything back. @param {KeyboardEvent} event */
  key(event) {
    const here = /** @type {Element} */ (event.target).closest("[role=button]");
    if (!here) return;
    const axis = here.parentElement, axes = [...this.element.querySelectorAll(".pc-axis")].filter((each) => each.querySelector("[role=button]"));
    const inside = [...axis.querySelectorAll("[role=button]")], at = inside.indexOf(here), side = axes.indexOf(/** @type {any} */ (axis));
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key], across = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Enter" || event.key === " ") here.dispatchEvent(new MouseEvent("click"));
    else if (step) this.focus(inside[Math.min(inside.length - 1, Math.max(0, at + (axis.getAttribute("data-axis") === TIME ? -step : step)))]);
    else if (across) {
      const next = axes[side + across]?.querySelectorAll("[role=button]");
      if (next) this.focus(next[Math.min(next.length - 1, at)]);
    } else if (event.key === "Escape") this.on.pick("", null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {PointerEvent} event */
  hover(event) {
    if (!this.scene || event.buttons) return;
    const [x, y] = this.at(event), last = this.scene.axes.length - 1;
    const side = Math.min(last - 1, Math.max(0, Math.floor((x - LEFT) / ((this.width - LEFT - RIGHT) / Math.max(1, last)))));
    const from = this.x(side), share = (x - from) / (this.x(side + 1) - from);
    let near = null, least = NEAR_PX;
    if (share >= 0 && share <= 1) for (const line of this.shown) {
      const a = line.points[side], b = line.points[side + 1];
      if (!a || !b) continue;
      const away = Math.abs(a[1] + share * (b[1] - a[1]) - y);
      if (away < least) [near, least] = [line, away];
    }
    this.show(near, x, y);
  }

  /** @param {{trial: Trial, points: any[]}|null} line */
  show(line, x = 0, y = 0) {
    this.near = line;
    this.paths?.get("near").setAttribute("d", line ? pathOf(line.points) : "");
    this.tip.hidden = !line;
    if (!line) return;
    const { trial } = line, { best_ms } = this.scene;
    const told = trial.median_ms === null ? `failed: ${trial.reason}` : `${msAsTime(trial.median_ms)}, ${(trial.median_ms / best_ms).toFixed(2)}× the best`;
    this.tip.textContent = `Trial ${trial.number + 1}: ${told}\n${Object.entries(trial.config).map(([name, value]) => `${name}=${value}`).join(" ")}`;
    const right = x > this.width / 2;
    this.tip.style.cssText = `top: ${y + 14}px; ${right ? `right: ${this.width - x + 8}px` : `left: ${x + 12}px`}`;
  }
}

/** @param {([number, number]|null)[]} points an unknown one breaks the line */
function pathOf(points) {
  let path = "", pen = "M";
  for (const point of points) {
    if (!point) { pen = "M"; continue; }
    path += `${pen}${Math.round(point[0] * 10) / 10} ${Math.round(point[1] * 10) / 10}`; // toFixed takes five times as long
    pen = "L";
  }
  return path;
}
