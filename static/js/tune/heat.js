// Two parameters against each other: the best of each pair, as a table of buttons in the colours of slowness.

import { msAsTime } from "../lib/units.js";
import { cells, slowness } from "./space.js";

/** @typedef {import("./space.js").ValueAxis} ValueAxis */

/** @param {string} name @param {Record<string, any>} properties @param {(Node|string)[]} inside */
function make(name, properties, ...inside) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...inside);
  return element;
}

/**
 * @param {HTMLTableElement} table @param {import("./trials.js").Trial[]} trials @param {ValueAxis} x @param {ValueAxis} y
 * @param {number|null} best_ms @param {import("./space.js").Picks} picks @param {(values: [string, any][]) => void} pick
 */
export function drawHeat(table, trials, x, y, best_ms, picks, pick) {
  const found = cells(trials, x, y);
  const head = make("tr", {}, make("th", { scope: "col", className: "heat-corner" }, `${y.name} ↓ ${x.name} →`), ...x.values.map((value) => make("th", { scope: "col", className: "num" }, String(value))));
  const rows = found.map((row, down) => make("tr", {}, make("th", { scope: "row", className: "num" }, String(y.values[down])), ...row.map((cell, at) => {
    const chosen = picks.has(x.name, x.values[at]) && picks.has(y.name, y.values[down]);
    return make("td", { className: `heat ${kind(cell, best_ms)}${chosen ? " picked" : ""}` }, button(cell, best_ms, [[x.name, x.values[at]], [y.name, y.values[down]]], chosen, pick));
  })));
  const focused = table.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label")?.split(":")[0] : null;
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...rows.reverse());
  if (focused) [...table.querySelectorAll("button")].find((each) => each.getAttribute("aria-label")?.split(":")[0] === focused)?.focus();
}

/** @param {import("./space.js").Cell|null} cell */
const kind = (cell, best_ms) => !cell ? "never" : cell.best ? `s${slowness(cell.best.median_ms, best_ms)}` : "failed";

function button(cell, best_ms, pair, chosen, pick) {
  const where = pair.map(([name, value]) => `${name}=${value}`).join(" ");
  const shown = !cell ? "" : cell.best ? `${(cell.best.median_ms / best_ms).toFixed(2)}×` : "✕";
  const told = !cell ? "never tried" : cell.best ? `best ${msAsTime(cell.best.median_ms)}, ${shown} the best of all, ${cell.tried} tried${cell.rejected ? `, ${cell.rejected} failed` : ""}` : `all ${cell.tried} failed, mostly by ${cell.reason}`;
  const made = make("button", { type: "button", title: `${where}: ${told}`, disabled: !cell }, shown);
  made.setAttribute("aria-label", `${where}: ${told}`);
  made.setAttribute("aria-pressed", String(chosen));
  made.addEventListener("click", () => pick(chosen ? [] : pair));
  return made;
}
