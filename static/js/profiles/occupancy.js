// The occupancy calculator: every change of the form asks the page again and puts its answer in place of the old one.

import { offerDrawings } from "../lib/save.js";

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

/** What a help line says depends on the architecture. @param {Document} page */
function helps(page) {
  for (const field of form.querySelectorAll(".field")) {
    const name = field.querySelector("[name]").getAttribute("name");
    const help = page.querySelector(`#occupancy-form [name="${name}"]`)?.closest(".field")?.querySelector(".help");
    if (help) field.querySelector(".help")?.replaceWith(document.importNode(help, true));
  }
}

/** Says under each field what would be valid. @returns {boolean} whether all are */
function valid() {
  let all = true;
  for (const field of form.querySelectorAll(".field")) {
    const input = /** @type {HTMLInputElement} */ (field.querySelector("[name]"));
    field.querySelector(".field-error")?.remove();
    const good = input.checkValidity();
    input.toggleAttribute("aria-invalid", !good);
    if (good) continue;
    all = false;
    const limits = `a whole number from ${Number(input.min).toLocaleString("en-US")}${input.max ? ` to ${Number(input.max).toLocaleString("en-US")}` : ""}`;
    field.append(Object.assign(document.createElement("p"), { className: "field-error", textContent: `${field.querySelector("label").textContent}: ${limits}` }));
  }
  return all;
}

async function ask() {
  if (!valid()) return;
  const url = address(), mine = ++asked;
  const answer = await fetch(url, { headers: { accept: "text/html" } });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (mine !== asked) return; // a later question is on its way
  helps(page);
  const next = page.getElementById("occupancy-result");
  if (!next) return;
  const shown = document.getElementById("occupancy-result");
  shown.replaceChildren(...document.importNode(next, true).childNodes);
  history.replaceState(null, "", url);
  offerDrawings(shown);
}

form.addEventListener("input", () => {
  clearTimeout(timer);
  timer = window.setTimeout(ask, WAIT_MS);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
