// The form of a new job: presets, types and devices that fit the operator, and how long it will take. Works without too.

/** @typedef {{shape: string, valid: number, trial_s: number|null}} ReplayShape */
/** @typedef {{operator: string|null, dtype: string|null, label: string, why_not: string, shapes: ReplayShape[]}} Device */
/** @typedef {{dtypes: string[], presets: string[], dims: {name: string, meaning: string}[]}} Operator */

const facts = JSON.parse(document.getElementById("tune-facts").textContent);
const form = /** @type {HTMLFormElement} */ (document.getElementById("tune-form"));
const field = (name) => /** @type {any} */ (form.elements.namedItem(name));

/** @returns {Operator} */
const operator = () => facts.operators[field("operator").value];
/** @returns {Device} */
const device = () => facts.devices[field("device").value];

/** "N=64, M = 2" and "M=2 N=64" are one shape. @param {string} text */
function canonical(text) {
  const parts = [...text.matchAll(/([A-Za-z_]\w*)\s*[=:]\s*(-?\d+)/g)].map(([, name, value]) => `${name}=${Number(value)}`);
  return parts.sort().join(" ");
}

/** Dimensions of the text are those of the operator. */
function fits(text) {
  const names = [...text.matchAll(/([A-Za-z_]\w*)\s*[=:]/g)].map(([, name]) => name).sort().join();
  return names === operator().dims.map(({ name }) => name).sort().join();
}

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

function showPresets() {
  const shapes = device()?.operator ? device().shapes.map(({ shape }) => shape) : operator().presets;
  document.getElementById("presets").replaceChildren(...shapes.map((shape) => {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "btn btn-small mono", textContent: shape });
    button.addEventListener("click", () => { field("shape").value = shape; show(); });
    return button;
  }));
  const recorded = device()?.operator !== null;
  document.getElementById("dims-help").textContent = `${operator().dims.map(({ name, meaning }) => `${name}: ${meaning}`).join("; ")}.${recorded ? " A replay serves the recorded shapes only." : ""}`;
  if (!fits(field("shape").value)) field("shape").value = shapes[0] ?? "";
  markPreset();
}

/** Which preset the text is, however it is written. */
function markPreset() {
  for (const button of document.querySelectorAll("#presets button")) {
    const pressed = canonical(button.textContent) === canonical(field("shape").value);
    button.setAttribute("aria-pressed", String(pressed));
    button.classList.toggle("btn-primary", pressed);
  }
}

/** @param {number} seconds */
const duration = (seconds) => seconds < 90 ? `${Math.max(1, Math.round(seconds))} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;

function predict() {
  const note = document.getElementById("predicted"), chosen = device();
  const shape = chosen?.shapes.find((one) => canonical(one.shape) === canonical(field("shape").value));
  const trial_s = shape?.trial_s ?? (chosen?.operator ? null : facts.gpu_trial_s);
  const budget_s = Number(field("budget_seconds").value);
  const trials = Math.min(Number(field("budget_trials").value), shape?.valid ?? Infinity);
  note.hidden = !chosen || !trial_s || !(trials > 0) || !(budget_s > 0);
  if (note.hidden) return;
  const seconds = Math.min(trials * trial_s, budget_s);
  const why = chosen.operator ? "replayed faster than it was recorded" : facts.gpu_trial_known ? "from the jobs that ran" : "assumed: no job has run on a GPU here";
  note.textContent = `Takes about ${duration(seconds)}: ${trials} trial${trials === 1 ? "" : "s"}${shape ? ` of ${shape.valid} valid configurations` : ""}, ${trial_s.toPrecision(2)} s each (${why})${trials * trial_s > budget_s ? "; the seconds end it first" : ""}.${chosen.label ? ` Numbers are ${chosen.label}.` : ""}${chosen.why_not ? ` It waits first: ${chosen.why_not}.` : ""}`;
}

function show() {
  limitDevices();
  limitTypes();
  showPresets();
  predict();
}

for (const name of ["operator", "device"]) field(name).addEventListener("change", show);
for (const name of ["shape", "budget_trials", "budget_seconds"]) field(name).addEventListener("input", () => { markPreset(); predict(); });
form.addEventListener("submit", () => { /** @type {HTMLButtonElement} */ (document.getElementById("start")).disabled = true; });
addEventListener("pageshow", () => { /** @type {HTMLButtonElement} */ (document.getElementById("start")).disabled = false; });
show();
