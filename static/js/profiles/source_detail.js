// What is chosen, in numbers: warp states with their usual fixes, counters, PTX, NVIDIA's marks.

import { count, pct, si } from "../lib/units.js";

/** @param {string} name @param {Record<string, any>} properties @param {(Node|string)[]} children */
function node(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/**
 * @param {HTMLElement} target @param {import("./source_model.js").SourceModel} model
 * @param {{row: number|null, file: number|null, line: number|null, rows: number[], marks: any[], program: import("./source_program.js").Program|null}} chosen
 * @param {(row: number) => void} go
 */
export function detail(target, model, chosen, go) {
  if (!chosen.rows.length) {
    target.replaceChildren(node("p", { className: "muted", textContent: chosen.line === null ? "Choose a line or an instruction." : `No instruction belongs to line ${chosen.line}.` }));
    return;
  }
  const file = chosen.file === null ? null : model.files[chosen.file];
  const title = chosen.row !== null ? `${model.code.offset[chosen.row].toString(16).padStart(4, "0")}  ${model.code.sass[chosen.row]}` : `${file?.short ?? ""}:${chosen.line} — ${count(chosen.rows.length)} instructions`;
  target.replaceChildren(node("h3", { textContent: title }), node("div", { className: "cols-2" }, states(model, chosen), counters(model, chosen, go)));
}

/** Samples by warp state. */
function states(model, chosen) {
  const found = model.statesOf(chosen.rows);
  const total = found.reduce((sum, { samples }) => sum + samples, 0);
  if (!total) return node("p", { className: "muted", textContent: model.states.length ? "No sample stands here." : "The report has no stall samples." });
  const rows = found.slice(0, 6).map(({ state, samples }) => {
    const bar = node("i");
    bar.style.width = `${100 * samples / total}%`;
    return node("tr", {}, node("td", {}, node("b", { textContent: state.title })), node("td", {}, node("span", { className: "meter" }, bar)),
      node("td", { className: "num", textContent: pct(100 * samples / total) }), node("td", { className: "num", textContent: count(samples) }), node("td", { className: "muted", textContent: `${state.meaning} ${state.fix}` }));
  });
  const head = node("tr", {}, ...["Warps here are", "", "Share", "Samples", "What it means, usual fix"].map((text, at) => node(text ? "th" : "td", { textContent: text, className: at === 2 || at === 3 ? "num" : "" })));
  return node("table", { className: "plain states" }, node("thead", {}, head), node("tbody", {}, ...rows));
}

const LISTED = 8;

/** Buttons to rows. @param {import("./source_model.js").SourceModel} model @param {number[]} rows @param {(row: number) => void} go @param {string} none */
function rowLinks(model, rows, go, none) {
  if (!rows.length) return [node("span", { className: "muted", textContent: none })];
  const made = rows.slice(0, LISTED).map((row) => {
    const link = node("button", { type: "button", className: "btn btn-small mono", textContent: `${model.code.offset[row].toString(16).padStart(4, "0")} ${model.code.sass[row]}` });
    link.addEventListener("click", () => go(row));
    return link;
  });
  return rows.length > LISTED ? [...made, node("span", { className: "muted", textContent: `${count(rows.length - LISTED)} more` })] : made;
}

/** Counters of what is chosen, and where an instruction comes from and waits for. */
function counters(model, chosen, go) {
  const list = node("dl", { className: "kv" });
  const put = (/** @type {string} */ name, /** @type {(Node|string)[]} */ ...value) => list.append(node("dt", { textContent: name }), node("dd", {}, ...value));
  for (const measure of model.measures) {
    const value = model.over(measure.name, chosen.rows);
    if (!value) continue;
    const part = measure.adds_up ? ` (${pct(model.share(measure.name, value))} of the launch)` : " of 32";
    put(measure.label, node("span", { className: "num", title: String(value), textContent: measure.adds_up ? count(value) : si(value) }), node("span", { className: "muted", textContent: part }));
  }
  const row = chosen.row ?? model.hottestOf(chosen.rows, model.found.values.samples ? "samples" : "inst_executed");
  const waits = model.found.waits[row];
  if (waits !== undefined) {
    const link = node("button", { type: "button", className: "btn btn-small mono", textContent: `${model.code.offset[waits].toString(16).padStart(4, "0")} ${model.code.sass[waits]}` });
    link.addEventListener("click", () => go(waits));
    put(chosen.row === null ? "Its hottest likely waits for" : "Likely waits for", link);
  }
  if (chosen.row === null) {
    const link = node("button", { type: "button", className: "btn btn-small mono", textContent: `${model.code.offset[row].toString(16).padStart(4, "0")} ${model.code.sass[row]}` });
    link.addEventListener("click", () => go(row));
    put("Hottest instruction", link);
  } else {
    const file = model.code.file[row];
    if (file !== null) put("Line", node("span", { className: "mono", textContent: `${model.files[file]?.name ?? "?"}:${model.code.line[row]}` }));
    if (chosen.program?.known) {
      put("Live registers", chosen.program.words(row));
      put("◀ Written by", ...rowLinks(model, chosen.program.writers(row), go, "nothing: it reads no register that was set before"));
      put("▶ Read by", ...rowLinks(model, chosen.program.readers(row), go, "nothing: it writes no register that is read"));
    }
    const ptx = model.found.ptx[model.code.ptx[row]];
    if (ptx) put("PTX", node("code", { textContent: ptx }));
  }
  for (const mark of chosen.marks) put(`NVIDIA: ${mark.rule}`, mark.text);
  return list;
}
