// The panel of a selected area: what ran in it, summed by name. Sorts, copies and exports itself.

import { count, ns, pct } from "../lib/units.js";
import { copyButton, download, el } from "./dom.js";
import { category } from "./model.js";
import { clock, exactNs } from "./viewport.js";

export const COLUMNS = [
  { key: "name", title: "Name", text: true }, { key: "category", title: "Category", text: true },
  { key: "count", title: "Count", show: count }, { key: "total_ns", title: "Total", show: ns, exact: exactNs },
  { key: "mean_ns", title: "Mean", show: ns, exact: exactNs }, { key: "min_ns", title: "Min", show: ns, exact: exactNs },
  { key: "max_ns", title: "Max", show: ns, exact: exactNs }, { key: "share_pct", title: "Share", show: pct, exact: (x) => `${x} % of the summed time` },
];

/** Rows ordered by a column, numbers by size, texts by alphabet; equal ones keep their order. */
export function sortRows(rows, key, descending) {
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => sign * (typeof a[key] === "string" ? a[key].localeCompare(b[key]) : a[key] - b[key]));
}

/** RFC 4180; a text that a spreadsheet would take for a formula gets an apostrophe. */
export function toCsv(rows) {
  const cell = (value) => {
    const text = typeof value === "string" && /^[=+\-@\t]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [COLUMNS.map((c) => c.key), ...rows.map((row) => COLUMNS.map((c) => row[c.key]))].map((line) => line.map(cell).join(",")).join("\r\n");
}

const toText = (rows) => [COLUMNS.map((c) => c.key), ...rows.map((row) => COLUMNS.map((c) => row[c.key]))].map((line) => line.join("\t")).join("\n");

/**
 * @param {object} answer of GET …/selection/ @param {{zoom: () => void, search: (name: string) => void, dataUrl: string, gpuTracks: number}} context
 * @returns {HTMLElement}
 */
export function selectionDetails(answer, context) {
  const span = answer.end_ns - answer.start_ns;
  let order = { key: "total_ns", descending: true };
  const body = el("tbody");
  const fill = () => body.replaceChildren(...sortRows(answer.rows, order.key, order.descending).map((row) => tableRow(row, context)));
  const headers = COLUMNS.map((column) => el("th", { class: column.text ? null : "num", scope: "col" },
    el("button", { class: "tl-sort", type: "button", onclick: () => sort(column) }, column.title)));
  const sort = (column) => {
    order = { key: column.key, descending: order.key === column.key ? !order.descending : !column.text };
    mark();
    fill();
  };
  const mark = () => COLUMNS.forEach((column, i) => headers[i].setAttribute("aria-sort", column.key === order.key ? (order.descending ? "descending" : "ascending") : "none"));
  mark();
  fill();
  return el("div", { class: "tl-details" },
    el("header", { class: "tl-panel-head" },
      el("h2", {}, el("span", { class: "num", title: exactNs(span) }, ns(span)), " selected"),
      el("span", { class: "chip", title: `${exactNs(answer.start_ns)} to ${exactNs(answer.end_ns)}` }, `${clock(answer.start_ns)} – ${clock(answer.end_ns)}`),
      el("span", { class: "chip" }, `${count(answer.slices)} slices on ${count(answer.tracks)} tracks`),
      busyChip(answer, context.gpuTracks),
      el("button", { class: "btn btn-small", type: "button", onclick: context.zoom }, "Zoom to it (F)"),
      copyButton("Copy", () => toText(sortRows(answer.rows, order.key, order.descending))),
      el("button", { class: "btn btn-small", type: "button", onclick: () => download("selection.csv", "text/csv", toCsv(sortRows(answer.rows, order.key, order.descending))) }, "CSV"),
      el("a", { class: "btn btn-small", href: context.dataUrl }, "JSON")),
    answer.truncated ? el("p", { class: "notice" }, `The ${answer.rows.length} names with the most time; there are more. Share counts all of them.`) : null,
    answer.rows.length
      ? el("div", { class: "table-scroll" }, el("table", { class: "plain tl-summary" }, el("thead", {}, el("tr", {}, headers)), body))
      : el("p", { class: "muted" }, "Nothing ran here on the selected tracks."));
}

function busyChip({ busy_ns: busy, start_ns: start, end_ns: end }, gpuTracks) {
  if (!gpuTracks) return el("span", { class: "chip", title: "No GPU stream is among the selected tracks" }, "GPU busy —");
  const share = end > start ? (100 * busy) / (end - start) : 0;
  return el("span", { class: "chip", title: `${exactNs(busy)} in which at least one selected GPU track worked` }, "GPU busy ", el("b", {}, `${ns(busy)} (${pct(share)})`));
}

function tableRow(row, context) {
  return el("tr", {}, COLUMNS.map((column) => {
    if (column.key === "name") return el("td", { class: "name", title: row.name }, el("button", { class: "tl-jump", type: "button", title: `Search ${row.name}`, onclick: () => context.search(row.name) }, row.name));
    if (column.key === "category") return el("td", {}, el("span", { class: "swatch", style: `--cat: var(${category(row.category).css})` }), category(row.category).label);
    return el("td", { class: "num", title: (column.exact ?? String)(row[column.key]) }, column.show(row[column.key]));
  }));
}
