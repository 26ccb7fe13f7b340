// The form of a new capture: shows the fields of the chosen tool and the command that would run.
import { ApiError, postJson } from "../lib/http.js";

const PAUSE_MS = 250;
const form = /** @type {HTMLFormElement} */ (document.getElementById("capture-form"));
const command = document.getElementById("capture-command");
const submit = /** @type {HTMLButtonElement} */ (document.getElementById("capture-submit"));
const why = document.getElementById("capture-why");
const locked = submit.disabled && !form.querySelector('[name="tool"]:checked[data-able="0"]'); // no right, or nothing to run
let timer = 0;
/** @type {AbortController|null} */
let asking = null;

/** @returns {string} */
function tool() {
  return /** @type {HTMLInputElement} */ (form.querySelector('[name="tool"]:checked')).value;
}

/** The chosen tool's fields, by their names without the prefix. @returns {Record<string, unknown>} */
function options() {
  /** @type {Record<string, unknown>} */
  const given = {};
  for (const field of form.querySelectorAll(`[name^="${tool()}-"]`)) {
    const input = /** @type {HTMLInputElement} */ (field);
    const name = input.name.slice(tool().length + 1);
    if (input.closest("fieldset")) given[name] = [...form.querySelectorAll(`[name="${input.name}"]:checked`)].map((box) => /** @type {HTMLInputElement} */ (box).value);
    else given[name] = input.type === "checkbox" ? input.checked : input.value;
  }
  return given;
}

function showTool() {
  for (const section of form.querySelectorAll("[data-tool]")) /** @type {HTMLElement} */ (section).hidden = section.getAttribute("data-tool") !== tool();
  const radio = /** @type {HTMLInputElement} */ (form.querySelector('[name="tool"]:checked'));
  const able = radio.dataset.able === "1";
  submit.disabled = locked || !able;
  why.textContent = able ? "" : form.querySelector(`[data-why="${tool()}"]`)?.textContent ?? "";
}

/** @param {Record<string, string>} fields */
function showErrors(fields) {
  for (const old of form.querySelectorAll(".field-error[data-live]")) old.remove();
  for (const [name, text] of Object.entries(fields)) {
    const prefixed = form.querySelector(`[name="${tool()}-${name}"]`) ?? form.querySelector(`[name="${name}"]`);
    const line = document.createElement("p");
    line.className = "field-error";
    line.dataset.live = "1";
    line.textContent = text;
    (prefixed?.closest(".field") ?? command.parentElement).append(line);
  }
}

async function preview() {
  const target = /** @type {HTMLSelectElement|null} */ (form.querySelector('[name="target"]'));
  if (!target?.value) return;
  asking?.abort();
  asking = new AbortController();
  try {
    const answer = await postJson(form.dataset.preview, { target: Number(target.value), tool: tool(), options: options() }, { signal: asking.signal });
    command.textContent = answer.command || "Not yet valid: see the fields.";
    showErrors(answer.fields);
  } catch (error) {
    if (error instanceof ApiError) command.textContent = `${error.error} ${error.hint}`;
    else if (error.name !== "AbortError") throw error;
  }
}

function changed() {
  showTool();
  clearTimeout(timer);
  timer = window.setTimeout(preview, PAUSE_MS);
}

form.addEventListener("input", changed);
form.addEventListener("change", changed);
showTool();
preview();
