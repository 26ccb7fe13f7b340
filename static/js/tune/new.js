// The form of a new job: presets, types and devices that fit the operator, efforts, how long it takes and what it is worth.
// Works without too.

import { checkForm } from "../lib/check_form.js";
import { getJson } from "../lib/http.js";
import { ns } from "../lib/units.js";
import { editSpace } from "./space_edit.js";
import { canonical, duration, effortOf, fits, predict, shapesOf } from "./new_model.js";

/** @typedef {{shape: string, valid: number, trial_s: number|null}} ReplayShape */
/** @typedef {{operator: string|null, dtype: string|null, label: string, why_not: string, shapes: ReplayShape[]}} Device */
/** @typedef {{dtypes: string[], presets: string[], dims: {name: string, meaning: string}[]}} Operator */

const WORTH_WAIT_MS = 350;
const facts = JSON.parse(document.getElementById("tune-facts").textContent);
const form = /** @type {HTMLFormElement} */ (document.getElementById("tune-form"));
const field = (name) => /** @type {any} */ (form.elements.namedItem(name));
const typed = field("shape") !== null; // else shapes of a profile are ticked
const ticked = () => /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll("[name=hot]:checked")]);
const number = (name) => field(name).value.trim() === "" || Number.isNaN(Number(field(name).value)) ? null : Number(field(name).value);
const numbers = () => ({ trials: number("budget_trials"), seconds: number("budget_seconds"), plateau: number("plateau") });

/** Whether trials without a gain may end the search: not one of the whole space. */
const endsByPlateau = () => !facts.whole_space.includes(field("strategy").value);

/** @returns {Operator} */
const operator = () => facts.operators[field("operator").value];
/** @returns {Device} */
const device = () => facts.devices[field("device").value];

function limitDevices() {
  for (const option of field("device").options) {
    const one = facts.devices[option.value];
    option.disabled = one.operator !== null && one.operator !== field("operator").value;
    option.hidden = option.disabled;
  }
  if (field("device").selectedOptions[0]?.disabled) {
    const free = [...field("device").options].filter((option) => !option.disabled);
    field("device").value = (free.find((option) => !facts.devices[option.value].why_not) ?? free[0])?.value ?? "";
  }
}

function limitTypes() {
  const allowed = device()?.dtype ? [device().dtype] : operator().dtypes;
  for (const option of field("dtype").options) option.hidden = option.disabled = !allowed.includes(option.value);
  if (!allowed.includes(field("dtype").value)) field("dtype").value = allowed[0];
}

/** A preset is put in, or taken out where it stands already among others. @param {string} shape */
function press(shape, more) {
  const shapes = shapesOf(field("shape").value), rest = shapes.filter((one) => canonical(one) !== canonical(shape));
  field("shape").value = (more ? rest.length < shapes.length && rest.length ? rest : [...rest, shape] : [shape]).join("\n");
  show();
  checker.check();
}

function showPresets() {
  const shapes = device()?.operator ? device().shapes.map(({ shape }) => shape) : operator().presets;
  document.getElementById("presets").replaceChildren(...shapes.map((shape) => {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "btn btn-small mono", textContent: shape, title: "Click: this shape. Ctrl or Shift and click: this one too." });
    button.addEventListener("click", (event) => press(shape, event.ctrlKey || event.metaKey || event.shiftKey));
    return button;
  }));
  const recorded = device()?.operator !== null;
  document.getElementById("dims-help").textContent = `${operator().dims.map(({ name, meaning }) => `${name}: ${meaning}`).join("; ")}.${recorded ? " A replay serves the recorded shapes only." : ""}`;
  if (!shapesOf(field("shape").value).some((shape) => fits(shape, operator().dims))) field("shape").value = shapes[0] ?? "";
  markPresets();
}

