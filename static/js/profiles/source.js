// The source page: source and SASS side by side, line linked to instruction, with the stalls of what is chosen.

import { getJson } from "../lib/http.js";
import { bind } from "../lib/keys.js";
import { count, pct, si } from "../lib/units.js";
import { detail } from "./source_detail.js";
import { SourceModel } from "./source_model.js";
import { Pane } from "./source_pane.js";

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
    this.sass = new Pane({ label: "SASS instructions", row: (index) => this.sassRow(index), onPick: (index) => this.pickRow(index), onKey: (key) => this.key(key) });
    this.sass.head.append(label("SASS"), muted(`${count(model.size)} instructions · n, p: next and previous hottest`));
    this.source = files.length ? new Pane({ label: "Source lines", row: (index) => this.sourceRow(index), onPick: (index) => this.pickLine(this.lines[index].line), onKey: (key) => this.key(key, true) }) : null;
    panes.replaceChildren(...(this.source ? [this.source.element] : []), this.sass.element);
    if (this.source) this.source.head.append(this.fileSelect(files), muted("click a line: its instructions"));
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

  sassRow(index) {
    const { model, measure } = this;
    const value = model.values(measure)[index];
    return { share: this.shown(value, model.ran(index)), heat: model.heat(measure, value, "row", model.ran(index)), number: model.code.offset[index].toString(16).padStart(4, "0"),
      text: model.code.sass[index], mark: this.marked.get(`row ${index}`)?.[0].rule, title: `${model.measure(measure).label}: ${count(value)}` };
  }

  sourceRow(index) {
    const { line, text } = this.lines[index];
    const rows = this.model.rowsOf(this.file, line);
    const value = rows.length ? this.model.over(this.measure, rows) : 0;
    const ran = rows.some((row) => this.model.ran(row));
    return { share: rows.length ? this.shown(value, ran) : "", heat: rows.length ? this.model.heat(this.measure, value, "line", ran) : 0, number: String(line), text: text ?? "(text not in the report)",
      mark: this.marked.get(`${this.file}:${line}`)?.[0].rule, title: rows.length ? `${count(rows.length)} instructions · ${this.model.measure(this.measure).label}: ${count(value)}` : "no instruction belongs to this line" };
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
    this.sass.redraw();
    this.source?.redraw();
    this.changed();
  }

  changed() {
    const rows = this.row !== null ? [this.row] : this.line !== null && this.file !== null ? this.model.rowsOf(this.file, this.line) : [];
    const marks = this.row !== null ? this.marked.get(`row ${this.row}`) : this.marked.get(`${this.file}:${this.line}`);
    detail(/** @type {HTMLElement} */ (document.getElementById("source-detail")), this.model, { row: this.row, file: this.file, line: this.line, rows, marks: marks ?? [] }, (row) => this.pickRow(row));
    const url = new URL(location.href);
    for (const name of ["file", "line", "at"]) url.searchParams.delete(name);
    url.searchParams.set("metric", this.measure);
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
} catch (error) {
  panes.append(Object.assign(document.createElement("p"), { className: "notice notice-error", textContent: `The code could not be fetched: ${error.message}` }));
}
