// Tables that sort, filter, choose columns, copy and export, with virtual rows.
//
// `table[data-grid]` from the server: cells keep the very nodes the server rendered (links, forms, formatted numbers);
// no HTML is ever built from text. `gridFrom` makes the same grid from JSON.

import { TabulatorFull } from "../../vendor/tabulator/tabulator.min.js";
import { columnTest, compareValues, toCsv, toJson, toTsv, wordsTest } from "./query.js";
import { addTools } from "./tools.js";
import { addKeys } from "./keys.js";

/** @typedef {import("./query.js").Column & {help?: string, hidden?: boolean, width?: number, wrap?: boolean, format?: (value: any, row: any) => string|Node, text?: (value: any, row: any) => string}} Column */

const MAX_HEIGHT = "min(72vh, 900px)";
const SMALL_ROWS = 8;
const MAX_NATURAL = 460; // a column wider than this does not ask for more
const MIN_TEXT = 150; // text is cut below its width rather than pushing columns out of view
const MIN_WRAPPED = 260; // a sentence that is shown whole, on as many lines as it takes
const MIN_FIRST = 260; // what the row is about

const stylesheet = new URL("../../vendor/tabulator/tabulator.min.css", import.meta.url).href;
let styled = null;

/** The library's stylesheet goes before ours, so that css/base/grid.css has the last word. */
function loadStyles() {
  styled ??= new Promise((resolve) => {
    const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: stylesheet });
    link.onload = link.onerror = resolve;
    document.head.prepend(link);
  });
  return styled;
}

const measure = document.createElement("canvas").getContext("2d");

/** A heading is never cut: its text, the sort arrow and the padding. @param {string} title @returns {number} CSS pixels */
function titleWidth(title) {
  measure.font = `600 12px ${getComputedStyle(document.body).fontFamily}`;
  return Math.ceil(measure.measureText(title).width) + 36;
}

/** One grid: the library's table, our columns, and what both server tables and JSON tables can do. */
class Grid {
  /** @param {HTMLElement} wrap @param {string} name @param {Column[]} columns @param {any[]} rows @param {{api?: string, tools?: boolean, onPick?: (row: any) => void, empty?: string, index?: string, url?: boolean, file?: string, maxHeight?: string, wrap?: boolean}} options onPick: a click or Enter on a row */
  constructor(wrap, name, columns, rows, options = {}) {
    this.wrap = wrap;
    this.name = name;
    this.columns = columns;
    this.options = options;
    this.words = null;
    wrap.classList.add("grid-wrap");
    wrap.classList.toggle("wraps", Boolean(options.wrap));
    wrap.classList.toggle("grid-small", rows.length <= SMALL_ROWS);
    this.holder = document.createElement("div");
    wrap.append(this.holder);
    this.table = new TabulatorFull(this.holder, this.settings(rows));
    this.ready = new Promise((resolve) => this.table.on("tableBuilt", resolve));
    this.ready.then(() => {
      for (const column of this.table.getColumns()) { // the library's filter fields have no name of their own
        column.getElement().querySelector(".tabulator-header-filter input")?.setAttribute("aria-label", `Filter by ${column.getDefinition().title}`);
      }
      if (options.tools !== false) addTools(this);
      addKeys(this);
      if (options.onPick) this.table.on("rowClick", (_, row) => options.onPick(row.getData()));
      this.readUrl();
      this.table.on("dataSorted", () => this.writeUrl());
      for (const event of ["dataFiltered", "dataProcessed", "rowAdded"]) this.table.on(event, (_, left) => this.onCount?.(Array.isArray(left) ? left.length : undefined));
      this.onCount?.();
    });
  }

  /** @param {any[]} rows */
  settings(rows) {
    return {
      data: rows, index: this.options.index ?? "id", layout: "fitColumns", maxHeight: this.options.maxHeight ?? MAX_HEIGHT, renderVertical: "virtual",
      columns: this.columns.map((column) => this.definition(column)), movableColumns: true, selectableRows: true,
      selectableRowsRangeMode: "click", rowHeight: this.options.wrap ? undefined : 28, headerSortTristate: true, columnHeaderVertAlign: "middle",
      placeholder: () => Object.assign(document.createElement("span"), { textContent: this.options.empty ?? "No rows" }),
      rowFormatter: (row) => this.dressRow(row), nestedFieldSeparator: false, autoResize: true, validationMode: "manual", debugInvalidOptions: false,
    };
  }