/** Which presets stand in the text, however they are written. */
function markPresets() {
  const here = new Set(shapesOf(field("shape").value).map(canonical));
  for (const button of document.querySelectorAll("#presets button")) {
    const pressed = here.has(canonical(button.textContent));
    button.setAttribute("aria-pressed", String(pressed));
    button.classList.toggle("btn-primary", pressed);
  }
  field("shape").rows = Math.min(12, Math.max(1, field("shape").value.split("\n").length));
}

/** What ends a search, and what it takes. */
function predicted() {
  field("plateau").disabled = !endsByPlateau();
  const note = document.getElementById("predicted"), chosen = device(), shapes = typed ? shapesOf(field("shape").value) : ticked().map(({ value }) => value);
  const one = (shape) => {
    const recorded = chosen?.shapes.find((each) => canonical(each.shape) === canonical(shape)), name = typed ? field("operator").value : shape.split(" ")[0];
    const trial_s = recorded?.trial_s ?? (chosen?.operator ? null : facts.gpu_trial_by_operator[name] ?? facts.gpu_trial_s);
    const valid = left ?? recorded?.valid;
    return trial_s ? { ...predict({ ...numbers(), ...(endsByPlateau() ? {} : { plateau: null }) }, trial_s, valid ?? Infinity), trial_s, valid } : null;
  };
  const found = shapes.map(one), known = found.filter((each) => each !== null);
  note.hidden = !chosen || !known.length || !Number.isFinite(known[0].most_s) || known.length < found.length;
  if (note.hidden) return;
  const sum = (pick) => known.reduce((total, each) => total + pick(each), 0), least = sum((each) => each.least_s), most = sum((each) => each.most_s), first = known[0];
  const range = duration(least) === duration(most) ? `about ${duration(most)}` : `between ${duration(least)} and ${duration(most)}`;
  const why = chosen.operator ? "replayed faster than it was recorded" : facts.gpu_trial_known ? "from the jobs that ran" : "assumed: no job has run on a GPU here";
  const trials = Number.isFinite(first.trials) ? `${first.trials} trial${first.trials === 1 ? "" : "s"} at most` : "";
  note.textContent = `Takes ${range}${known.length > 1 ? ` for ${known.length} shapes on one worker` : ""}: ${trials}${first.valid ? ` of ${first.valid} valid configurations` : ""}, ${first.trial_s.toPrecision(2)} s each (${why})${first.by === "seconds" ? "; the seconds end it first" : ""}${first.least_s < first.most_s ? "; less when nothing is won any more" : ""}.${chosen.label ? ` Numbers are ${chosen.label}.` : ""}`;
}

/** An effort fills in its numbers; numbers of one's own choose "own". */
function takeEffort() {
  const effort = facts.efforts[field("effort").value];
  if (effort) for (const [name, value] of [["budget_trials", effort.trials], ["budget_seconds", effort.seconds], ["plateau", effort.plateau ?? ""]]) field(name).value = value;
  predicted();
  tellEffort();
}

function tellEffort() {
  document.getElementById("effort-help").textContent = facts.efforts[field("effort").value]?.explanation ?? "The search ends with whichever of these numbers is reached first.";
}

let worthTimer = 0;
/** GPU time of the profiles here × expected gain. */
function tellWorth() {
  clearTimeout(worthTimer);
  const note = document.getElementById("worth");
  if (!note) { nameStart(); return; }
  worthTimer = setTimeout(async () => {
    const shapes = shapesOf(field("shape").value).filter((shape) => fits(shape, operator().dims));
    if (shapes.length !== 1) { note.hidden = true; return; }
    const query = new URLSearchParams({ operator: field("operator").value, dtype: field("dtype").value, device: field("device").value });
    for (const part of canonical(shapes[0]).split(" ")) query.set(...part.split("="));
    try {
      const told = await getJson(`${note.dataset.api}?${query}`);
      note.hidden = false;
      note.textContent = told.seconds === null ? `Worth: unknown, because ${told.why}.`
        : `Worth ${ns(told.seconds * 1e9)} of the ${ns(told.fleet_s * 1e9)} of GPU time that ${told.profiles} profile${told.profiles === 1 ? "" : "s"} saw in this shape: ${(100 * told.gain).toFixed(0)} % expected gain (${told.why}).`;
    } catch { note.hidden = true; }
  }, WORTH_WAIT_MS);
}

