// The source page: source and SASS side by side, line linked to instruction, with the stalls of what is chosen.

import { getJson } from "../lib/http.js";
import { bind } from "../lib/keys.js";
import { count, pct, si } from "../lib/units.js";
import { besideCells, chosenColumns, columnsMenu, LIVE } from "./source_columns.js";
import { detail } from "./source_detail.js";
import { margin, marginPx } from "./source_margin.js";
import { SourceModel } from "./source_model.js";
import { Pane } from "./source_pane.js";
import { Program } from "./source_program.js";

const view = /** @type {HTMLElement} */ (document.getElementById("source-view"));
const panes = /** @type {HTMLElement} */ (document.getElementById("source-panes"));
const metric = /** @type {HTMLSelectElement} */ (document.getElementById("source-metric"));

class SourceView {
  /** @param {SourceModel} model */
  constructor(model) {
    this.model = model;
    this.measure = metric.value;
    /** @type {number|null} */
    this.row = null;
    /** @type {number|null} */
    this.line = null;
    const files = model.filesByHeat(this.measure);
    this.file = files[0]?.number ?? null;
    this.marked = this.marks();
    /** @type {Program|null} comes after the code */
    this.program = null;
    /** @type {any} the baseline's counters, which come after the code */
    this.beside = null;
    const offered = [LIVE, ...model.measures.map(({ name }) => name)];
    this.chosen = chosenColumns(new URL(location.href).searchParams, offered);
    this.sass = new Pane({ label: "SASS instructions", number: "Offset", row: (index) => this.sassRow(index), onPick: (index) => this.pickRow(index), onHover: (index) => this.relate(index), onKey: (key) => this.key(key),
      margin: { px: () => marginPx(this.program?.lanes ?? 0), draw: (first, last, rowPx, chosen) => margin(this.program.crossing(first, last), this.program.lanes, first, last, rowPx, chosen) } });
    this.sass.head.append(label("SASS"), muted(`${count(model.size)} instructions · n, p: next and previous hottest`));
    this.source = files.length ? new Pane({ label: "Source lines", number: "Line", row: (index) => this.sourceRow(index), onPick: (index) => this.pickLine(this.lines[index].line), onKey: (key) => this.key(key, true) }) : null;
    panes.replaceChildren(...(this.source ? [this.source.element] : []), this.sass.element);
    if (this.source) this.source.head.append(this.fileSelect(files), muted("click a line: its instructions"));
    document.getElementById("source-menu").replaceChildren(columnsMenu([{ name: LIVE, label: "Live registers", meaning: "Registers that hold a value which is read later: found by an analysis of the SASS." }, ...model.measures], this.chosen, (names) => this.setColumns(names)));
    this.columns();
    this.sass.fill(model.size, Math.max(10, ...model.code.sass.map((/** @type {string} */ text) => text.length)));
    this.openFile(this.file);
    metric.addEventListener("change", () => this.setMeasure(metric.value));
    this.fromUrl();
  }

  /** NVIDIA's marks by row and by "file:line". */
  marks() {
    const found = new Map();
    for (const mark of this.model.found.marks) {
      const row = mark.offset === null ? undefined : this.model.rowByOffset.get(mark.offset);
      const key = row !== undefined ? `row ${row}` : mark.file !== null && mark.line ? `${mark.file}:${mark.line}` : null;
      if (key) found.set(key, [...(found.get(key) ?? []), mark]);
    }
    return found;
  }

  fileSelect(files) {
    const select = document.createElement("select");
    select.setAttribute("aria-label", "File");
    for (const file of files) select.append(Object.assign(document.createElement("option"), { value: String(file.number), textContent: file.short, title: file.name }));
    select.addEventListener("change", () => this.openFile(Number(select.value)));
    this.select = select;
    return select;
  }