  /** @param {Column} column */
  definition(column) {
    const number = column.type === "number";
    return {
      field: column.field, title: column.title, visible: !column.hidden, hozAlign: number ? "right" : "left", headerHozAlign: number ? "right" : "left",
      cssClass: number ? "num" : column.wrap ? "whole" : "", widthGrow: column.width ? Math.max(1, Math.round(column.width / 20)) : number ? 1 : 3, minWidth: Math.max(column.minWidth ?? (number ? 76 : 110), titleWidth(column.title)),
      headerTooltip: column.help || false, variableHeight: column.wrap ?? false, headerSortStartingDir: number ? "desc" : "asc", resizable: "header",
      titleFormatter: () => Object.assign(document.createElement("span"), { textContent: column.title }),
      formatter: (cell) => this.cellNode(cell, column),
      sorter: (a, b, _a, _b, _column, direction) => compareValues(a, b, column.type, direction),
      headerFilter: "input", headerFilterPlaceholder: number ? "> 10, 1..5" : "contains", headerFilterFuncParams: { column },
      headerFilterFunc: (query, value, row) => (columnTest(String(query), column) ?? (() => true))(value, this.text(row, column)),
    };
  }

  /** @param {any} cell @param {Column} column */
  cellNode(cell, column) {
    const row = cell.getData();
    const server = row.$cells?.[column.field];
    if (server) {
      if (server.className) cell.getElement().classList.add(...server.className.split(/\s+/).filter(Boolean));
      return server.node;
    }
    const shown = column.format ? column.format(cell.getValue(), row) : cell.getValue() ?? "—";
    if (shown instanceof Node) return shown;
    return Object.assign(document.createElement("span"), { textContent: String(shown), title: String(cell.getValue() ?? "unknown") });
  }

  /** @param {any} row what filters and searches see of a cell: the shown text and the full value */
  text(row, column) {
    const server = row.$cells?.[column.field];
    if (server) return server.text;
    const value = row[column.field];
    const shown = column.text ? column.text(value, row) : column.format && column.type === "number" ? column.format(value, row) : "";
    return `${value ?? ""} ${shown instanceof Node ? shown.textContent : shown}`;
  }

  dressRow(row) {
    const { $row } = row.getData();
    if (!$row) return;
    const element = row.getElement();
    for (const { name, value } of $row) if (name === "class") element.classList.add(...value.split(/\s+/).filter(Boolean)); else element.setAttribute(name, value);
  }

  /** One box over all columns. @param {string} query */
  search(query) {
    this.query = query;
    const test = query.trim() ? wordsTest(query) : null;
    if (test) this.table.setFilter((row) => test(this.columns.map((column) => this.text(row, column)).join(" ")));
    else this.table.clearFilter(false);
    this.writeUrl();
  }

  /** Columns in view and the raw values of the selected rows, else of all that pass the filters. */
  extract() {
    const visible = this.table.getColumns().filter((column) => column.isVisible() && column.getField()).map((column) => column.getField());
    const columns = visible.map((field) => this.columns.find((column) => column.field === field));
    const selected = this.table.getSelectedData();
    const data = selected.length ? selected : this.table.getData("active");
    const value = (row, column) => (row[column.field] ?? "") === "" ? null : row[column.field];
    return { columns, rows: data.map((row) => columns.map((column) => value(row, column))), selected: selected.length };
  }

  csv() { const { columns, rows } = this.extract(); return toCsv(columns, rows); }
  json() { const { columns, rows } = this.extract(); return toJson(columns, rows); }
  tsv() { const { columns, rows } = this.extract(); return toTsv(columns, rows); }

  /** The URL is the state: ?kernels.q=gemm&kernels.sort=total:desc */
  writeUrl() {
    if (!this.name || this.options.url === false) return;
    const url = new URL(location.href);
    const sort = this.table.getSorters().map(({ field, dir }) => `${field}:${dir}`).join(",");
    for (const [key, value] of [["q", this.query?.trim()], ["sort", sort]]) {
      if (value) url.searchParams.set(`${this.name}.${key}`, value); else url.searchParams.delete(`${this.name}.${key}`);
    }
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }

  readUrl() {
    const parameters = new URL(location.href).searchParams;
    const query = this.name && parameters.get(`${this.name}.q`), sort = this.name && parameters.get(`${this.name}.sort`);
    const sorters = (sort || "").split(",").map((part) => part.split(":")).filter(([field]) => this.columns.some((column) => column.field === field));
    if (query) { this.search(query); this.showQuery?.(query); }
    if (sorters.length) this.table.setSort(sorters.map(([column, dir]) => ({ column, dir: dir === "asc" ? "asc" : "desc" })).reverse());
  }

  /** @param {any[]} rows in place of all rows; scroll position, filters and sorting stay */
  setRows(rows) { return this.ready.then(() => this.table.replaceData(rows)); }

  /** @param {any} row appended, or in place of the one with the same id */
  addRow(row) { return this.ready.then(() => this.table.updateOrAddData([row])).then(() => this.onCount?.()); }
}

/** @param {string} title @param {number} index "GPU time (ns)" -> "gpu_time_ns": what the URL calls a column */
function fieldName(title, index) {
  return title.toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_+|_+$/g, "") || `column_${index}`;
}

