// The table of a selected area: what ran in it, summed by the columns that one chooses.

import { count, ns, pct } from "../../lib/units.js";
import { el } from "../widgets/dom.js";
import { category } from "../model/model.js";
import { clock, exactNs } from "../model/viewport.js";

const NUMBERS = [
  ["count", "Count", count, (x) => String(x), ""], ["total_ns", "Total", ns, exactNs, "ns", "Time within the selection: slices that reach over its edge are clipped"],
  ["whole_ns", "Whole", ns, exactNs, "ns", "Time of the same slices from their start to their end"], ["mean_ns", "Mean", ns, exactNs, "ns", "Of whole durations"],
  ["min_ns", "Min", ns, exactNs, "ns"], ["p50_ns", "p50", ns, exactNs, "ns", "Half of the slices are shorter"], ["p95_ns", "p95", ns, exactNs, "ns"],
  ["max_ns", "Max", ns, exactNs, "ns"], ["share_pct", "Share", pct, (x) => `${x} % of the summed time`, "%", "Of the summed time within the selection"],
];

/** Columns for lib/grid. @param {{key: string, title: string, kind: string}[]} by */
export function gridColumns(by) {
  return [
    ...by.map(({ key, title, kind }, i) => ({
      field: key, title, type: kind === "number" ? "number" : "text", width: i ? undefined : 260,
      format: kind === "category" ? (value) => swatch(value) : (value) => (value === null || value === undefined ? "—" : String(value)),
    })),
    ...NUMBERS.map(([field, title, show, exact, unit, help]) => ({ field, title, type: "number", unit, help, width: 76, format: (value) => el("span", { title: exact(value) }, show(value)) })),
  ];
}

const swatch = (word) => el("span", {}, el("span", { class: "swatch", style: `--cat: var(${category(word).css})` }), category(word).label);

/** What a row is about, in words. */
export const rowTitle = (row, by) => by.map(({ key }) => row[key] ?? "—").join(" · ");

/** What is known before the server answers. @param {{start: number, end: number, tracks: number[]}} area */
export const areaChips = ({ start, end, tracks }) => [
  el("span", { class: "chip", title: `${exactNs(start)} to ${exactNs(end)}` }, `${clock(start)} – ${clock(end)}`),
  el("span", { class: "chip" }, `${count(tracks.length)} ${tracks.length === 1 ? "track" : "tracks"}`),
];

/** Chips of the whole selection. @param {object} answer of GET …/selection/ @param {number} gpuTracks */
export function selectionChips(answer, gpuTracks) {
  const { start_ns: start, end_ns: end, busy_ns: busy } = answer, share = end > start ? (100 * busy) / (end - start) : 0;
  return [
    el("span", { class: "chip", title: `${exactNs(start)} to ${exactNs(end)}` }, `${clock(start)} – ${clock(end)}`),
    el("span", { class: "chip" }, `${count(answer.slices)} slices on ${count(answer.tracks)} tracks`),
    gpuTracks ? el("span", { class: "chip", title: `${exactNs(busy)} in which at least one selected GPU track worked` }, "GPU busy ", el("b", {}, `${ns(busy)} (${pct(share)})`))
      : el("span", { class: "chip", title: "No GPU stream is among the selected tracks" }, "GPU busy —"),
  ];
}

/** What the numbers rest on: all slices; and where quantiles are of classes. */
export function basis(answer) {
  const rows = answer.truncated ? `The ${answer.rows.length.toLocaleString("en-US")} rows of most time of ${answer.groups.toLocaleString("en-US")}; Share counts all. ` : "";
  return `${rows}Exact, from all ${answer.slices.toLocaleString("en-US")} stored slices${answer.quantiles === "exact" ? "" : `; p50 and p95 from ${answer.quantiles}`}.`;
}
