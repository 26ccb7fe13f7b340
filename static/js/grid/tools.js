// What is done with a table: filter box, how many rows, filters per column, columns, copy, export.

import { convert } from "../lib/http.js";

const SMALL = 8; // rows that a person overlooks: nothing to filter; css/base/grid.css keeps the room for more

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
  return make("details", { className: "menu" }, make("summary", { className: "btn btn-small" }, title), make("div", { className: "menu-body" }, ...body));
}

/** A box for each column; which are shown is remembered per table. */
function columnBoxes(grid) {
  const key = `ridgepoint.columns.${grid.name}`;
  let hidden = grid.columns.filter((column) => column.hidden).map(({ field }) => field);
  try { hidden = JSON.parse(localStorage.getItem(key) ?? "null") ?? hidden; } catch { /* nothing remembered */ }
  for (const { field } of grid.columns) if (hidden.includes(field) === grid.shows(field)) grid.show(field, !hidden.includes(field));
  return grid.columns.filter((column) => column.title).map((column) => {
    const box = make("input", { type: "checkbox", checked: grid.shows(column.field) });
    box.addEventListener("change", () => {
      grid.show(column.field, box.checked);
      const now = grid.columns.filter(({ field }) => !grid.shows(field)).map(({ field }) => field);
      try { if (grid.name) localStorage.setItem(key, JSON.stringify(now)); } catch { /* lasts for this page */ }
    });
    return make("label", {}, box, column.title);
  });
}

/** What a menu of columns holds. */
const columnItems = (grid) => [...columnBoxes(grid), ...(grid.widths ? [make("hr"), make("button", { type: "button", onclick: () => grid.widths.reset() }, "Automatic widths")] : [])];

/** The rows in view as a file: texts made here, Parquet and Arrow by the server of the very same cells. */
function exportItems(grid) {
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
  return [item("CSV", () => download(`${file}.csv`, "text/csv", grid.csv())), item("JSON", () => download(`${file}.json`, "application/json", grid.json())),
    item("Parquet", made("parquet")), item("Arrow", made("arrow")), said, ...(grid.options.api ? [make("a", { href: grid.options.api }, "Data (API)")] : [])];
}

/** A line above the table; of a table of few rows a button at its corner, that takes no room. @param {any} grid */
export function addTools(grid) {
  const small = grid.all() <= SMALL && !grid.options.grows;
  const copy = make("button", { type: "button", className: small ? "" : "btn btn-small", title: "Copy the selected rows, else all rows shown, with exact values" }, "Copy");
  copy.addEventListener("click", () => copyText(grid.tsv(), copy));
  grid.copyButton = copy;
  if (small) {
    const corner = menu("⋯", copy, make("hr"), ...exportItems(grid), make("hr"), ...columnItems(grid));
    corner.classList.add("grid-corner");
    corner.firstElementChild.setAttribute("aria-label", `Copy, export, columns${grid.name ? ` of ${grid.name}` : ""}`);
    grid.wrap.prepend(corner);
    return;
  }
  const filter = make("input", { type: "search", placeholder: "Filter", className: "grid-filter", maxLength: 200, autocomplete: "off" });
  filter.setAttribute("aria-label", `Filter rows${grid.name ? ` of ${grid.name}` : ""}`);
  let timer = 0;
  filter.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => grid.search(filter.value), 120); });
  grid.showQuery = (query) => { filter.value = query; };

  const count = make("span", { className: "grid-count muted" });
  count.setAttribute("role", "status");
  grid.onCount = (left) => {
    const all = grid.all(), active = left ?? grid.active().length, selected = grid.selected().length;
    count.textContent = `${active === all ? all.toLocaleString("en") : `${active.toLocaleString("en")} of ${all.toLocaleString("en")}`} row${all === 1 ? "" : "s"}${selected ? `, ${selected} selected` : ""}`;
  };

  const each = make("button", { type: "button", className: "btn btn-small grid-each", title: "Filter by column: words, > 1ms, 10..20, !without" }, "Column filters");
  each.setAttribute("aria-pressed", "false");
  each.addEventListener("click", () => {
    const on = grid.wrap.classList.toggle("with-filters");
    each.setAttribute("aria-pressed", String(on));
    grid.columnFilters(on);
  });
  grid.wrap.prepend(make("div", { className: "grid-tools" }, filter, count, make("span", { className: "push" }), each, menu("Columns ▾", ...columnItems(grid)), copy, menu("Export ▾", ...exportItems(grid))));
  grid.onCount();
}