  /** @param {number|null} file */
  openFile(file) {
    if (file === null || !this.source) return;
    this.file = file;
    this.select.value = String(file);
    if (this.beside) this.sayBeside();
    this.lines = this.model.lines(file);
    this.indexOfLine = new Map(this.lines.map(({ line }, index) => [line, index]));
    this.source.fill(this.lines.length, Math.max(10, ...this.lines.map(({ text }) => text?.length ?? 0)));
  }

  /** @param {number} value @param {boolean} ran */
  shown(value, ran) {
    const { adds_up: sums } = this.model.measure(this.measure);
    if (!ran && !value) return "";
    return sums ? (value ? pct(this.model.share(this.measure, value)) : "") : ran ? si(value) : "";
  }

  /** Columns of both panes: what heats, the baseline's of it, what was chosen. */
  columns() {
    const heat = this.model.measure(this.measure);
    const made = [{ name: heat.name, label: short(heat.label), title: `${heat.label}: ${heat.meaning}`, width: 62 }];
    const base = [{ name: "base", label: "Baseline", title: `${heat.label} in the baseline`, width: 62 }, { name: "change", label: "Change", title: "from the baseline; of shares in percentage points", width: 72 }];
    const more = [];
    for (const name of this.extra()) {
      const measure = name === LIVE ? null : this.model.measure(name);
      more.push(measure ? { name, label: short(measure.label), title: `${measure.label}: ${measure.meaning}`, width: 68 }
        : { name, label: "Live regs", title: "Live registers: those that hold a value which is read later. Of a line: the most of its instructions.", width: 62 });
    }
    this.sass.setColumns([...made, ...(this.hasBase() ? base : []), ...more]);
    this.source?.setColumns([...made, ...(this.beside ? base : []), ...more]);
  }

  /** Chosen columns beside the one that heats. */
  extra() { return this.chosen.filter((name) => name !== this.measure && (name !== LIVE || this.program?.known)); }

  /** Whether the baseline's instructions are these. */
  hasBase() { return this.beside !== null && !this.beside.instructions_missing; }

  /** @param {string[]} names */
  setColumns(names) {
    this.chosen = names;
    this.isChosenHere = true;
    this.columns();
    this.changed();
  }

  /** @param {Program} program */
  setProgram(program) {
    this.program = program;
    this.columns();
    if (this.row !== null) this.changed();
    if (!program.known) document.getElementById("source-menu").append(muted(`Live registers: unknown, ${program.found.missing}`));
  }

  /** @param {any} beside */
  setBeside(beside) {
    this.beside = beside;
    this.columns();
    this.sayBeside();
  }

  /** What of the baseline is missing here, and why. */
  sayBeside() {
    const { beside } = this, said = [];
    if (beside.instructions_missing) said.push(`No instruction of the baseline beside these: ${beside.instructions_missing}.`);
    const why = this.source && beside.lines_missing[String(this.file)];
    if (why) said.push(`No line either: ${why}.`);
    else if (this.source && beside.launch !== null) said.push(`Lines: launch #${beside.launch} of ${beside.profile}.`);
    document.getElementById("source-beside").textContent = said.join(" ");
  }

  /** Cells of the chosen columns. @param {number[]} rows @param {"row"|"line"} of @param {boolean} ran */
  cells(rows, of, ran) {
    return this.extra().map((name) => {
      if (name === LIVE) {
        const live = this.program.mostLive(rows);
        return { text: live === null ? "" : String(live), heat: 0.5 * this.program.pressure(live) ** 3, title: rows.length === 1 ? this.program.words(rows[0]) : live === null ? "" : `the most that is live at one of its ${rows.length} instructions` };
      }
      const value = rows.length ? this.model.over(name, rows) : 0;
      return { text: ran && rows.length ? si(value) : "", heat: rows.length ? 0.5 * this.model.heat(name, value, of, ran) : 0, title: `${this.model.measure(name).label}: ${count(value)}` };
    });
  }

