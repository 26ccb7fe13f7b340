// What one launch leads to: the other launches of its kernel, counters taken elsewhere, a capture, a tune job; each a click away.

import { getStream } from "../../lib/http.js";
import { ns, si } from "../../lib/units.js";
import { jumpTo } from "./details.js";
import { el } from "../widgets/dom.js";
import { clock, exactNs } from "../model/viewport.js";
import { working } from "../widgets/working.js";

const LISTED = 30;

/**
 * @param {object} slice answer of GET …/slices/<id>/ @param {import("../data/api.js").Api} api @param {AbortSignal} signal ends it
 * @param {{jump: (slice: object) => void, kernelUrl: (id: number) => string, all: () => void}} context all: select every slice of the name
 * @returns {HTMLElement} filled as answers arrive
 */
export function launchesCard(slice, api, signal, context) {
  const others = el("div", {}), forms = el("div", {});
  const noun = slice.is_kernel ? "launches of this kernel" : "slices of this name";
  const card = el("section", { class: "tl-launches" },
    el("h3", {}, `All ${noun} `, el("button", { class: "btn btn-small", type: "button", title: "Table, histogram and flame graph of them", onclick: context.all }, "Select them all")),
    others, slice.is_kernel ? forms : null);
  listOthers(others, slice, api, signal, context);
  if (slice.is_kernel) listForms(forms, slice, api, signal);
  return card;
}

async function listOthers(host, slice, api, signal, context) {
  const asked = { start: 0, end: Math.ceil(slice.start_ns + slice.dur_ns) + 10 ** 15, limit: LISTED, where: slice.name_key, stream: 1 };
  const answer = await working(host, "Looking for the others", signal, (inner, onProgress) => getStream(api.url("selection/slices/", asked), { signal: inner, onProgress }));
  if (!answer) return;
  host.replaceChildren(
    el("p", { class: "muted" }, el("b", { class: "num" }, answer.total.toLocaleString("en-US")), answer.total > LISTED ? `, the first ${LISTED} here. ` : " in the trace. ",
      slice.kernel_id ? el("a", { href: context.kernelUrl(slice.kernel_id) }, "Open the kernel's page") : null),
    el("ol", { class: "tl-links tl-launch-list" }, answer.slices.map((each) => el("li", { class: each.id === slice.id ? "current" : null }, jumpTo({ ...each, title: clock(each.start_ns) }, context)))));
}

async function listForms(host, slice, api, signal) {
  const answer = await working(host, "Looking for counters", signal, (inner, onProgress) => getStream(api.url(`slices/${slice.id}/kernel/`, { stream: 1 }), { signal: inner, onProgress }));
  if (!answer) return;
  const { capture, counters, tune, index, matching, bare_name: bare } = answer;
  const forGuest = Boolean(document.body.dataset.shared);      // who has a link: forms would ask for a sign-in
  host.replaceChildren(
    forGuest ? null : el("p", { class: "tl-actions" },
      el("a", { class: "btn btn-small", href: capture, title: `Nsight Compute, kernel “${bare}”, launch skip ${matching}, launch count 1` }, "Capture counters"),
      tune.url ? el("a", { class: "btn btn-small", href: tune.url, title: tuneTitle(tune) }, `Tune ${tune.operator}`) : null),
    el("p", { class: "muted" }, `Launch ${index + 1} of this kernel in the trace${matching !== index ? `, ${matching + 1} of all whose name holds “${bare}”` : ""}; a capture counts from the start of its program.`),
    tune.why ? el("p", { class: "muted" }, tune.why) : el("p", { class: "muted" }, tuneTitle(tune)),
    counters.length ? counters.map(counterFacts) : el("p", { class: "muted" }, "No profile with counters holds this kernel yet."));
}

const tuneTitle = ({ shape, source, dtype }) => (source ? `${Object.entries(shape).map(([name, value]) => `${name}=${value}`).join(" ")}${dtype ? `, ${dtype}` : ""}: the shape of ${source}` : "The trace does not tell the shape: the form's first preset");

/** Key numbers of the same kernel in a profile with counters. */
function counterFacts(found) {
  const facts = [["Mean duration", el("span", { title: exactNs(Math.round(found.mean_ns)) }, ns(found.mean_ns))], ...Object.entries(found.numbers).map(([name, value]) => [name.replace(/ %$/, ""), name.endsWith("%") ? `${value.toFixed(1)} %` : si(value)])];
  return el("div", { class: "tl-counters" },
    el("p", {}, "Counters: ", el("a", { href: found.url }, found.profile_name), found.build ? ` (build ${found.build}${found.same_build ? ", the same" : ""})` : "", found.gpu ? ` on ${found.gpu}` : "", found.bound ? el("span", { class: "chip", title: found.bound_reason }, `${found.bound} bound`) : null, found.recorded ? el("span", { class: "recorded" }, found.recorded) : null),
    el("dl", { class: "kv" }, facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", { class: "num" }, value)])));
}
