// `table[data-grid]`: the table that the server wrote, made to sort, filter, choose and widen columns, select, copy and export, in its place.
//
// Its rows and cells stay the very nodes (links, forms, formatted numbers) and where they are, so nothing moves when this begins.

import { whenNear } from "../lib/near.js";
import { Grid } from "./base.js";
import { cellText, cellValue, headColumns } from "./cells.js";
import { columnTest, compareValues } from "./query.js";
import { LONG, VirtualRows } from "./rows.js";
import { addTools } from "./tools.js";
import { addKeys } from "./keys.js";
import { Widths } from "./widths.js";

/** @typedef {{tr: HTMLTableRowElement, more: HTMLTableRowElement[], at: number}} Row `more`: rows that belong to it, as a note across all columns */

/** What a click on a heading asks for next: numbers begin with the largest. */
const NEXT = { number: { "": "desc", desc: "asc", asc: "" }, text: { "": "asc", asc: "desc", desc: "" } };

export class TableGrid extends Grid {
  /** @param {HTMLTableElement} table @param {HTMLElement} wrap @param {HTMLElement} scroller */
  constructor(table, wrap, scroller) {
    super(wrap, table.dataset.name ?? "", headColumns(table.tHead.rows[table.tHead.rows.length - 1]), { api: table.dataset.api, tools: table.dataset.tools !== "none" });
    this.table = table;
    this.scroller = scroller;
    this.body = table.tBodies[0];
    this.heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    /** @type {Row[]} */
    this.rows = [];
    /** @type {Set<Row>} */
    this.picked = new Set();
    /** @type {Map<string, string>} */
    this.filters = new Map();
    /** @type {{field: string, dir: "asc"|"desc"}[]} */
    this.sorted = [];
    this.hiddenFields = new Set();
    this.view = new VirtualRows(table, this.body, scroller, this.heads.length);
    this.take();
    this.heads.forEach((th, at) => this.dressHead(th, this.columns[at]));
    this.widths = new Widths(this);
    if (this.options.tools) addTools(this);
    this.widths.changed();
    addKeys(this);
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.body.addEventListener("pointerover", (event) => this.tell(event));
    this.readUrl();
    if (this.rows.length > LONG && !this.view.on) this.draw();
    this.onCount?.();
  }

  /** Rows that a script put there or took away since are taken over: the table is the truth. */
  take() {
    if (this.view.on) return;
    const known = new Map(this.rows.map((row) => [row.tr, row])), there = new Set([...this.body.rows]);
    const drawn = new Set(this.shown ?? []);
    this.rows = this.rows.filter((row) => there.has(row.tr) || !drawn.has(row));
    let last = null, at = this.rows.reduce((most, row) => Math.max(most, row.at), -1);
    for (const tr of there) {
      if (tr.className === "grid-none") continue;
      if (known.has(tr)) { last = known.get(tr); continue; }
      if (tr.cells.length === this.heads.length) this.rows.push(last = { tr, more: [], at: ++at });
      else if (last && !last.more.includes(tr)) last.more.push(tr);
    }
    this.shown = this.rows.filter((row) => there.has(row.tr));
  }

  /** A heading sorts: the button is the heading's own words. */
  dressHead(th, column) {
    if (th.tagName === "TH") th.scope = "col";
    if (th.querySelector("a, button, input, select") || !column.title) return;
    th.setAttribute("aria-sort", "none");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "grid-sort";
    if (th.title) button.title = th.title;
    button.append(...th.childNodes);
    button.addEventListener("click", (event) => {
      const before = this.sorted.find(({ field }) => field === column.field)?.dir ?? "";
      const dir = NEXT[column.type === "number" ? "number" : "text"][before];
      const others = event.shiftKey ? this.sorted.filter(({ field }) => field !== column.field) : [];
      this.sortBy(dir ? [...others, { field: column.field, dir }] : others);
    });
    th.append(button);
  }

  cell(row, column) { return row.tr.cells[this.columns.indexOf(column)]; }
  value(row, column) { return cellValue(this.cell(row, column), column); }
  text(row, column) { return cellText(this.cell(row, column)); }
  all() { return this.rows.length; }
  active() { return this.shown; }
  selected() { return this.shown.filter((row) => this.picked.has(row)); }
  element(row) { return row.tr; }
  same(a, b) { return a === b; }
  sorters() { return this.sorted; }
  shows(field) { return !this.hiddenFields.has(field); }
  reveal(row) { this.view.reveal(this.shown.indexOf(row)); }

  show(field, on) {
    if (on) this.hiddenFields.delete(field); else this.hiddenFields.add(field);
    const at = this.columns.findIndex((column) => column.field === field);
    for (const tr of [...this.table.tHead.rows, ...this.rows.map((row) => row.tr)]) if (tr.cells.length === this.heads.length) tr.cells[at].hidden = !on;
    this.widths?.changed();
    this.widths?.keep();
    if (this.view.on) this.view.measure();
  }

  sortBy(sorters) {
    this.take();
    this.sorted = sorters.filter(({ field }) => this.columns.some((column) => column.field === field));
    for (const [at, column] of this.columns.entries()) {
      const dir = this.sorted.find(({ field }) => field === column.field)?.dir;
      if (this.heads[at].hasAttribute("aria-sort")) this.heads[at].setAttribute("aria-sort", dir === "asc" ? "ascending" : dir === "desc" ? "descending" : "none");
    }
    this.draw();
    this.writeUrl();
  }

  applyFilter() { this.take(); this.draw(); }

  /** @param {string} field @param {string} query words, "> 1ms", "10..20", "!without" */
  filterColumn(field, query) { this.filters.set(field, query); this.applyFilter(); }