/** @type {{refresh: () => void}|null} */
let space = null;
/** @type {number|null} */
let left = null; // configurations that an edited space leaves

let waits = false; // no living worker can take it

/** What the button does: start, or put into a queue that nobody serves now. */
function nameStart() {
  const known = ticked().map((box) => box.dataset.worth).filter(Boolean).map(Number), jobs = typed ? shapesOf(field("shape").value).length : ticked().length;
  const worth = known.some((each) => each > 0) ? `, worth ${ns(1e9 * known.reduce((a, b) => a + b, 0))} of recorded GPU time` : "";
  const what = typed && jobs < 2 ? "" : ` ${jobs} job${jobs === 1 ? "" : "s"}`;
  document.getElementById("start").textContent = jobs ? `${waits ? "Queue" : "Start"}${what || (waits ? " it anyway" : " tuning")}${worth}` : "Start tuning";
}

/** @param {{queue: {text: string, why_not: string}|null}} answer */
function tellQueue({ queue }) {
  const note = document.getElementById("queue-state");
  waits = Boolean(queue?.why_not);
  note.hidden = !queue;
  note.textContent = queue?.text ?? "";
  note.classList.toggle("notice-warn", waits);
  nameStart();
}

function show() {
  if (typed) { limitDevices(); limitTypes(); showPresets(); }
  predicted();
  tellEffort();
  tellWorth();
  space?.refresh();
}

/** What a job of the first shape would search; null while it is none. */
function problem() {
  const [first] = shapesOf(field("shape").value);
  if (!first || !fits(first, operator().dims) && device()?.operator === null) return null;
  const shape = Object.fromEntries(canonical(first).split(" ").map((part) => part.split("=")).map(([name, value]) => [name, Number(value)]));
  return { operator: field("operator").value, shape, dtype: field("dtype").value, device: field("device").value };
}


if (typed) {
  field("operator").addEventListener("change", show);
  field("dtype").addEventListener("change", () => { tellWorth(); space?.refresh(); });
  field("shape").addEventListener("input", () => { markPresets(); predicted(); tellWorth(); space?.refresh(); });
}
field("device").addEventListener("change", show);
for (const box of form.querySelectorAll("[name=hot]")) box.addEventListener("change", () => { predicted(); tellWorth(); });
for (const radio of form.querySelectorAll("[name=effort]")) radio.addEventListener("change", takeEffort);
for (const radio of form.querySelectorAll("[name=strategy]")) radio.addEventListener("change", predicted);
for (const name of ["budget_trials", "budget_seconds", "plateau"]) field(name).addEventListener("input", () => { field("effort").value = effortOf(facts.efforts, numbers()); tellEffort(); predicted(); });
/** A space that is wrong says so itself; what else is wrong stands at its field. */
const fieldOf = (name) => /** @type {any} */ (name === "space" ? document.getElementById("space-rules") : form.querySelector(`[name="${CSS.escape(name)}"]`));
const checker = checkForm(form, { fieldOf, url: form.dataset.check, body: () => ({ form: new URLSearchParams(/** @type {any} */ (new FormData(form))).toString() }), onAnswer: tellQueue });
form.addEventListener("submit", (event) => { /** @type {HTMLButtonElement} */ (document.getElementById("start")).disabled = !event.defaultPrevented; });
addEventListener("pageshow", () => { /** @type {HTMLButtonElement} */ (document.getElementById("start")).disabled = false; });
if (typed) space = editSpace(document.getElementById("tune-space"), { field: field("space"), problem, onEdit: () => checker.check(), onCount: (valid) => { left = valid; predicted(); } });
document.getElementById("from-profile")?.addEventListener("change", (event) => { /** @type {HTMLSelectElement} */ (event.target).form.requestSubmit(); });
show();
