// The panel of a selected slice: everything the trace says about it, and the slices it is linked to.

import { bytes, ns, pct } from "../../lib/units.js";
import { copyButton, el } from "../widgets/dom.js";
import { category } from "../model/model.js";
import { clock, exactNs } from "../model/viewport.js";

const ROLE = {
  "launched by": "Launched by", launches: "Launches", operator: "Operator", forward: "Forward operator", backward: "Backward operator",
  to: "Flows to", from: "Flows from", calls: "Launch calls",
};
const STACK = /^(call stack|python stack|stack)$/i;     // arguments that hold frames

/**
 * @param {object} slice answer of GET …/slices/<id>/
 * @param {{kernelUrl: (id: number) => string, jump: (slice: object) => void, zoom: (slice: object) => void, merged: number,
 *   more: ?HTMLElement}} context merged: how many slices the clicked entry stood for; more: a section of its own
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
    el("div", { class: "tl-columns" }, facts("Slice", sliceFacts(slice)), launchColumn(slice), linkColumn(slice, context), context.more, stackColumn(slice, context), detailColumn(slice)));
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
    ["Launched in step", slice.is_kernel ? slice.step_launched : null], ["Ran in step", slice.is_kernel ? slice.step_ran : null],
    ["Launch delay", known(slice.launch_delay_ns) ? num(ns(slice.launch_delay_ns), `${exactNs(slice.launch_delay_ns)} from the launch call to its start on the GPU`) : null],
  ];
  return rows.some(([, value]) => known(value)) ? facts("Launch", rows) : null;
}

function linkColumn(slice, context) {
  if (!slice.links?.length) return null;
  const shown = Object.entries(slice.link_counts ?? {}).filter(([role, n]) => n > slice.links.filter((link) => link.role === role).length);
  return el("section", {}, el("h3", {}, "Linked slices"),
    el("ul", { class: "tl-links" }, slice.links.map((link) => el("li", {}, el("span", { class: "muted" }, `${ROLE[link.role] ?? link.role} `), jumpTo(link, context)))),
    shown.map(([role, n]) => el("p", { class: "muted" }, `${ROLE[role] ?? role}: ${n.toLocaleString("en-US")} in all; those nearest to the view are listed and drawn.`)));
}

/** A slice as a button that goes there, with its duration. */
export const jumpTo = (slice, context) => [
  el("button", { class: "tl-jump", type: "button", title: `${slice.name}\n${exactNs(slice.start_ns)}`, onclick: () => context.jump(slice) },
    el("span", { class: "swatch", style: `--cat: var(${category(slice.category).css})` }), el("span", { class: "mono" }, slice.title ?? slice.name)),
  num(ns(slice.dur_ns), exactNs(slice.dur_ns))];

/** What is around it, innermost first: of a kernel, around its launch call; and frames that the file itself tells. */
function stackColumn(slice, context) {
  const told = Object.entries(slice.detail ?? {}).filter(([key]) => STACK.test(key)).flatMap(([, value]) => frames(value));
  const around = slice.stack ?? [];
  if (!told.length && !around.length) return null;
  const text = () => [...around.map((frame) => frame.name), ...told].join("\n");
  return el("section", { class: "tl-stack" }, el("h3", {}, "Stack ", copyButton("Copy stack", text)),
    around.length ? el("ol", { class: "tl-links" }, around.map((frame) => el("li", {}, jumpTo(frame, context)))) : null,
    told.length ? el("ol", { class: "tl-frames mono" }, told.map((frame) => el("li", {}, frame))) : null);
}

/** Frames of a text such as "file.py(3): f;other.py(4): g", or of a list. */
export const frames = (value) => (Array.isArray(value) ? value.map(String) : String(value).split(/;\s*|\r?\n/)).map((frame) => frame.trim()).filter(Boolean);


function detailColumn(slice) {
  const rows = Object.entries(slice.detail ?? {}).filter(([key, value]) => known(value) && value !== "" && !STACK.test(key))
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
