// The flame graph of an area: which stacks, in which order, search, and the sandwich of callers and callees of one name.

import { ns, pct } from "../../lib/units.js";
import { copyButton, el } from "../widgets/dom.js";
import { FlameGraph, pathText } from "./flame_graph.js";
import { build } from "../model/flame_model.js";
import { exactNs } from "../model/viewport.js";

const MODES = [["cpu", "Stacks of threads"], ["gpu", "GPU time by launching stack"]];
const ORDERS = [["heavy", "Left heavy"], ["time", "In order of time"], ["sandwich", "Sandwich"]];

/**
 * @param {object} answer of GET …/selection/flame/ @param {{state: object, change: (flame: object) => void, paint: () => object,
 *   trackName: (track: number) => string, find: (name: string) => void}} context change: another question is asked
 * @returns {HTMLElement & {repaint: () => void}}
 */
export function flameView(answer, context) {
  const { state } = context, said = el("output", { class: "tl-told", "aria-live": "polite" }), found = el("output", { class: "muted", "aria-live": "polite" });
  const body = el("div", { class: "tl-flame-body" });
  let node = null, graphs = [];
  const tell = (text, at) => { said.textContent = text || total(answer); said.title = at ? pathText(at) : ""; node = at ?? node; };
  const pick = (at) => { if (at.label >= 0) context.change({ ...state, order: "sandwich", focus: at.label }); };
  const options = (label, more = {}) => ({ label, order: state.order, tell, paint: context.paint, pick, ...more });
  const tree = (columns) => build(columns, answer, context.trackName);
  if (answer.callers) {
    graphs = [new FlameGraph(tree(answer.callers), options("Callers", { upwards: true })), new FlameGraph(tree(answer.callees), options("Callees"))];
    body.append(el("h3", {}, "Callers"), graphs[0].canvas, el("h3", {}, "Callees"), graphs[1].canvas);
  } else if (state.order === "sandwich") body.append(hotTable(answer, (label) => context.change({ ...state, focus: label })));
  else if (answer.total_ns > 0) {
    graphs = [new FlameGraph(tree(answer.tree), options(`Flame graph, ${total(answer)}`))];
    body.append(graphs[0].canvas);
  } else body.append(el("p", { class: "muted tl-tab-note" }, answer.mode === "gpu" ? "No GPU work here." : "No slices of threads here: choose tracks of threads, or GPU time by launching stack."));
  const query = el("input", { type: "search", class: "tl-flame-search", placeholder: "Search boxes", maxlength: 200, "aria-label": "Search boxes of the flame graph", oninput: () => { found.textContent = graphs.map((graph) => graph.search(query.value)).join(" · "); } });
  tell("", null);
  const element = el("div", { class: "tl-flame-view" },
    el("div", { class: "tl-tab-bar" },
      choice("Stacks", MODES, answer.mode, (mode) => context.change({ ...state, mode, focus: null })),
      choice("Order", ORDERS, state.order, (order) => context.change({ ...state, order, focus: null })),
      el("label", { class: "tl-check" }, el("input", { type: "checkbox", checked: state.apart, onchange: (event) => context.change({ ...state, apart: event.target.checked, focus: null }) }), "Threads apart"),
      answer.callers ? el("span", { class: "chip mono" }, answer.names[answer.focus]) : null,
      answer.callers ? el("button", { class: "btn btn-small", type: "button", onclick: () => context.change({ ...state, focus: null }) }, "All names") : null,
      query, found, el("span", { class: "push" }),
      el("button", { class: "btn btn-small", type: "button", onclick: () => graphs.forEach((graph) => graph.zoom(graph.root)) }, "Zoom out"),
      el("button", { class: "btn btn-small", type: "button", title: "Search the name of the box on the timeline", onclick: () => node?.label >= 0 && context.find(node.name) }, "Find on the timeline"),
      copyButton("Copy path", () => (node ? pathText(node) : ""))),
    body, el("p", { class: "tl-flame-told" }, said, limits(answer)));
  return Object.assign(element, { repaint: () => graphs.forEach((graph) => graph.repaint()), graphs });
}

const total = (answer) => `${ns(answer.total_ns)} = ${exactNs(answer.total_ns)} ${answer.mode === "gpu" ? "of GPU time" : "of thread time"}`;

/** What is not drawn one by one is said. */
function limits({ tree, callers, callees }) {
  const parts = [tree, callers, callees].filter(Boolean), nodes = parts.reduce((sum, part) => sum + part.nodes, 0), sent = parts.reduce((sum, part) => sum + part.label.length, 0);
  const lumped = parts.reduce((sum, part) => sum + part.lumped, 0);
  if (nodes <= sent && !lumped) return null;
  return el("span", { class: "muted" }, ` The ${sent.toLocaleString("en-US")} paths of most time of ${nodes.toLocaleString("en-US")}${lumped ? ` and ${lumped.toLocaleString("en-US")} more` : ""}; the others are in the boxes “(smaller ones)”.`);
}

function choice(label, items, value, change) {
  const select = el("select", { "aria-label": label, onchange: () => change(select.value) }, items.map(([key, title]) => el("option", { value: key, selected: key === value }, title)));
  return select;
}

/** Names by their own time, to choose one for the sandwich. */
function hotTable({ hot, names, total_ns: whole }, choose) {
  return el("div", { class: "table-scroll" }, el("table", { class: "plain tl-hot" },
    el("thead", {}, el("tr", {}, ["Name", "Itself", "With callees", "Slices"].map((title, i) => el("th", { scope: "col", class: i ? "num" : null }, title)))),
    el("tbody", {}, hot.map((row) => el("tr", {},
      el("td", { class: "name" }, el("button", { class: "tl-jump mono", type: "button", title: `Callers and callees of ${names[row.label]}`, onclick: () => choose(row.label) }, names[row.label])),
      el("td", { class: "num", title: exactNs(row.self) }, `${ns(row.self)} (${pct(whole ? (100 * row.self) / whole : 0)})`),
      el("td", { class: "num", title: exactNs(row.total) }, ns(row.total)), el("td", { class: "num" }, row.count.toLocaleString("en-US")))))));
}