/** @param {HTMLTableCellElement} th @param {number} index @returns {Column} */
function serverColumn(th, index, seen) {
  let field = th.dataset.field ?? fieldName(th.textContent ?? "", index);
  if (seen.has(field)) field += `_${index}`;
  seen.add(field);
  const type = /** @type {any} */ (th.dataset.type ?? "text");
  const width = Math.min(th.offsetWidth, MAX_NATURAL);
  return { field, title: (th.textContent ?? "").trim().replace(/\s+/g, " "), type, unit: th.dataset.unit, help: th.title, hidden: "hidden" in th.dataset,
    width, wrap: "wrap" in th.dataset, minWidth: type === "number" ? width : Math.min(width + 2, index === 0 ? MIN_FIRST : "wrap" in th.dataset ? MIN_WRAPPED : MIN_TEXT) };
}

/** @param {HTMLTableCellElement|undefined} td @param {Column} column the raw value */
function rawValue(td, column) {
  if (!td) return null;
  const text = (td.textContent ?? "").trim().replace(/\s+/g, " ");
  const raw = td.dataset.value ?? text;
  if (column.type !== "number") return raw;
  const number = raw === "" || raw === "None" ? NaN : Number(raw.replace(/,/g, ""));
  return Number.isFinite(number) ? number : null;
}

/** @param {HTMLTableRowElement} tr @param {number} index @param {Column[]} columns */
function serverRow(tr, index, columns) {
  const row = { id: index, $cells: {}, $row: [...tr.attributes].filter(({ name }) => name === "class" || name === "id" || name.startsWith("data-")) };
  columns.forEach((column, at) => {
    const td = tr.cells[at];
    row[column.field] = rawValue(td, column);
    const node = document.createElement("div");
    node.className = "cell";
    const whole = td?.title || (column.type !== "number" ? td?.dataset.value : ""); // a long name's full text on hover
    if (whole && (td?.title || whole.length > 30)) node.title = whole;
    const titles = [...td?.querySelectorAll("[title]") ?? []].map((element) => element.getAttribute("title"));
    const text = `${td?.textContent ?? ""} ${td?.dataset.value ?? ""} ${titles.join(" ")}`;
    if (td) node.append(...td.childNodes);
    row.$cells[column.field] = { node, text, className: td?.className ?? "" };
  });
  return row;
}

/** @param {HTMLTableElement} table @returns {Promise<Grid|null>} */
export async function enhance(table) {
  if (table.dataset.enhanced || !table.tHead?.rows.length) return null;
  table.dataset.enhanced = "1";
  await loadStyles();
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const body = [...table.tBodies].flatMap((part) => [...part.rows]).filter((tr) => tr.cells.length === heads.length);
  if (!body.length) return null; // one cell over all columns says why there are no rows: keep it
  table.style.cssText = "width: auto; white-space: nowrap"; // how wide each column would be on one line
  const height = table.offsetHeight + parseFloat(getComputedStyle(table).marginTop); // the margin is the tools' room
  const seen = new Set();
  const columns = heads.map((th, index) => serverColumn(th, index, seen));
  const rows = body.map((tr, index) => serverRow(tr, index, columns));
  const wrap = document.createElement("div");
  wrap.id = table.id || (table.dataset.name ? `table-${table.dataset.name}` : "");
  if (table.caption) wrap.setAttribute("aria-label", table.caption.textContent ?? "");
  wrap.style.minHeight = `min(${MAX_HEIGHT}, ${height}px)`; // the library draws a moment later: what lies below stays there
  table.replaceWith(wrap);
  const grid = new Grid(wrap, table.dataset.name ?? "", columns, rows, { api: table.dataset.api, tools: table.dataset.tools !== "none", wrap: columns.some((column) => column.wrap) });
  await grid.ready;
  wrap.style.minHeight = "";
  return grid;
}

/** @param {ParentNode} root */
export function enhanceAll(root = document) {
  return Promise.all([...root.querySelectorAll("table[data-grid]")].map((table) => enhance(/** @type {HTMLTableElement} */ (table))));
}

/**
 * A grid from JSON rows. Columns: {field, title, type, unit?, hidden?, help?, format?(value, row) -> text or Node}. Texts are
 * shown as text, whatever they contain. Rows with an `id` can be replaced by addRow.
 * @param {HTMLElement} element @param {Column[]} columns @param {any[]} rows
 * @param {{name?: string, api?: string, tools?: boolean, empty?: string, index?: string, onPick?: (row: any) => void, url?: boolean, file?: string, maxHeight?: string}} options
 */
export function gridFrom(element, columns, rows = [], options = {}) {
  loadStyles();
  element.replaceChildren();
  return new Grid(element, options.name ?? element.dataset.name ?? "", columns, rows, options);
}
