// What every table can do, whoever draws it: search, what is copied and exported, its state in the URL.
// A drawer extends Grid: `table.js` works on the table that the server wrote, `grid.js` draws rows of JSON.

import { toCsv, toJson, toTsv, wordsTest } from "./query.js";

/** @typedef {import("./query.js").Column & {help?: string, hidden?: boolean, width?: number, minWidth?: number, wrap?: boolean, format?: (value: any, row: any) => string|Node, text?: (value: any, row: any) => string}} Column */
/** @typedef {{api?: string, tools?: boolean, onPick?: (row: any) => void, empty?: string, index?: string, url?: boolean, file?: string, maxHeight?: string, wrap?: boolean}} Options onPick: a click or Enter on a row */

/**
 * A row is what the drawer calls one. A drawer has: `active()` and `selected()` rows in order, `all()` how many there are,
 * `value(row, column)` raw, `text(row, column)` what filters see, `shows(field)`, `show(field, on)`, `applyFilter()` with `words`,
 * `sorters()` and `sortBy(sorters)`, `select(rows)`, `toggle(row)`, `reveal(row)`, `element(row)`, `same(a, b)`, `pick(row)`.
 */
export class Grid {
  /** @param {HTMLElement} wrap @param {string} name @param {Column[]} columns @param {Options} options */
  constructor(wrap, name, columns, options = {}) {
    this.wrap = wrap;
    this.name = name;
    this.columns = columns;
    this.options = options;
    this.query = "";
    /** @type {((text: string) => boolean)|null} */
    this.words = null;
    wrap.classList.add("grid-wrap");
  }

  /** One box over all columns. @param {string} query */
  search(query) {
    this.query = query;
    this.words = query.trim() ? wordsTest(query) : null;
    this.applyFilter();
    this.writeUrl();
  }

  /** @param {any} row */
  passes(row) { return !this.words || this.words(this.columns.map((column) => this.text(row, column)).join(" ")); }

  /** Columns in view and the raw values of the selected rows, else of all that pass the filters. Headings say the unit. */
  extract() {
    const shown = this.columns.filter((column) => column.title && this.shows(column.field)), selected = this.selected();
    const rows = (selected.length ? selected : this.active()).map((row) => shown.map((column) => this.value(row, column) ?? null));
    const title = ({ title, unit, field }) => (unit && !title.includes(`(${unit})`) ? `${title || field} (${unit})` : title || field);
    return { columns: shown.map((column) => ({ ...column, title: title(column) })), rows: rows.map((row) => row.map((value) => (value === "" ? null : value))), selected: selected.length };
  }

  csv() { const { columns, rows } = this.extract(); return toCsv(columns, rows); }
  json() { const { columns, rows } = this.extract(); return toJson(columns, rows); }
  tsv() { const { columns, rows } = this.extract(); return toTsv(columns, rows); }

  /** The URL is the state: ?kernels.q=gemm&kernels.sort=total:desc */
  writeUrl() {
    if (!this.name || this.options.url === false) return;
    const url = new URL(location.href);
    const sort = this.sorters().map(({ field, dir }) => `${field}:${dir}`).join(",");
    for (const [key, value] of [["q", this.query.trim()], ["sort", sort]]) {
      if (value) url.searchParams.set(`${this.name}.${key}`, value); else url.searchParams.delete(`${this.name}.${key}`);
    }
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }

  readUrl() {
    const parameters = new URL(location.href).searchParams;
    const query = this.name && parameters.get(`${this.name}.q`), sort = this.name && parameters.get(`${this.name}.sort`);
    const sorters = (sort || "").split(",").map((part) => part.split(":")).filter(([field]) => this.columns.some((column) => column.field === field));
    if (sorters.length) this.sortBy(sorters.map(([field, dir]) => ({ field, dir: dir === "asc" ? "asc" : "desc" })));
    if (query) { this.search(query); this.showQuery?.(query); }
  }
}
