// The line above a table: filter box, how many rows, filters per column, columns, copy, export.

import { convert } from "../lib/http.js";

/** @param {string} tag @param {Record<string, any>} properties @param {(Node|string)[]} children */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** @param {string} text @param {HTMLElement} button says what happened */
export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not a secure context: the old way
    const area = make("textarea", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1200);
}

/** @param {string} name @param {Blob} blob */
function save(name, blob) {
  const url = URL.createObjectURL(blob);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** @param {string} name @param {string} type @param {string} text */
const download = (name, type, text) => save(name, new Blob([text], { type }));

/** @param {string} title @param {...HTMLElement} body */
function menu(title, ...body) {
  return make("details", { className: "menu" }, make("summary", { className: "btn btn-small" }, `${title} ▾`), make("div", { className: "menu-body" }, ...body));
}

/** Which columns are shown is remembered per table. */
function columnMenu(grid) {
  const key = `ridgepoint.columns.${grid.name}`;
  let hidden = null;
  try { hidden = JSON.parse(localStorage.getItem(key) ?? "null"); } catch { /* nothing remembered */ }
  if (Array.isArray(hidden) && grid.name) {
    for (const column of grid.columns) if (hidden.includes(column.field)) grid.table.hideColumn(column.field); else grid.table.showColumn(column.field);
  }
  const boxes = grid.columns.map((column) => {
    const box = make("input", { type: "checkbox", checked: grid.table.getColumn(column.field).isVisible() });
    box.addEventListener("change", () => {
      grid.table.toggleColumn(column.field);
      grid.table.redraw();
      const now = grid.columns.filter(({ field }) => !grid.table.getColumn(field).isVisible()).map(({ field }) => field);
      try { localStorage.setItem(key, JSON.stringify(now)); } catch { /* lasts for this page */ }
    });
    return make("label", {}, box, column.title || "(no title)");
  });
  return menu("Columns", ...boxes);
}

/** The rows in view as a file: texts made here, Parquet and Arrow by the server of the very same cells. */
function exportMenu(grid) {
  const file = grid.options.file || grid.name || "table";
  const said = make("p", { className: "muted", hidden: true });
  said.setAttribute("role", "status");
  const say = (text) => { said.hidden = !text; said.textContent = text; };
  const item = (title, run) => make("button", { type: "button", onclick: run }, title);
  const made = (format) => async () => {
    const { columns, rows } = grid.extract();
    say("making the file…");
    try {
      save(`${file}.${format}`, await convert(format, { name: file, columns: columns.map(({ title, field, type }) => ({ name: title || field, type: type === "number" ? "number" : "text" })), rows }));
      say("");
    } catch (error) {
      say(`${error.message}. ${error.hint ?? ""}`);
    }
  };
  return menu("Export", item("CSV", () => download(`${file}.csv`, "text/csv", grid.csv())), item("JSON", () => download(`${file}.json`, "application/json", grid.json())),
    item("Parquet", made("parquet")), item("Arrow", made("arrow")), said, ...(grid.options.api ? [make("a", { href: grid.options.api }, "This data in the API")] : []));
}

/** @param {any} grid */
export function addTools(grid) {
  const filter = make("input", { type: "search", placeholder: "Filter", className: "grid-filter", maxLength: 200, autocomplete: "off" });
  filter.setAttribute("aria-label", `Filter rows${grid.name ? ` of ${grid.name}` : ""}`);
  let timer = 0;
  filter.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => grid.search(filter.value), 120); });
  grid.showQuery = (query) => { filter.value = query; };

  const count = make("span", { className: "grid-count muted" });
  count.setAttribute("role", "status");
  grid.onCount = (left) => {
    const all = grid.table.getDataCount(), active = left ?? grid.table.getDataCount("active"), selected = grid.table.getSelectedRows().length;
    count.textContent = `${active === all ? all.toLocaleString("en") : `${active.toLocaleString("en")} of ${all.toLocaleString("en")}`} row${all === 1 ? "" : "s"}${selected ? `, ${selected} selected` : ""}`;
    grid.wrap.classList.toggle("grid-small", all <= 8);
  };
  grid.table.on("rowSelectionChanged", () => grid.onCount());

  const each = make("button", { type: "button", className: "btn btn-small grid-each", title: "Filter by column: words, > 1ms, 10..20, !without" }, "Column filters");
  each.setAttribute("aria-pressed", "false");
  each.addEventListener("click", () => {
    const on = grid.wrap.classList.toggle("with-filters");
    each.setAttribute("aria-pressed", String(on));
    if (!on) grid.table.clearHeaderFilter();
    grid.table.redraw(true);
  });
  const copy = make("button", { type: "button", className: "btn btn-small", title: "Copy the selected rows, else all rows shown, with exact values" }, "Copy");
  copy.addEventListener("click", () => copyText(grid.tsv(), copy));
  const tools = make("div", { className: "grid-tools" }, filter, count, make("span", { className: "push" }), each, columnMenu(grid), copy, exportMenu(grid));
  grid.wrap.prepend(tools);
  grid.copyButton = copy;
}
