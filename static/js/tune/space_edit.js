// The space of a new job: values as buttons, constraints as lines, the count of what can run follows.

import { ApiError, postJson } from "../lib/http.js";
import { rulesOf } from "./check_model.js";
import { added, countWords, fitting, isEdited, readEdit, shown, toggled, writeEdit } from "./space_edit_model.js";

const COUNT_AFTER_MS = 250;

/**
 * @param {HTMLElement} section
 * @param {{field: HTMLInputElement, problem: () => object|null, onEdit: () => void, onCount: (valid: number|null) => void}} options
 *   field: carries the edit as JSON; problem: operator, shape, dtype and device, null while they are none; onCount: what an edit
 *   leaves, null where nothing is edited or known
 * @returns {{refresh: () => void}} asks soon, once for many calls
 */
export function editSpace(section, { field, problem, onEdit, onCount }) {
  const find = (name) => /** @type {HTMLElement} */ (section.querySelector(`[data-space-${name}]`));
  const rules = /** @type {HTMLTextAreaElement} */ (find("rules"));
  let edit = readEdit(field.value), timer = 0, operator = "", asking = null, params = [], fixed = "", unknown = "";
  rules.value = edit.constraints.join("\n");

  function refresh() {
    clearTimeout(timer);
    timer = window.setTimeout(ask, COUNT_AFTER_MS);
  }

  /** @param {import("./space_edit_model.js").Edit} next */
  function change(next) {
    edit = next;
    field.value = writeEdit(edit);
    draw();
    refresh();
    onEdit();
  }

  async function ask() {
    asking?.abort();
    const asked = problem(), mine = asking = new AbortController();
    if (!asked) { tell({ valid: null, size: null, whole: true, left_out: [], fields: {} }); return; }
    if (operator && operator !== asked.operator) edit = { parameters: {}, constraints: [] };
    try {
      const answer = await postJson(section.dataset.spaceApi, { ...asked, space: edit }, { signal: mine.signal });
      if (mine !== asking) return;
      const before = JSON.stringify([params, unknown]);
      [params, fixed, unknown] = [answer.parameters, answer.fixed, answer.unknown];
      if (operator !== asked.operator) {
        if (operator) rules.value = "";
        edit = operator ? edit : fitting(edit, params);
        operator = asked.operator;
        field.value = writeEdit(edit);
      }
      if (before !== JSON.stringify([params, unknown])) draw();
      find("gpu").textContent = answer.gpu;
      find("gpu").hidden = !answer.gpu;
      find("names").textContent = [...params.map(({ name }) => name), ...answer.names].join(", ");
      tell(answer);
    } catch (error) {
      if (error.name === "AbortError" || mine !== asking) return;
      if (!(error instanceof ApiError)) throw error;
      tell({ valid: null, size: null, whole: true, left_out: [], fields: { "": error.message } });
    }
  }

  /** The buttons of every parameter, and a field where values can be added. */
  function draw() {
    const focused = document.activeElement instanceof HTMLElement && section.contains(document.activeElement) ? document.activeElement.id : "";
    find("params").replaceChildren(...params.map((param) => {
      const row = Object.assign(document.createElement("div"), { className: "space-row" });
      const name = Object.assign(document.createElement("span"), { className: "mono", id: `space-name-${param.name}`, textContent: param.name });
      const values = Object.assign(document.createElement("span"), { className: "row" });
      values.setAttribute("role", "group");
      values.setAttribute("aria-labelledby", name.id);
      values.append(...shown(param, edit).map(({ value, on, own }) => {
        const button = Object.assign(document.createElement("button"), { type: "button", className: "chip mono", id: `space-${param.name}-${value}`, textContent: String(value), title: own ? "" : "added" });
        button.setAttribute("aria-pressed", String(on));
        button.addEventListener("click", () => change(toggled(edit, param, value)));
        return button;
      }));
      const wrong = Object.assign(document.createElement("p"), { className: "space-wrong" });
      wrong.dataset.spaceWrong = `parameters.${param.name}`;
      wrong.setAttribute("role", "alert");
      wrong.hidden = true;
      if (!fixed && param.takes !== "") values.append(adder(param));
      row.append(name, values, wrong);
      return row;
    }));
    find("fixed").textContent = fixed && params.length ? `No other values: ${fixed}.` : unknown && `Not known yet: ${unknown}.`;
    find("reset").hidden = !isEdited(edit);
    if (focused) document.getElementById(focused)?.focus();
  }

  /** @param {import("./space_edit_model.js").Param} param */
  function adder(param) {
    const input = Object.assign(document.createElement("input"), { className: "space-add mono", id: `space-add-${param.name}`, placeholder: "add", autocomplete: "off", spellcheck: false });
    input.setAttribute("aria-label", `Add values of ${param.name}`);
    if (param.takes) input.title = param.takes;
    const take = () => { if (input.value.trim()) change(added(edit, param, input.value)); };
    input.addEventListener("change", take);
    input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); take(); } });
    input.addEventListener("input", (event) => event.stopPropagation()); // the form is checked when the value is taken
    return input;
  }

  function tell(answer) {
    const [number, rest] = countWords(answer);
    find("valid").textContent = number;
    find("of").textContent = rest;
    find("left").replaceChildren(...answer.left_out.map(({ reason, count, yours }) => {
      const item = document.createElement("li");
      const left = Object.assign(document.createElement("span"), { className: "num", textContent: count.toLocaleString("en") });
      item.append(left, " ", yours ? Object.assign(document.createElement("code"), { textContent: reason }) : reason);
      return item;
    }));
    find("default").textContent = answer.has_default === false && isEdited(edit) ? "Lacks the default configuration: it is measured beside the winner only." : "";
    const rulesWrong = [], general = /** @type {HTMLElement} */ (section.querySelector('[data-space-wrong=""]'));
    const told = new Map(Object.entries(answer.fields));
    for (const place of /** @type {NodeListOf<HTMLElement>} */ (find("params").querySelectorAll("[data-space-wrong]"))) {
      place.textContent = told.get(place.dataset.spaceWrong) ?? "";
      place.hidden = !place.textContent;
      told.delete(place.dataset.spaceWrong);
    }
    for (const [name, text] of told) rulesWrong.push(name.startsWith("constraints") ? text : name ? `${name}: ${text}` : text);
    general.textContent = rulesWrong.join(" ");
    general.hidden = !rulesWrong.length;
    rules.toggleAttribute("aria-invalid", [...told.keys()].some((name) => name.startsWith("constraints")));
    if (rules.hasAttribute("aria-invalid")) rules.setAttribute("aria-invalid", "true");
    section.dataset.counted = JSON.stringify(answer.space ?? null);
    onCount(isEdited(edit) && answer.whole ? answer.valid : null);
  }

  rules.addEventListener("input", () => change({ parameters: edit.parameters, constraints: rulesOf(rules.value) }));
  find("reset").addEventListener("click", () => {
    rules.value = "";
    change({ parameters: {}, constraints: [] });
  });
  section.hidden = false;
  refresh();
  return { refresh };
}
