// The curve of a search: every measured trial a dot, the best so far a line, the default configuration and the library levels
// with their names on them. What is slower than the band is marked at the upper edge.

import { count, msAsTime } from "../lib/units.js";
import { curve, nearest, spread, timeTicks, wholeTicks } from "./curve_model.js";
import { placeOf } from "./space.js";
import { svg } from "./svg.js";
import { configText } from "./trials.js";

/** @typedef {import("./trials.js").Trial} Trial */

const HEIGHT = 300, LEFT = 58, RIGHT = 118, TOP = 16, BOTTOM = 34, REACH = 14;
const LABEL_PX = 15; // between two labels
const CHOICES = [["over", "trials", "seconds"], ["scale", "log", "linear"], ["times", "band", "all"]]; // the first is what stands without a word in the URL
const TITLES = { over: "over", scale: "time", times: "show" };

export class Curve {
  /** @param {SVGSVGElement} element @param {HTMLElement} tip @param {HTMLElement} choices @param {(trial: Trial) => void} choose */
  constructor(element, tip, choices, choose) {
    Object.assign(this, { element, tip, choose });
    const query = new URL(location.href).searchParams;
    this.how = Object.fromEntries(CHOICES.map(([name, usual, other]) => [name, query.get(name) === other ? other : usual]));
    /** @type {{x: number, y: number, trial: Trial, best_ms: number}[]} */
    this.places = [];
    this.scene = null;
    choices.append(...CHOICES.map((choice) => this.group(...choice)));
    element.addEventListener("pointermove", (event) => this.hover(event));
    element.addEventListener("pointerleave", () => this.show(null));
    element.addEventListener("click", () => { if (this.near) this.choose(this.near.trial); });
    new ResizeObserver(() => this.scene && this.draw(...this.scene)).observe(element.parentElement);
  }

  /** Two buttons of which one is on; the URL keeps it. */
  group(name, ...values) {
    const box = Object.assign(document.createElement("span"), { className: "row", role: "group" });
    box.append(Object.assign(document.createElement("span"), { className: "muted", textContent: TITLES[name] }), ...values.map((value) => {
      const button = Object.assign(document.createElement("button"), { type: "button", className: "chip", textContent: value });
      button.setAttribute("aria-pressed", String(this.how[name] === value));
      button.addEventListener("click", () => {
        this.how[name] = value;
        for (const each of box.querySelectorAll("button")) each.setAttribute("aria-pressed", String(each === button));
        const url = new URL(location.href);
        if (value === values[0]) url.searchParams.delete(name); else url.searchParams.set(name, value);
        history.replaceState(history.state, "", url);
        if (this.scene) this.draw(...this.scene);
      });
      return button;
    }));
    return box;
  }

  /** @param {Trial[]} trials @param {any} job the state of a snapshot @param {(trial: Trial) => boolean} picked */
  draw(trials, job, picked) {
    this.scene = [trials, job, picked];
    const width = Math.max(320, this.element.clientWidth || 700), { over, scale, times } = this.how;
    const found = curve(trials, job, { over, log: scale === "log", whole: times === "all" });
    this.element.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.element.setAttribute("aria-label", describe(found, job));
    const right = width - RIGHT, bottom = HEIGHT - BOTTOM;
    const x = (value) => LEFT + (value / found.x.high) * (right - LEFT), y = (ms) => bottom - Math.min(1, placeOf(found.y, ms)) * (bottom - TOP);
    const parts = [];
    for (const value of wholeTicks(found.x.high, Math.max(3, Math.floor((right - LEFT) / 80)))) parts.push(svg("text", { x: x(value), y: bottom + 16, class: "curve-tick curve-across" }, count(value)));
    parts.push(svg("text", { x: (LEFT + right) / 2, y: HEIGHT - 4, class: "curve-title" }, over === "seconds" ? "job time (s)" : "trial"));
    parts.push(svg("line", { x1: LEFT, x2: right, y1: bottom, y2: bottom, class: "curve-axis" }));
    this.places = [];
    if (found.y) parts.push(...this.body(found, job, picked, { x, y, right, bottom }));
    else parts.push(svg("text", { x: (LEFT + right) / 2, y: HEIGHT / 2, class: "curve-title" }, "nothing measured yet"));
    this.element.replaceChildren(...parts);
  }