  sassRow(index) {
    const { model, measure, beside } = this;
    const value = model.values(measure)[index], ran = model.ran(index);
    const cells = [{ text: this.shown(value, ran), heat: model.heat(measure, value, "row", ran), title: `${model.measure(measure).label}: ${count(value)}` }];
    if (this.hasBase()) cells.push(...besideCells(model, measure, value, beside.instructions[measure]?.[index], beside.totals[measure], "the baseline’s report does not hold this"));
    return { cells: [...cells, ...this.cells([index], "row", ran)], number: model.code.offset[index].toString(16).padStart(4, "0"),
      text: model.code.sass[index], mark: this.marked.get(`row ${index}`)?.[0].rule };
  }

  /** Marks who wrote what a row reads, and who reads what it writes: of the row under the pointer, else the chosen one. @param {number} index */
  relate(index) {
    const row = index >= 0 ? index : this.row;
    const found = new Map();
    if (row !== null && this.program) {
      for (const each of this.program.readers(row)) found.set(each, "reader");
      for (const each of this.program.writers(row)) found.set(each, "writer");
      found.delete(row);
    }
    this.sass.relate(found);
  }

  sourceRow(index) {
    const { line, text } = this.lines[index];
    const rows = this.model.rowsOf(this.file, line);
    const value = rows.length ? this.model.over(this.measure, rows) : 0;
    const ran = rows.some((row) => this.model.ran(row));
    const title = rows.length ? `${count(rows.length)} instructions · ${this.model.measure(this.measure).label}: ${count(value)}` : "no instruction belongs to this line";
    const cells = [{ text: rows.length ? this.shown(value, ran) : "", heat: rows.length ? this.model.heat(this.measure, value, "line", ran) : 0, title }];
    if (this.beside) cells.push(...rows.length ? this.besideLine(line, value) : [{ text: "" }, { text: "" }]);
    return { cells: [...cells, ...this.cells(rows, "line", ran)], number: String(line), text: text ?? "(text not in the report)",
      mark: this.marked.get(`${this.file}:${line}`)?.[0].rule, title };
  }

  /** @param {number} line @param {number} value of what heats */
  besideLine(line, value) {
    const { beside, measure } = this;
    const why = beside.lines_missing[String(this.file)] ?? (beside.launch === null ? beside.instructions_missing : "this line is not in the baseline’s source");
    return besideCells(this.model, measure, value, beside.lines[`${this.file}:${line}`]?.[measure], beside.totals[measure], why);
  }

  /** @param {number} row */
  pickRow(row) {
    this.row = row;
    const file = this.model.code.file[row];
    this.line = this.model.code.line[row];
    this.sass.select(row, this.line === null ? [] : this.model.rowsOf(file, this.line));
    this.sass.show(row);
    if (file !== null && this.source) {
      if (file !== this.file) this.openFile(file);
      const index = this.indexOfLine.get(this.line) ?? -1;
      this.source.select(index);
      if (index >= 0) this.source.show(index);
    }
    this.changed();
  }

  /** @param {number} line of the file that is open */
  pickLine(line) {
    const rows = this.model.rowsOf(this.file, line);
    this.row = null;
    this.line = line;
    const index = this.indexOfLine.get(line) ?? -1;
    this.source.select(index);
    if (index >= 0) this.source.show(index);
    this.sass.select(-1, rows);
    if (rows.length) this.sass.show(this.model.hottestOf(rows, this.measure));
    this.changed();
  }

  /** n and p come from lib/keys.js, the rest from the pane that has the focus. @param {string} key @param {boolean} lines */
  key(key, lines = false) {
    if (key === "n" || key === "p") {
      const step = key === "n" ? 1 : -1;
      const next = lines ? SourceModel.next(this.model.hottestLines(this.measure, this.file), this.line, step) : SourceModel.next(this.model.hottest(this.measure), this.row, step);
      if (next !== null) lines ? this.pickLine(next) : this.pickRow(next);
      return true;
    }
    if (key === "Enter" && this.source) {
      (lines ? this.sass : this.source).list.focus();
      return true;
    }
    return false;
  }

