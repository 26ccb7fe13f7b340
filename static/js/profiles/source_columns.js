// Which columns stand before the code, and what a cell of each says; the choice is remembered. No DOM but the menu.

import { count, pct, si } from "../lib/units.js";

const KEY = "ridgepoint.source.columns";
export const LIVE = "live";
const DEFAULT = [LIVE, "inst_executed"];

/** @typedef {{text: string, heat?: number, title?: string}} Cell */
/** @typedef {{name: string, label: string, title: string, width: number}} Column */

/** Columns that the address names, else those remembered, else a first choice. @param {URLSearchParams} asked @param {string[]} offered @returns {string[]} */
export function chosenColumns(asked, offered) {
  const named = asked.get("columns");
  if (named !== null) return named.split(",").filter((name) => offered.includes(name));
  let kept = null;
  try { kept = JSON.parse(localStorage.getItem(KEY) ?? "null"); } catch { /* storage is closed */ }
  return (Array.isArray(kept) ? kept : DEFAULT).filter((name) => offered.includes(name));
}

/** @param {string[]} names */
export function rememberColumns(names) {
  try { localStorage.setItem(KEY, JSON.stringify(names)); } catch { /* lasts for this page */ }
}

/** A change in the words of a table. @param {number|null} change @param {string} unit */
export function signed(change, unit) {
  if (change === null || !Number.isFinite(change)) return "—";
  if (Math.abs(change) < 0.005) return "=";
  return `${change > 0 ? "▲ +" : "▼ −"}${Number(Math.abs(change).toPrecision(3))}${unit}`;
}

/**
 * A measure and its baseline as cells: shares of each launch's own total, ratios as they are; no row of the baseline: the reason.
 * @param {{share: (name: string, value: number) => number, measure: (name: string) => any}} model @param {string} name of the measure
 * @param {number} value here @param {number|null|undefined} base there @param {number|undefined} total of the baseline @param {string} missing why there is none
 * @returns {Cell[]}
 */
export function besideCells(model, name, value, base, total, missing) {
  if (base === null || base === undefined) return [{ text: "—", title: missing }, { text: "—", title: missing }];
  const sums = model.measure(name).adds_up;
  if (!sums) return [{ text: si(base), title: `baseline: ${base}` }, { text: signed(value - base, ""), title: `${value} here, ${base} in the baseline` }];
  const here = model.share(name, value), there = total ? 100 * base / total : 0;
  return [{ text: pct(there), title: `baseline: ${count(base)}, ${pct(there)} of its launch` },
    { text: signed(here - there, ""), title: `${count(value)} here (${pct(here)}), ${count(base)} in the baseline (${pct(there)}): the difference in percentage points` }];
}

/** The menu of columns. @param {{name: string, label: string, meaning: string}[]} offered @param {string[]} chosen @param {(names: string[]) => void} changed @returns {HTMLElement} */
export function columnsMenu(offered, chosen, changed) {
  const menu = document.createElement("details");
  menu.className = "menu";
  menu.id = "source-columns";
  const summary = Object.assign(document.createElement("summary"), { className: "btn btn-small", textContent: "Columns ▾" });
  const body = Object.assign(document.createElement("div"), { className: "menu-body" });
  for (const each of offered) {
    const box = Object.assign(document.createElement("input"), { type: "checkbox", value: each.name, checked: chosen.includes(each.name) });
    const label = Object.assign(document.createElement("label"), { title: each.meaning });
    label.append(box, each.label);
    body.append(label);
  }
  body.addEventListener("change", () => {
    const names = [...body.querySelectorAll("input:checked")].map((box) => /** @type {HTMLInputElement} */ (box).value);
    rememberColumns(names);
    changed(names);
  });
  menu.addEventListener("keydown", (event) => { if (event.key === "Escape") { menu.open = false; summary.focus(); } });
  document.addEventListener("click", (event) => { if (!menu.contains(/** @type {Node} */ (event.target))) menu.open = false; });
  menu.append(summary, body);
  return menu;
}
