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
  const own = form.querySelector(`[data-why="${tool()}"]:not([data-common])`); // what every tool lacks stands at the top
  tellQueue(radio.dataset.able === "1", radio.dataset.able === "1" ? "" : own?.textContent ?? "");
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

/** The form anew for another program or another question: nothing was typed that could be lost. */
function begin() {
  const address = new URL(location.href);
  if (target) address.searchParams.set("target", target.value);
  address.searchParams.set("about", /** @type {HTMLInputElement} */ (form.querySelector('[name="about"]:checked')).value);
  address.searchParams.delete("tool");
  location.assign(address);
}

/** Shows the tools for what is looked at, and chooses the first that can be used. */
function showAbout() {
  const chosen = /** @type {HTMLInputElement} */ (form.querySelector('[name="about"]:checked')), tools = chosen.dataset.tools.split(" ");
  document.getElementById("capture-running").hidden = !("running" in chosen.dataset);
  const radios = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll('[name="tool"]')]);
  for (const radio of radios) radio.closest("label").hidden = !tools.includes(radio.value);
  const offered = tools.map((name) => radios.find((radio) => radio.value === name)).filter((radio) => radio);
  const proposed = offered.find((radio) => radio.dataset.able === "1") ?? offered[0];
  if (!tools.includes(tool())) { proposed.checked = true; showTool(); }
}

const target = /** @type {HTMLSelectElement|null} */ (form.querySelector('[name="target"]'));
let edited = false;
form.addEventListener("input", (event) => { edited ||= !["about", "tool", "target"].includes(/** @type {HTMLInputElement} */ (event.target).name); });
form.addEventListener("change", (event) => {
  const { name } = /** @type {HTMLInputElement} */ (event.target);
  if (name === "tool") showTool();
  if (!edited && ["about", "target"].includes(name)) begin(); // with what is proposed for it, as it was asked last
  else if (name === "about") showAbout();
});
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
    tellQueue(answer.able, answer.common ? answer.own : answer.queue);
  },
  onError: (error) => { command.textContent = `${error.error} ${error.hint}`; },
});