  body(found, job, picked, { x, y, right, bottom }) {
    const parts = [], levels = [["default", "default", job.default_ms], ["library", "library", job.library_ms]].filter(([, , ms]) => ms);
    for (const value of timeTicks(found.y)) {
      parts.push(svg("line", { x1: LEFT, x2: right, y1: y(value), y2: y(value), class: "curve-rule" }), svg("text", { x: LEFT - 6, y: y(value), class: "curve-tick curve-down" }, msAsTime(value)));
    }
    for (const [name, , ms] of levels) parts.push(svg("line", { x1: LEFT, x2: right, y1: y(ms), y2: y(ms), class: `curve-level curve-${name}` }));
    const near = [], faint = [], edge = [];
    for (const dot of found.dots) {
      const at = { x: x(dot.x), y: dot.outside ? TOP - 7 : y(dot.ms), trial: dot.trial, best_ms: dot.best_ms };
      this.places.push(at);
      if (dot.outside) edge.push(`M${at.x.toFixed(1)} ${TOP - 11}l3.5 6h-7z`);
      else (picked(dot.trial) ? near : faint).push(`M${at.x.toFixed(1)} ${at.y.toFixed(1)}h0`);
    }
    parts.push(svg("path", { d: faint.join(""), class: "curve-dots curve-faint" }), svg("path", { d: near.join(""), class: "curve-dots" }), svg("path", { d: edge.join(""), class: "curve-edge" }));
    let line = "";
    for (const dot of found.dots) line += line ? `H${x(dot.x).toFixed(1)}V${y(dot.best_ms).toFixed(1)}` : `M${x(dot.x).toFixed(1)} ${y(dot.best_ms).toFixed(1)}`;
    if (line) parts.push(svg("path", { d: line, class: "curve-best" }));
    if (found.best_ms !== null) levels.push(["best", job.ended ? "best" : "best so far", found.best_ms]);
    const tops = spread(levels.map(([, , ms]) => y(ms)), LABEL_PX), over = Math.max(0, ...tops.map((top) => top - bottom));
    levels.forEach(([name, title, ms], at) => parts.push(svg("text", { x: right + 6, y: tops[at] - over, class: `curve-label curve-${name}-text` }, `${title} ${msAsTime(ms)}`)));
    if (found.outside) parts.push(svg("text", { x: right + 6, y: TOP - 6, class: "curve-label curve-edge-text" }, `▲ ${count(found.outside)} slower`));
    return parts;
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const box = this.element.getBoundingClientRect(), at = nearest(this.places, event.clientX - box.left, event.clientY - box.top, REACH);
    this.show(at === null ? null : this.places[at]);
  }

  /** @param {{x: number, y: number, trial: Trial, best_ms: number}|null} near */
  show(near) {
    this.near = near;
    this.tip.hidden = !near;
    this.element.classList.toggle("curve-near", near !== null);
    if (!near) return;
    const { trial } = near;
    this.tip.textContent = `trial ${trial.number + 1} · ${trial.at_s.toFixed(1)} s\nmedian ${msAsTime(trial.median_ms)} · best so far ${msAsTime(near.best_ms)}\n${configText(trial.config)}`;
    const room = this.element.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(room, near.x + 10))}px`;
    this.tip.style.top = `${Math.max(0, Math.min(HEIGHT - this.tip.offsetHeight, near.y + 10))}px`;
  }
}

/** The picture in words. */
function describe(found, job) {
  if (!found.dots.length) return "Nothing measured yet.";
  const levels = [["the default configuration", job.default_ms], ["the library", job.library_ms]].filter(([, ms]) => ms).map(([name, ms]) => `${name} ${msAsTime(ms)}`);
  return `${count(found.dots.length)} measured trials, the best ${msAsTime(found.best_ms)}${levels.length ? `; ${levels.join(", ")}` : ""}${found.outside ? `; ${count(found.outside)} are slower than the axis shows` : ""}.`;
}