  /** @param {boolean} on fields below the headings */
  columnFilters(on) {
    this.fields?.remove();
    this.fields = null;
    if (on) {
      this.fields = this.table.tHead.insertRow();
      this.fields.className = "grid-fields";
      for (const [at, column] of this.columns.entries()) {
        const cell = document.createElement("td"), input = document.createElement("input");
        Object.assign(input, { type: "search", maxLength: 200, placeholder: column.type === "number" ? "> 10, 1..5" : "contains" });
        input.setAttribute("aria-label", `Filter by ${column.title || `column ${at + 1}`}`);
        input.addEventListener("input", () => this.filterColumn(column.field, input.value));
        cell.hidden = !this.shows(column.field);
        cell.append(input);
        this.fields.append(cell);
      }
    } else if (this.filters.size) {
      this.filters.clear();
      this.applyFilter();
    }
  }

  draw() {
    const tests = [...this.filters].map(([field, query]) => {
      const column = this.columns.find((each) => each.field === field);
      return { column, test: columnTest(query, column) };
    }).filter(({ test }) => test);
    const keys = this.sorted.map(({ field, dir }) => ({ column: this.columns.find((each) => each.field === field), dir }));
    const rows = this.rows.filter((row) => this.passes(row) && tests.every(({ column, test }) => test(this.value(row, column), this.text(row, column))));
    const values = new Map(rows.map((row) => [row, keys.map(({ column }) => this.value(row, column))]));
    rows.sort((a, b) => {
      for (const [at, { column, dir }] of keys.entries()) {
        const order = compareValues(values.get(a)[at], values.get(b)[at], column.type, dir);
        if (order) return dir === "asc" ? order : -order;
      }
      return a.at - b.at;
    });
    this.shown = rows;
    this.view.set(rows.flatMap((row) => [row.tr, ...row.more]));
    if (!rows.length && this.rows.length) this.sayNone();
    this.onCount?.();
  }

  sayNone() {
    const tr = this.body.insertRow(), cell = tr.insertCell();
    tr.className = "grid-none";
    cell.colSpan = this.heads.length;
    cell.className = "muted";
    cell.textContent = "No row passes the filter";
  }

  /** @param {Row[]} rows these and no others */
  select(rows) {
    for (const row of this.picked) row.tr.removeAttribute("aria-selected");
    this.picked = new Set(rows);
    for (const row of rows) row.tr.setAttribute("aria-selected", "true");
    this.told();
  }

  toggle(row) {
    if (!this.picked.delete(row)) this.picked.add(row);
    if (this.picked.has(row)) row.tr.setAttribute("aria-selected", "true"); else row.tr.removeAttribute("aria-selected");
    this.told();
  }

  told() {
    this.onCount?.();
    this.wrap.dispatchEvent(new CustomEvent("rowselect", { bubbles: true, detail: this.selected().map((row) => row.tr) }));
  }

  pick(row) { row.tr.querySelector("a[href]")?.click(); }

  /** A click beside links, fields and marked words selects the row; with Shift all up to it. */
  clicked(event) {
    if (event.target.closest("a, button, input, select, textarea, label, summary, details, form") || String(getSelection())) return;
    this.take();
    const row = this.rows.find(({ tr }) => tr.contains(event.target));
    if (!row) return;
    const from = this.shown.indexOf(this.last), to = this.shown.indexOf(row);
    if (event.shiftKey && from >= 0) this.select(this.shown.slice(Math.min(from, to), Math.max(from, to) + 1)); else this.toggle(row);
    this.last = row;
    this.current?.(row);
  }

  /** What is cut is said on hover. */
  tell(event) {
    const td = event.target.closest("td");
    if (td && !td.title && td.scrollWidth > td.clientWidth + 1) td.title = (td.textContent ?? "").trim().replace(/\s+/g, " ");
  }
}

/** @param {HTMLTableElement} table @returns {TableGrid|null} */
export function enhance(table) {
  if (table.dataset.enhanced || !table.tHead?.rows.length || table.tBodies.length !== 1) return null;
  const heads = table.tHead.rows[table.tHead.rows.length - 1].cells.length;
  if (![...table.tBodies[0].rows].some((tr) => tr.cells.length === heads)) return null; // one cell over all columns says why there are no rows
  table.dataset.enhanced = "1";
  const inBox = table.parentElement?.classList.contains("table-scroll");
  const scroller = inBox ? table.parentElement : document.createElement("div");
  if (!inBox) { scroller.className = "table-scroll"; table.replaceWith(scroller); scroller.append(table); }
  const wrap = document.createElement("div");
  if (table.dataset.name) wrap.id = `table-${table.dataset.name}`;
  scroller.replaceWith(wrap);
  wrap.append(scroller);
  return new TableGrid(table, wrap, scroller);
}

/** Whether a table shows other rows or columns than the server wrote: by the address, or as somebody chose once. @param {string} name */
function isChanged(name) {
  const parameters = new URL(location.href).searchParams;
  let columns = null;
  try { columns = localStorage.getItem(`ridgepoint.columns.${name}`); } catch { /* nothing remembered */ }
  return columns !== null || parameters.has(`${name}.q`) || parameters.has(`${name}.sort`);
}

/** Tables that the server wrote: the page is painted first, and those below the screen wait. @param {boolean} atOnce where a part of the page was replaced */
export function enhanceAll(atOnce) {
  for (const table of /** @type {NodeListOf<HTMLTableElement>} */ (document.querySelectorAll("table[data-grid]:not([data-enhanced])"))) {
    if (atOnce || (table.dataset.name && isChanged(table.dataset.name))) enhance(table);
    else whenNear(table).then(() => { if (table.isConnected) enhance(table); });
  }
}
