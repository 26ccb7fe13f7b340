// The form of a candidate: a file dropped into its field or chosen, and the operator's own fields when another one is chosen.

import { takeFiles } from "../lib/file_drop.js";
import { refusal } from "./check_model.js";

const form = /** @type {HTMLFormElement|null} */ (document.getElementById("candidate-form"));

/** @param {File} file */
async function take(file) {
  const told = document.getElementById("candidate-text-wrong");
  told.textContent = refusal(file, Number(form.dataset.most));
  if (!told.textContent) /** @type {HTMLTextAreaElement} */ (document.getElementById("candidate-text")).value = await file.text();
}

/** Another operator has other dimensions and types: its form is asked for, unless a text was typed that would be lost. */
function watchOperator() {
  const operator = /** @type {HTMLSelectElement} */ (document.getElementById("candidate-operator"));
  const text = /** @type {HTMLTextAreaElement} */ (document.getElementById("candidate-text"));
  operator.addEventListener("change", () => {
    if (!text.value.trim()) location.assign(`${operator.dataset.form}?operator=${encodeURIComponent(operator.value)}`);
  });
}

if (form) {
  takeFiles(form, /** @type {HTMLInputElement} */ (document.getElementById("candidate-open")), take);
  watchOperator();
}
