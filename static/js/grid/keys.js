// Keyboard in a table: j k ↑ ↓ PgUp PgDn Home End move, Shift extends, Space toggles, Enter follows the row's link,
// Ctrl+A selects all, Ctrl+C copies the selection. Where nothing has the focus, j and k go to the page's first table.

import { bind, isTyping } from "../lib/keys.js";
import { copyText } from "./tools.js";

const STEPS = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity };
let listed = false;

/** @param {any} grid @param {HTMLElement} holder what scrolls, and takes the focus @param {string} role what it is beside the rest of the table */
export function addKeys(grid, holder = grid.scroller, role = "group") {
  holder.tabIndex = 0;
  holder.dataset.rows = "";
  holder.setAttribute("role", role);
  holder.setAttribute("aria-label", `Rows${grid.name ? ` of ${grid.name}` : ""}: j and k move, Enter opens, Space selects`);
  let current = null;
  let anchor = -1;

  grid.current = (row) => {
    if (current) grid.element(current)?.classList.remove("current");
    current = row;
    grid.element(row)?.classList.add("current");
  };

  function move(event, rows) {
    const at = current ? rows.findIndex((row) => grid.same(row, current)) : -1;
    const next = Math.min(rows.length - 1, Math.max(0, at + STEPS[event.key]));
    if (!event.shiftKey || anchor < 0) anchor = next;
    grid.select(rows.slice(Math.min(anchor, next), Math.max(anchor, next) + 1));
    grid.reveal(rows[next]);
    grid.current(rows[next]);
  }

  holder.addEventListener("keydown", (event) => {
    if (isTyping(event.target)) return;
    const control = event.ctrlKey || event.metaKey;
    if (event.key in STEPS && !control && !event.altKey) {
      const rows = grid.active();
      if (rows.length) move(event, rows);
    } else if (event.key === "Enter" && current && event.target === holder) {
      grid.pick(current);
    } else if (event.key === " " && current && event.target === holder) {
      grid.toggle(current);
    } else if (control && event.key === "a" && event.target === holder) {
      grid.select(grid.active());
    } else if (control && event.key === "c" && !String(getSelection())) {
      copyText(grid.tsv(), grid.copyButton ?? document.createElement("span"));
    } else if (event.key === "Escape") {
      grid.select([]);
      return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  if (listed) return;
  listed = true;
  for (const [keys, what] of [["j k", "Next, previous row (Shift extends)"], ["Enter", "Open the row"], ["Ctrl+C", "Copy the selected rows"], ["Shift ← →", "Column narrower, wider (on its heading)"]]) bind(keys, what, null, "In a table");
  document.addEventListener("keydown", (event) => {
    if (event.target !== document.body || !["j", "k"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const first = document.querySelector(".grid-wrap [data-rows]");
    if (!(first instanceof HTMLElement) || document.querySelector(".tl, dialog[open]")) return; // a timeline has keys of its own
    first.focus();
    first.dispatchEvent(new KeyboardEvent("keydown", { key: event.key, bubbles: true, cancelable: true }));
  });
}
