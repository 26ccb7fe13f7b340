// The occupancy calculator: every change of the form asks the page again and puts its answer in place of the old one.

import { embedAll } from "../lib/figures.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("occupancy-form"));
const WAIT_MS = 150;
let timer = 0;
let asked = 0;

/** @returns {URL} the address of what the form says: it can be copied, and Back works */
function address() {
  const url = new URL(location.pathname, location.href);
  for (const [name, value] of new FormData(form)) if (value !== "" || form.elements[name].type === "number") url.searchParams.set(name, String(value));
  return url;
}

/** @param {Document} page */
function errors(page) {
  for (const field of form.querySelectorAll(".field")) {
    const input = field.querySelector("[name]");
    const found = page.querySelector(`#occupancy-form [name="${input.name}"]`)?.closest(".field")?.querySelector(".field-error");
    field.querySelector(".field-error")?.remove();
    input.toggleAttribute("aria-invalid", Boolean(found));
    if (found) field.append(document.importNode(found, true));
    // what a help line says depends on the architecture
    const help = page.querySelector(`#occupancy-form [name="${input.name}"]`)?.closest(".field")?.querySelector(".help");
    if (help) field.querySelector(".help")?.replaceWith(document.importNode(help, true));
  }
}

async function ask() {
  const url = address(), mine = ++asked;
  const answer = await fetch(url, { headers: { accept: "text/html" } });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (mine !== asked) return; // a later question is on its way
  errors(page);
  const next = page.getElementById("occupancy-result");
  if (!next) return;
  const shown = document.getElementById("occupancy-result");
  shown.replaceChildren(...document.importNode(next, true).childNodes);
  history.replaceState(null, "", url);
  await embedAll(shown);
}

form.addEventListener("input", () => {
  clearTimeout(timer);
  timer = window.setTimeout(ask, WAIT_MS);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
