// The panel of a selected slice: everything the trace says about it, and the slices it is linked to.

import { bytes, ns, pct } from "../lib/units.js";
import { copyButton, el } from "./dom.js";
import { category } from "./model.js";
import { clock, exactNs } from "./viewport.js";

const ROLE = {
  "launched by": "Launched by", launches: "Launches", operator: "Operator", forward: "Forward operator", backward: "Backward operator",
  to: "Flows to", from: "Flows from",
};

/**
 * @param {object} slice answer of GET …/slices/<id>/
 * @param {{kernelUrl: (id: number) => string, jump: (slice: object) => void, zoom: (slice: object) => void, merged: number}} context
 *   merged: how many slices the clicked entry stood for
 * @returns {HTMLElement}
 */
export function sliceDetails(slice, context) {
  const kind = category(slice.category);
  return el("div", { class: "tl-details" },
    el("header", { class: "tl-panel-head" },
      el("span", { class: "swatch", style: `--cat: var(${kind.css})` }),
      el("h2", { class: "mono", title: slice.name }, slice.short_name || slice.name),
      el("span", { class: "chip" }, kind.label),
      slice.kernel_id ? el("a", { class: "btn btn-small", href: context.kernelUrl(slice.kernel_id) }, "Open kernel") : null,
      el("button", { class: "btn btn-small", type: "button", onclick: () => context.zoom(slice) }, "Zoom to it (F)"),
      copyButton("Copy name", () => slice.name)),
    context.merged > 1 ? el("p", { class: "notice" }, `Longest of ${context.merged.toLocaleString("en-US")} slices that are closer together than a pixel here. Zoom in to see each.`) : null,
    el("div", { class: "tl-columns" }, facts("Slice", sliceFacts(slice)), launchColumn(slice), linkColumn(slice, context), detailColumn(slice)));
}

function sliceFacts(slice) {
  return [
    ["Name", el("span", { class: "mono tl-full" }, slice.name)],
    ["Start", num(clock(slice.start_ns), exactNs(slice.start_ns))],
    ["Duration", num(ns(slice.dur_ns), exactNs(slice.dur_ns))],
    ["End", num(clock(slice.start_ns + slice.dur_ns), exactNs(slice.start_ns + slice.dur_ns))],
    ["Track", `${slice.group} / ${slice.track_name}`],
    ["Depth", slice.depth > 0 ? slice.depth : null],
  ];
}

function launchColumn(slice) {
  const rows = [
    ["Grid", dims(slice.grid)], ["Block", dims(slice.block)],
    ["Threads", slice.grid && slice.block ? [...slice.grid, ...slice.block].reduce((a, b) => a * b, 1) : null],
    ["Registers per thread", slice.registers_per_thread],
    ["Shared memory per block", known(slice.smem_bytes) ? num(bytes(slice.smem_bytes), `${slice.smem_bytes.toLocaleString("en-US")} B`) : null],
    ["Occupancy", known(slice.occupancy_pct) ? el("span", {}, num(pct(slice.occupancy_pct), `${slice.occupancy_pct} %`), slice.occupancy_source ? el("span", { class: "muted" }, ` ${slice.occupancy_source}`) : null) : null],
    ["Bytes", known(slice.bytes) ? num(bytes(slice.bytes), `${slice.bytes.toLocaleString("en-US")} B`) : null],
    ["Bandwidth", known(slice.bytes) && slice.dur_ns > 0 && /mem/.test(slice.category) ? num(`${bytes((slice.bytes / slice.dur_ns) * 1e9)}/s`, "bytes / duration") : null],
    ["Device", slice.device], ["Stream", slice.stream],
    ["Correlation", slice.correlation], ["External id", slice.external_id],
    ["Launch delay", known(slice.launch_delay_ns) ? num(ns(slice.launch_delay_ns), `${exactNs(slice.launch_delay_ns)} from the launch call to its start on the GPU`) : null],
  ];
  return rows.some(([, value]) => known(value)) ? facts("Launch", rows) : null;
}

function linkColumn(slice, context) {
  if (!slice.links?.length) return null;
  return el("section", {}, el("h3", {}, "Linked slices"),
    el("ul", { class: "tl-links" }, slice.links.map((link) => el("li", {},
      el("span", { class: "muted" }, `${ROLE[link.role] ?? link.role} `),
      el("button", { class: "tl-jump", type: "button", title: `${link.name}\n${exactNs(link.start_ns)}`, onclick: () => context.jump(link) },
        el("span", { class: "swatch", style: `--cat: var(${category(link.category).css})` }), el("span", { class: "mono" }, link.name)),
      num(ns(link.dur_ns), exactNs(link.dur_ns))))));
}

function detailColumn(slice) {
  const rows = Object.entries(slice.detail ?? {}).filter(([, value]) => known(value) && value !== "")
    .map(([key, value]) => [key, el("span", { class: "mono tl-full" }, typeof value === "object" ? JSON.stringify(value) : String(value))]);
  return rows.length ? facts("Arguments", rows) : null;
}

function facts(title, rows) {
  return el("section", {}, el("h3", {}, title),
    el("dl", { class: "kv" }, rows.filter(([, value]) => known(value)).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, typeof value === "object" ? value : typeof value === "number" ? num(String(value)) : value)])));
}

const known = (value) => value !== null && value !== undefined;
const num = (text, exact) => el("span", { class: "num", title: exact ?? null }, text);
const dims = (xyz) => (xyz ? num(xyz.join(" × "), xyz.reduce((a, b) => a * b, 1).toLocaleString("en-US")) : null);
