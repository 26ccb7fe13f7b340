// The grouped table of an area: columns to group by as chips, the rows in the grid that all tables of the product are.

import { el } from "../widgets/dom.js";
import { basis, gridColumns, rowTitle } from "./selection.js";

const MOST_COLUMNS = 4;
const TOOLS_PX = 40;

/**
 * Chips of the columns that the table is grouped by, and a list of further ones.
 * @param {{key: string, title: string}[]} columns @param {string[]} by @param {(by: string[]) => void} change
 */
export function byChooser(columns, by, change) {
  const title = (key) => columns.find((column) => column.key === key)?.title ?? key.replace(/^arg:/, "");
  const add = el("select", { class: "tl-by-add", "aria-label": "Group by a further column", onchange: () => change([...by, add.value]) },
    el("option", { value: "" }, "+ column"), ...optionGroups(columns.filter(({ key }) => !by.includes(key))));
  return el("div", { class: "tl-by", role: "group", "aria-label": "Grouped by" }, el("span", { class: "muted" }, "By"),
    by.map((key) => el("span", { class: "chip" }, title(key), by.length > 1 ? el("button", { class: "tl-chip-x", type: "button", "aria-label": `Do not group by ${title(key)}`, onclick: () => change(by.filter((each) => each !== key)) }, "✕") : null)),
    by.length < MOST_COLUMNS ? add : null,
    by.length === 1 ? swapper(columns, by, change, title) : null);
}

/** One column alone can be changed into another at once. */
function swapper(columns, by, change, title) {
  const select = el("select", { "aria-label": "Group by another column", onchange: () => change([select.value]) },
    el("option", { value: by[0] }, `instead of ${title(by[0])}`), ...optionGroups(columns.filter(({ key }) => key !== by[0])));
  return select;
}

function optionGroups(columns) {
  const option = ({ key, title }) => el("option", { value: key }, title);
  const own = columns.filter(({ key }) => !key.startsWith("arg:")), given = columns.filter(({ key }) => key.startsWith("arg:"));
  return [el("optgroup", { label: "Columns" }, own.map(option)), given.length ? el("optgroup", { label: "Arguments" }, given.map(option)) : null].filter(Boolean);
}

/** @param {object} answer of GET …/selection/ @param {{columns: object[], chooser: HTMLElement, dataUrl: string, pick: (row: object) => void}} context */
export function groupTable(answer, { columns, chooser, dataUrl, pick }) {
  const by = answer.by.map((key) => columns.find((column) => column.key === key) ?? { key, title: key.replace(/^arg:/, ""), kind: "text" });
  const holder = el("div", { class: "tl-groups" });
  const element = el("div", { class: "tl-area-table" }, el("div", { class: "tl-tab-bar" }, chooser, el("span", { class: "push" }), el("span", { class: "muted" }, basis(answer))), holder);
  const rows = answer.rows.map((row, id) => ({ ...row, id, title: rowTitle(row, by) }));
  element.onShown = async () => {
    const { gridFrom } = await import("../../grid/grid.js"); // with the library that draws it: an area is the first to need it
    if (!element.isConnected) return; // another one was chosen meanwhile
    const room = Math.max(element.parentElement.clientHeight - holder.offsetTop + element.offsetTop - TOOLS_PX, 120);
    const grid = gridFrom(holder, gridColumns(by), rows, { name: "selection", url: false, file: "selection", api: dataUrl, maxHeight: `${room}px`, onPick: pick, empty: "Nothing ran here on the selected tracks" });
    element.grid = grid;
    grid.ready.then(() => { holder.dataset.ready = "1"; });
  };
  return element;
}