  /** @param {string} name */
  setMeasure(name) {
    this.measure = name;
    document.getElementById("source-hint").textContent = this.model.measure(name).meaning;
    this.columns();
    this.changed();
  }

  changed() {
    const rows = this.row !== null ? [this.row] : this.line !== null && this.file !== null ? this.model.rowsOf(this.file, this.line) : [];
    const marks = this.row !== null ? this.marked.get(`row ${this.row}`) : this.marked.get(`${this.file}:${this.line}`);
    detail(/** @type {HTMLElement} */ (document.getElementById("source-detail")), this.model, { row: this.row, file: this.file, line: this.line, rows, marks: marks ?? [], program: this.program }, (row) => this.pickRow(row));
    this.relate(-1);
    const url = new URL(location.href);
    for (const name of ["file", "line", "at"]) url.searchParams.delete(name);
    url.searchParams.set("metric", this.measure);
    if (this.isChosenHere) url.searchParams.set("columns", this.chosen.join(","));
    if (this.row !== null) url.searchParams.set("at", String(this.model.code.offset[this.row]));
    else if (this.line !== null) { url.searchParams.set("file", String(this.file)); url.searchParams.set("line", String(this.line)); }
    history.replaceState(history.state, "", url);
  }

  /** What the address names; else the hottest line, or instruction. */
  fromUrl() {
    const asked = new URL(location.href).searchParams;
    const row = asked.has("at") ? this.model.rowByOffset.get(Number(asked.get("at"))) : undefined;
    if (row !== undefined) { this.pickRow(row); return; }
    const file = Number(asked.get("file") ?? this.file), line = Number(asked.get("line"));
    if (this.source && asked.has("line") && this.model.files[file]) { this.openFile(file); this.pickLine(line); return; }
    const hot = this.source ? this.model.hottestLines(this.measure, this.file)[0] : undefined;
    if (hot !== undefined) this.pickLine(hot);
    else { const first = this.model.hottest(this.measure)[0]; if (first !== undefined) this.pickRow(first); }
  }
}

/** A measure's name in a narrow heading. @param {string} text */
function short(text) {
  return text.replace("Stall samples", "Samples").replace("Warp instructions", "Warp inst").replace("Thread instructions", "Thread inst").replace("Threads per warp instruction", "Threads").replace(", excessive", " ✕").replace("Global ", "Gl. ");
}

/** @param {string} text */
function label(text) { return Object.assign(document.createElement("b"), { textContent: text }); }
/** @param {string} text */
function muted(text) { return Object.assign(document.createElement("span"), { className: "muted", textContent: text }); }

document.getElementById("source-launch")?.addEventListener("change", () => {
  const url = new URL(location.href);
  for (const name of ["file", "line", "at"]) url.searchParams.delete(name);
  url.searchParams.set("launch", /** @type {HTMLSelectElement} */ (document.getElementById("source-launch")).value);
  location.assign(url);
});
try {
  const shown = new SourceView(new SourceModel(await getJson(view.dataset.url)));
  const byLine = () => shown.source !== null && document.activeElement !== shown.sass.list;
  bind("n", "the next hottest line (in the SASS pane: instruction)", () => shown.key("n", byLine()));
  bind("p", "the one before", () => shown.key("p", byLine()));
  bind("↑ ↓", "line by line, in the pane that has the focus; Page Up, Page Down, Home, End too");
  bind("Enter", "to the other pane");
  view.dataset.state = "ready";
  const [program, beside] = await Promise.all([getJson(view.dataset.program), view.dataset.beside ? getJson(view.dataset.beside) : null]);
  shown.setProgram(new Program(program));
  if (beside) shown.setBeside(beside);
  view.dataset.state = "whole";
} catch (error) {
  panes.append(Object.assign(document.createElement("p"), { className: "notice notice-error", textContent: `The code could not be fetched: ${error.message}` }));
}
