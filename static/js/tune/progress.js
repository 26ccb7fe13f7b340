// The Bokeh figure of a search (tuner/jobs/progress_charts.py): fed from the rows of a snapshot, and from each message of a worker as
// it comes, without anything else of the page being drawn again. Arrow keys walk its points, Enter finds the row of one.

import { embed, source } from "../lib/figures.js";
import { getJson } from "../lib/http.js";
import { msAsTime } from "../lib/units.js";
import { describe, KINDS, LEVELS, merged, progress, row } from "./progress_model.js";

/** @typedef {import("./trials.js").Trial} Trial */

const CHOICES = [["over", "trials", "seconds"], ["scale", "log", "linear"], ["times", "band", "all"]]; // the first is what stands without a word in the URL
const TITLES = { over: "over", scale: "time", times: "show" };

export class Progress {
  /** @param {HTMLElement} element with data-figure and data-url @param {HTMLElement} choices @param {HTMLElement} said @param {(trial: Trial) => void} choose */
  constructor(element, choices, said, choose) {
    Object.assign(this, { element, said, choose });
    const query = new URL(location.href).searchParams;
    this.how = Object.fromEntries(CHOICES.map(([name, usual, other]) => [name, query.get(name) === other ? other : usual]));
    /** @type {Map<number, Trial>} */
    this.news = new Map();
    this.scene = null; // trials, state and picks of the last snapshot
    this.plot = null; // once Bokeh stands
    this.walked = -1; // the point that the keys are on, of `order`
    this.byKeys = false;
    choices.append(...CHOICES.map((choice) => this.group(...choice)));
    element.addEventListener("keydown", (event) => this.press(event));
    source("progress-plot").then((plot) => this.stand(plot));
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
        if (name === "times") this.feed(); else this.remake();
      });
      return button;
    }));
    return box;
  }

  /** Other axes are another figure of the same maker. */
  async remake() {
    const item = await getJson(`${this.element.dataset.url}?over=${this.how.over}&scale=${this.how.scale}`);
    this.plot = null; // what comes meanwhile is fed to the new one
    const view = await embed(this.element, item);
    if (view) this.stand(view.model);
  }

  /** @param {any} plot a figure that was just drawn and is empty */
  stand(plot) {
    this.plot = plot;
    this.fed = { points: {} };
    for (const kind of KINDS) {
      const { selected } = this.named(kind);
      selected.properties.indices.change.connect(() => this.tapped(kind, selected.indices));
    }
    this.feed();
  }

  /** @param {string} name */
  named(name) {
    return this.plot.document.get_model_by_name(`progress-${name}`);
  }

  /** A snapshot: the truth. @param {Trial[]} trials @param {any} state @param {(trial: Trial) => boolean} picked */
  draw(trials, state, picked) {
    const last = trials.length ? trials[trials.length - 1].number : -1;
    for (const number of this.news.keys()) if (number <= last) this.news.delete(number);
    this.scene = [trials, state, picked];
    this.feed();
  }

  /** What a worker has just stored; the next snapshot holds it as well. @param {Trial[]} trials */
  add(trials) {
    for (const trial of trials) this.news.set(trial.number, trial);
    this.feed();
  }

  feed() {
    if (!this.plot?.document || !this.scene) return;
    const [rows, state, picked] = this.scene, { over, scale, times } = this.how, height_px = this.plot.inner_height || 220;
    const found = progress(merged(rows, this.news), state, { over, log: scale === "log", whole: times === "all" }, picked, height_px);
    this.found = found;
    for (const kind of KINDS) fill(this.named(kind), found.points[kind]);
    for (const name of LEVELS) fill(this.named(name), { us: found.levels[name] });
    fill(this.named("best"), found.best);
    fill(this.named("labels"), found.labels);
    this.set("x_range", found.x);
    if (found.y) this.set("y_range", found.y);
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", `${describe(found, state)} Arrow keys walk the trials, Enter finds the row.`);
    this.element.dataset.points = String(found.order.length);
  }

  /** An axis follows the search until somebody moves it; the tool that resets it brings it back. @param {"x_range"|"y_range"} name */
  set(name, { low, high }) {
    const axis = this.plot[name], before = this.fed[name];
    const own = !before || (axis.start === before.low && axis.end === before.high) || (axis.start === axis.reset_start && axis.end === axis.reset_end);
    this.fed[name] = { low, high };
    axis.setv(own ? { start: low, end: high, reset_start: low, reset_end: high } : { reset_start: low, reset_end: high });
  }

  /** A click on a point. @param {string} kind @param {number[]} indices */
  tapped(kind, [at]) {
    if (this.byKeys || at === undefined) return;
    const point = this.found.order.find((each) => each.kind === kind && each.at === at);
    if (point) this.choose(point.trial);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const order = this.found?.order ?? [], step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter" && order[this.walked]) this.choose(order[this.walked].trial);
    else if (event.key === "Escape") this.walk(-1);
    else if (step && order.length) this.walk(Math.max(0, Math.min(order.length - 1, this.walked < 0 && step < 0 ? order.length - 1 : this.walked + step)));
    else return;
    event.preventDefault();
  }

  /** @param {number} to a place of `order`; -1: none */
  walk(to) {
    if (!this.plot?.document) return;
    this.walked = to;
    const point = this.found.order[to];
    this.byKeys = true;
    for (const kind of KINDS) this.named(kind).selected.indices = point?.kind === kind ? [point.at] : [];
    this.byKeys = false;
    if (!point) { this.said.textContent = ""; return; }
    const told = row(point.trial, point.kind, null, true);
    this.said.textContent = `Trial ${told.trial}, ${told.outcome}${point.trial.median_ms === null ? "" : `: ${msAsTime(point.trial.median_ms)} (${told.interval})`} · ${told.config}`;
  }
}

/** What a source holds already stays: rows that came since are streamed, so that a point costs what it costs. @param {any} data @param {Record<string, any[]>} next */
function fill(data, next) {
  const names = Object.keys(next), before = data.data, had = before[names[0]].length, now = next[names[0]].length;
  const kept = had <= now && names.every((name) => { for (let at = 0; at < had; at += 1) if (!Object.is(before[name][at], next[name][at])) return false; return true; });
  if (kept && had === now) return;
  if (kept && had) data.stream(Object.fromEntries(names.map((name) => [name, next[name].slice(had)])));
  else data.data = next;
}
