// The same table from rows of JSON, as they come and change: drawn by Tabulator, virtual rows, no HTML ever built from text.

import { TabulatorFull } from "../../vendor/tabulator/tabulator.min.js";
import { Grid } from "./base.js";
import { columnTest, compareValues } from "./query.js";
import { addTools } from "./tools.js";
import { addKeys } from "./keys.js";

const MAX_HEIGHT = "min(72vh, 900px)";

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
  measure.font = `600 11px ${getComputedStyle(document.body).fontFamily}`;
  return Math.ceil(measure.measureText(title).width) + 36;
}

/** A row is Tabulator's row component. */
class JsonGrid extends Grid {
  /** @param {HTMLElement} wrap @param {string} name @param {import("./base.js").Column[]} columns @param {any[]} rows @param {import("./base.js").Options} options */
  constructor(wrap, name, columns, rows, options = {}) {
    super(wrap, name, columns, { grows: true, ...options });
    wrap.classList.toggle("wraps", Boolean(options.wrap));
    this.holder = document.createElement("div");
    wrap.append(this.holder);
    this.table = new TabulatorFull(this.holder, this.settings(rows));
    this.ready = new Promise((resolve) => this.table.on("tableBuilt", resolve));
    this.ready.then(() => {
      for (const column of this.table.getColumns()) { // the library's filter fields have no name of their own
        column.getElement().querySelector(".tabulator-header-filter input")?.setAttribute("aria-label", `Filter by ${column.getDefinition().title}`);
      }
      if (options.tools !== false) addTools(this);
      // the library's box that scrolls takes the keys: it is the group of rows, what lies in it is not
      addKeys(this, this.holder.querySelector(".tabulator-tableholder"), "rowgroup");
      this.holder.querySelector(".tabulator-table")?.setAttribute("role", "presentation");
      if (options.onPick) this.table.on("rowClick", (_, row) => options.onPick(row.getData()));
      this.readUrl();
      this.table.on("dataSorted", () => this.writeUrl());
      this.table.on("rowSelectionChanged", () => this.onCount?.());
      for (const event of ["dataFiltered", "dataProcessed", "rowAdded"]) this.table.on(event, (_, left) => this.onCount?.(Array.isArray(left) ? left.length : undefined));
      this.onCount?.();
    });
  }

  all() { return this.table.getDataCount(); }
  active() { return this.table.getRows("active"); }
  selected() { return this.table.getSelectedRows(); }
  value(row, column) { return row.getData()[column.field]; }
  text(row, column) { return this.told(row.getData(), column); }
  element(row) { return row.getElement(); }
  same(a, b) { return a.getIndex() === b.getIndex(); }
  shows(field) { return this.table.getColumn(field).isVisible(); }
  show(field, on) { if (on) this.table.showColumn(field); else this.table.hideColumn(field); this.table.redraw(); }
  sorters() { return this.table.getSorters().map(({ field, dir }) => ({ field, dir })); }
  sortBy(sorters) { this.table.setSort(sorters.map(({ field, dir }) => ({ column: field, dir })).reverse()); }
  select(rows) { this.table.deselectRow(); this.table.selectRow(rows); }
  toggle(row) { row.toggleSelect(); }
  reveal(row) { this.table.scrollToRow(row, "nearest", false).catch(() => {}); }
  pick(row) { if (this.options.onPick) this.options.onPick(row.getData()); else row.getElement().querySelector("a[href]")?.click(); }
  applyFilter() { if (this.words) this.table.setFilter((data) => this.words(this.columns.map((column) => this.told(data, column)).join(" "))); else this.table.clearFilter(false); }

  /** @param {boolean} on fields below the headings */
  columnFilters(on) { if (!on) this.table.clearHeaderFilter(); this.table.redraw(true); }

  /** @param {any[]} rows */
  settings(rows) {
    return {
      data: rows, index: this.options.index ?? "id", layout: "fitColumns", maxHeight: this.options.maxHeight ?? MAX_HEIGHT, renderVertical: "virtual",
      renderVerticalBuffer: this.options.buffer ?? 0, // 0: as much again as is in view
      columns: this.columns.map((column) => this.definition(column)), movableColumns: true, selectableRows: true,
      selectableRowsRangeMode: "click", rowHeight: this.options.wrap ? undefined : 28, headerSortTristate: true, columnHeaderVertAlign: "middle",
      placeholder: () => Object.assign(document.createElement("span"), { textContent: this.options.empty ?? "No rows" }),
      nestedFieldSeparator: false, autoResize: true, validationMode: "manual", debugInvalidOptions: false,
    };
  }

  /** @param {import("./base.js").Column} column */
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
      headerFilterFunc: (query, value, row) => (columnTest(String(query), column) ?? (() => true))(value, this.told(row, column)),
    };
  }

  /** @param {any} cell @param {import("./base.js").Column} column */
  cellNode(cell, column) {
    const row = cell.getData();
    const shown = column.format ? column.format(cell.getValue(), row) : cell.getValue() ?? "—";
    if (shown instanceof Node) return shown;
    return Object.assign(document.createElement("span"), { textContent: String(shown), title: String(cell.getValue() ?? "unknown") });
  }

  /** @param {any} row what filters and searches see of a cell: the shown text and the full value */
  told(row, column) {
    const value = row[column.field];
    const shown = column.text ? column.text(value, row) : column.format && column.type === "number" ? column.format(value, row) : "";
    return `${value ?? ""} ${shown instanceof Node ? shown.textContent : shown}`;
  }

  /** @param {any[]} rows in place of all rows; scroll position, filters and sorting stay */
  setRows(rows) { return this.ready.then(() => this.table.replaceData(rows)); }

  /** @param {any} row appended, or in place of the one with the same id */
  addRow(row) { return this.ready.then(() => this.table.updateOrAddData([row])).then(() => this.onCount?.()); }
}

/**
 * A grid from JSON rows. Columns: {field, title, type, unit?, hidden?, help?, format?(value, row) -> text or Node}. Texts are
 * shown as text, whatever they contain. Rows with an `id` can be replaced by addRow.
 * @param {HTMLElement} element @param {import("./base.js").Column[]} columns @param {any[]} rows
 * @param {import("./base.js").Options & {name?: string}} options
 */
export function gridFrom(element, columns, rows = [], options = {}) {
  loadStyles();
  element.replaceChildren();
  return new JsonGrid(element, options.name ?? element.dataset.name ?? "", columns, rows, options);
}
