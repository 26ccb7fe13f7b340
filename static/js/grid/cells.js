// What the headings and cells of a server's table say: names, types, raw values.

import { quantity } from "./query.js";

/** @param {string} title @param {number} index "GPU time (ns)" -> "gpu_time_ns": what the URL calls a column */
export function fieldName(title, index) {
  return title.toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_+|_+$/g, "") || `column_${index}`;
}

/** @param {HTMLTableRowElement} head its last heading row @returns {import("./base.js").Column[]} */
export function headColumns(head) {
  const seen = new Set();
  return [...head.cells].map((th, index) => {
    const title = wordsOf(th);
    let field = th.dataset.field ?? fieldName(title, index);
    if (seen.has(field)) field += `_${index}`;
    seen.add(field);
    return { field, title: th.classList.contains("actions") ? "" : title, type: /** @type {any} */ (th.dataset.type ?? (th.classList.contains("num") ? "number" : "text")), unit: th.dataset.unit ?? "", hidden: "hidden" in th.dataset };
  });
}

/**
 * The raw value of a cell: what the server states for machines (`data-value`), else a moment, else the number that is shown, exact
 * where the server says it on hover. @param {HTMLTableCellElement|undefined} td @param {import("./base.js").Column} column
 * @returns {number|string|null} a number in the column's unit; null: unknown
 */
export function cellValue(td, column) {
  if (!td) return null;
  const text = wordsOf(td);
  if (column.type !== "number") return td.dataset.value ?? td.querySelector("time[datetime]")?.getAttribute("datetime") ?? text;
  if (td.dataset.value !== undefined) {
    const number = td.dataset.value === "" || td.dataset.value === "None" ? NaN : Number(td.dataset.value.replace(/,/g, ""));
    return Number.isFinite(number) ? number : null;
  }
  const shown = quantity(text);
  if (!shown) return null;
  const exact = quantity(td.querySelector(".num[title]")?.getAttribute("title") ?? "");
  const value = exact && exact.unit === shown.unit ? exact.value : shown.value;
  if (!column.unit) column.unit = shown.unit;
  const own = column.unit === shown.unit ? 1 : quantity(`1 ${column.unit}`);
  return own === 1 ? value : own?.unit === shown.unit ? value / own.value : value;
}

/** What a cell says, however its markup is laid out. @param {HTMLElement} element */
const wordsOf = (element) => (element.textContent ?? "").trim().replace(/\s+/g, " ");

/** What filters see: the text, the full value behind it, and what is said on hover. @param {HTMLTableCellElement|undefined} td */
export function cellText(td) {
  if (!td) return "";
  const titles = [...td.querySelectorAll("[title]")].map((element) => element.getAttribute("title"));
  return `${wordsOf(td)} ${td.dataset.value ?? ""} ${td.title} ${titles.join(" ")}`;
}
