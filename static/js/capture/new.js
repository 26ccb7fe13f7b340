// The form of a new capture: shows the fields of the chosen tool and the command that would run.
import { checkForm } from "../lib/check_form.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("capture-form"));
const command = document.getElementById("capture-command");
const slowdown = document.getElementById("capture-slowdown");
const submit = /** @type {HTMLButtonElement} */ (document.getElementById("capture-submit"));
const metrics = document.getElementById("capture-metrics");
const why = document.getElementById("capture-why");
const locked = submit.disabled && !form.querySelector('[name="tool"]:checked[data-able="0"]'); // no right, or nothing to run

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
  tellQueue(radio.dataset.able === "1", radio.dataset.able === "1" ? "" : form.querySelector(`[data-why="${tool()}"]`)?.textContent ?? "");
}

/** @param {boolean} able whether a living worker can run it @param {string} queue what it would meet */
function tellQueue(able, queue) {
  submit.disabled = locked || !able;
  why.hidden = !queue;
  why.textContent = queue;
  why.classList.toggle("notice-warn", !able);
}

/** @param {{wildcard: string, count: number, first: string[]}[]} matches what each wildcard names on that GPU */
function tellMetrics(matches) {
  metrics.hidden = !matches.length;
  metrics.textContent = matches.map(({ wildcard, count, first }) => `${wildcard}: ${count} metrics: ${first.join(", ")}${count > first.length ? " …" : ""}`).join("; ");
}

const target = /** @type {HTMLSelectElement|null} */ (form.querySelector('[name="target"]'));
form.addEventListener("change", (event) => { if (/** @type {HTMLInputElement} */ (event.target).name === "tool") showTool(); });
showTool();
checkForm(form, {
  url: form.dataset.preview,
  body: () => target?.value ? { target: Number(target.value), tool: tool(), options: options() } : null,
  fieldOf: (name) => form.querySelector(`[name="${tool()}-${name}"]`) ?? form.querySelector(`[name="${name}"]`),
  onAnswer: (answer) => {
    command.textContent = answer.command || "Not yet valid: see the fields.";
    tellMetrics(answer.metrics ?? []);
    slowdown.hidden = !answer.slowdown;
    slowdown.textContent = `Expected: ${answer.slowdown}`;
    tellQueue(answer.able, answer.queue);
  },
  onError: (error) => { command.textContent = `${error.error} ${error.hint}`; },
});
