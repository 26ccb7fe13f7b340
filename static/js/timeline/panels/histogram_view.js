// The histogram of durations in the panel: brush with the mouse or Shift and the arrow keys, Enter chooses those slices.

import { count, ns } from "../../lib/units.js";
import { el } from "../widgets/dom.js";
import { paintHistogram } from "../draw/histogram.js";
import { brushed, classAt, classesOf, rangeOf } from "../model/histogram.js";
import { exactNs } from "../model/viewport.js";

const NUMBERS = [["count", "Slices", count], ["whole_ns", "Time", ns], ["mean_ns", "Mean", ns], ["min_ns", "Min", ns], ["p50_ns", "p50", ns], ["p95_ns", "p95", ns], ["max_ns", "Max", ns]];

/**
 * @param {object} answer of GET …/selection/histogram/ @param {{paint: () => object, range: ?[number, number], title: string,
 *   choose: (range: ?[number, number]) => void}} context paint: colours and font of now
 * @returns {HTMLElement}
 */
export function histogramView(answer, context) {
  const classes = answer.histogram;
  if (!classes.length) return el("p", { class: "muted tl-tab-note" }, "No slice here: nothing to draw.");
  const view = { classes, what: "count", brush: classesOf(classes, context.range), cursor: -1 };
  const canvas = el("canvas", { class: "tl-histogram", tabindex: 0, role: "img", "aria-label": `Durations of ${context.title}: arrow keys go from class to class, Shift extends, Enter chooses the slices, Escape clears` });
  const told = el("output", { class: "tl-told num", "aria-live": "polite" });
  const choose = el("button", { class: "btn btn-small btn-primary", type: "button", onclick: () => context.choose(range()) }, "Choose these slices");
  const clear = el("button", { class: "btn btn-small", type: "button", onclick: () => { view.brush = null; change(); context.choose(null); } }, "All durations");
  const what = el("select", { "aria-label": "Height of a bar", onchange: () => { view.what = what.value; change(); } },
    el("option", { value: "count" }, "Slices per class"), el("option", { value: "total_ns" }, "Time per class"));
  const range = () => (view.brush ? rangeOf(classes, ...view.brush) : null);
  const words = (at) => {
    const { from_ns: from, to_ns: to, count: n, total_ns: time } = classes[at];
    return `${ns(from)} – ${ns(to)}: ${n.toLocaleString("en-US")} slices, ${exactNs(time)}`;
  };
  const change = () => {
    const held = view.brush && brushed(classes, view.brush);
    told.textContent = held ? `${exactNs(range()[0])} to ${exactNs(range()[1])}: ${held.count.toLocaleString("en-US")} slices, ${exactNs(held.total_ns)}` : view.cursor >= 0 ? words(view.cursor) : "Drag over bars to choose slices by their duration.";
    choose.disabled = !held;
    clear.disabled = !held && !context.range;
    paintHistogram(canvas, view, context.paint());
  };
  brushing(canvas, view, change);
  canvas.addEventListener("keydown", (event) => key(event, view, change, context, range));
  new ResizeObserver(change).observe(canvas);
  return el("div", { class: "tl-histogram-view" },
    el("div", { class: "tl-tab-bar" }, what, ...NUMBERS.filter(([name]) => answer[name] !== undefined).map(([name, title, show]) => el("span", { class: "chip" }, title, " ", el("b", { class: "num", title: name === "count" ? String(answer.count) : exactNs(answer[name]) }, show(answer[name]))))),
    canvas, el("div", { class: "tl-tab-bar" }, told, el("span", { class: "push" }), choose, clear));
}

function brushing(canvas, view, change) {
  const at = (event) => classAt(view.classes, canvas.clientWidth, event.clientX - canvas.getBoundingClientRect().left);
  canvas.addEventListener("mousedown", (event) => {
    const first = at(event);
    const move = (moved) => { view.brush = [first, at(moved)]; change(); };
    const end = () => { removeEventListener("mousemove", move); removeEventListener("mouseup", end); };
    addEventListener("mousemove", move);
    addEventListener("mouseup", end);
    view.brush = [first, first];
    view.cursor = first;
    change();
  });
  canvas.addEventListener("mousemove", (event) => { if (!event.buttons) { view.cursor = at(event); change(); } });
  canvas.addEventListener("mouseleave", () => { view.cursor = -1; change(); });
}

function key(event, view, change, context, range) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step) {
    const from = view.cursor < 0 ? (step > 0 ? -1 : view.classes.length) : view.cursor;
    view.cursor = Math.min(Math.max(from + step, 0), view.classes.length - 1);
    if (event.shiftKey) view.brush = [view.brush?.[0] ?? Math.max(from, 0), view.cursor];
    else view.brush = [view.cursor, view.cursor];
  } else if (event.key === "Enter" && view.brush) context.choose(range());
  else if (event.key === "Escape" && view.brush) view.brush = null;
  else return;
  event.preventDefault();
  event.stopPropagation();
  change();
}
