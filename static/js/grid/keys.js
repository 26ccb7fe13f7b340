// Keyboard in a table: ↑ ↓ PgUp PgDn Home End move, Shift extends, Space toggles, Enter follows the row's link,
// Ctrl+A selects all, Ctrl+C copies the selection.

import { bind, isTyping } from "../lib/keys.js";
import { copyText } from "./tools.js";

const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity };
let listed = false;

/** @param {any} grid */
export function addKeys(grid) {
  const holder = grid.holder.querySelector(".tabulator-tableholder");
  holder.tabIndex = 0;
  holder.setAttribute("aria-label", `Rows${grid.name ? ` of ${grid.name}` : ""}: arrow keys move, Enter opens, Space selects`);
  let current = null; // row component
  let anchor = -1;

  function move(event, rows) {
    const at = current ? rows.findIndex((row) => row.getIndex() === current.getIndex()) : -1;
    const next = Math.min(rows.length - 1, Math.max(0, at + STEPS[event.key]));
    if (!event.shiftKey || anchor < 0) anchor = next;
    grid.table.deselectRow();
    grid.table.selectRow(rows.slice(Math.min(anchor, next), Math.max(anchor, next) + 1));
    current?.getElement().classList.remove("current");
    current = rows[next];
    grid.table.scrollToRow(current, "nearest", false).catch(() => {});
    current.getElement().classList.add("current");
  }

  holder.addEventListener("keydown", (event) => {
    if (isTyping(event.target)) return;
    const control = event.ctrlKey || event.metaKey;
    if (event.key in STEPS && !control) {
      const rows = grid.table.getRows("active");
      if (rows.length) move(event, rows);
    } else if (event.key === "Enter" && current && event.target === holder) {
      if (grid.options.onPick) grid.options.onPick(current.getData());
      else current.getElement().querySelector("a[href]")?.click();
    } else if (event.key === " " && current && event.target === holder) {
      current.toggleSelect();
    } else if (control && event.key === "a") {
      grid.table.selectRow("active");
    } else if (control && event.key === "c" && !String(getSelection())) {
      copyText(grid.tsv(), grid.copyButton ?? document.createElement("span"));
    } else if (event.key === "Escape") {
      grid.table.deselectRow();
      return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  if (listed) return;
  listed = true;
  for (const [keys, what] of [["↑ ↓", "Move between rows (Shift extends)"], ["Enter", "Open the row"], ["Ctrl+C", "Copy the selected rows"]]) bind(keys, what, null, "In a table");
}
