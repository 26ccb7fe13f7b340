// Rows of a query as a table, as a chart and as a link to the timeline.

import { embed } from "../lib/figures.js";
import { bytes, ns, pct } from "../lib/units.js";

const FORMATS = [[/(^|_)ns$/, ns], [/(^|_)bytes$/, bytes], [/(^|_)pct$/, pct]];
const WIDE = 60;        // columns; more would be no table any more

/** What a column's numbers are, by its name: total_ns, smem_bytes, share_pct. */
export function formatOf(name, kind) {
  if (kind !== "number") return null;
  const found = FORMATS.find(([pattern]) => pattern.test(name));
  return found ? found[1] : (value) => (value === null ? "—" : typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(6))) : Number(value).toLocaleString("en"));
}

/** Can rows with these columns be drawn over time? @param {string[]} names @returns {"slices"|"counter"|null} */
export function trackKind(names) {
  const has = (...wanted) => wanted.every((name) => names.includes(name));
  return has("start_ns", "dur_ns") ? "slices" : has("time_ns", "value") ? "counter" : null;
}

/** What is worth drawing without being asked. @param {{name: string, kind: string}[]} columns */
export function usualChart(columns, known = {}) {
  const names = columns.map((column) => column.name), numbers = columns.filter((column) => column.kind === "number").map((column) => column.name);
  const text = columns.find((column) => column.kind !== "number")?.name;
  const fits = known.kind && names.includes(known.x) && (known.kind === "histogram" || names.includes(known.y));
  if (fits) return known;
  if (trackKind(names) === "counter") return { kind: "line", x: "time_ns", y: "value" };
  if (text && numbers.length) return { kind: "bar", x: text, y: numbers[0] };
  return numbers.length > 1 ? { kind: "scatter", x: numbers[0], y: numbers[1] } : { kind: "histogram", x: numbers[0] ?? names[0], y: "" };
}

export class Result {
  /** @param {HTMLElement} root @param {{chart: (asked: object) => Promise<any>}} actions */
  constructor(root, { chart }) {
    const find = (id) => root.querySelector(`#${id}`);
    this.section = find("sql-result");
    this.table = find("sql-table");
    this.chartPanel = find("sql-chart");
    this.form = find("sql-chart-form");
    this.figure = find("sql-figure");
    this.note = find("sql-note");
    this.chartNote = find("sql-chart-note");
    this.ask = chart;
    this.tabs = { table: find("sql-tab-table"), chart: find("sql-tab-chart") };
    this.shown = "table";
    for (const [name, tab] of Object.entries(this.tabs)) tab.addEventListener("click", () => this.show(name));
    this.tabs.table.parentElement.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = this.shown === "table" ? "chart" : "table";
      this.show(other);
      this.tabs[other].focus();
    });
    this.form.addEventListener("change", () => { this.fillForm(this.chart); this.draw(); });
    this.form.addEventListener("submit", (event) => event.preventDefault());
  }

  /** @param {any} answer of the API @param {object} chart what was kept with the query */
  set(answer, chart) {
    this.answer = answer;
    this.section.hidden = false;
    const columns = answer.columns.slice(0, WIDE).map((column, index) => ({
      field: `c${index}`, title: column.name || `column ${index + 1}`, type: column.kind === "number" ? "number" : "text", help: column.type,
      format: formatOf(column.name, column.kind) ?? undefined, ...(column.kind === "number" ? {} : { width: 240 }),
    }));
    const rows = answer.rows.map((cells, id) => Object.fromEntries([["id", id], ...cells.map((value, index) => [`c${index}`, value]) ]));
    import("../grid/grid.js").then(({ gridFrom }) => { // with the library that draws it: the first answer needs it
      if (this.answer === answer) gridFrom(this.table, columns, rows, { name: "", file: "query", empty: "The query gave no rows" });
    });
    this.note.textContent = [answer.truncated ? `Only the first ${answer.row_count.toLocaleString("en")} rows.` : "", answer.columns.length > WIDE ? `Only the first ${WIDE} of ${answer.columns.length} columns.` : ""].filter(Boolean).join(" ");
    this.fillForm(usualChart(answer.columns, chart));
    this.drawn = null;
    this.show(this.shown);
  }

  fillForm(chart) {
    const options = (wanted, numeric) => this.answer.columns.filter((column) => !numeric || column.kind === "number").map(({ name }) => Object.assign(document.createElement("option"), { value: name, textContent: name, selected: name === wanted }));
    this.form.kind.value = chart.kind;
    this.form.x.replaceChildren(...options(chart.x, chart.kind !== "bar"));     // only bars stand on words
    this.form.y.replaceChildren(...options(chart.y, true));
  }

  get chart() {
    const { kind, x, y } = this.form;
    return { kind: kind.value, x: x.value, ...(kind.value === "histogram" ? {} : { y: y.value }) };
  }

  show(name) {
    this.shown = name;
    for (const [key, tab] of Object.entries(this.tabs)) {
      tab.setAttribute("aria-selected", String(key === name));
      tab.tabIndex = key === name ? 0 : -1;
    }
    this.table.hidden = name !== "table";
    this.chartPanel.hidden = name !== "chart";
    if (name === "chart") this.draw();
  }

  async draw() {
    const asked = this.chart, key = JSON.stringify(asked);
    for (const part of [this.form.y, this.form.querySelector("#sql-y-label")]) part.hidden = asked.kind === "histogram";
    if (this.shown !== "chart" || key === this.drawn) return;
    this.drawn = key;
    this.chartNote.textContent = "drawing…";
    try {
      const { chart, note } = await this.ask(asked);
      if (this.drawn !== key) return;
      await embed(this.figure, chart);
      this.chartNote.textContent = note;
    } catch (error) {
      if (this.drawn !== key) return;
      this.figure.replaceChildren();
      this.chartNote.textContent = `${error.message}. ${error.hint ?? ""}`;
    }
  }
}
