// A pasted kernel: a file dropped into the field, and the space of its adapter edited while the count follows.

import { takeFiles } from "../lib/file_drop.js";
import { postJson } from "../lib/http.js";
import { besideText, fileName, kernelAt, leftOut, refusal, rulesOf } from "./check_model.js";

const COUNT_AFTER_MS = 250;
const form = /** @type {HTMLFormElement|null} */ (document.getElementById("check-form"));

/** One file is the kernel's; of several the first that holds a kernel, and the others come with it. @param {File} file @param {File[]} others */
async function take(file, others) {
  const told = document.getElementById("check-text-wrong"), name = /** @type {HTMLInputElement} */ (document.getElementById("check-name"));
  const files = [file, ...others];
  told.textContent = files.map((each) => refusal(each, Number(form.dataset.most))).find(Boolean) ?? "";
  if (told.textContent) return;
  const texts = await Promise.all(files.map((each) => each.text())), at = kernelAt(texts);
  /** @type {HTMLTextAreaElement} */ (document.getElementById("check-text")).value = texts[at];
  name.value = fileName(files[at].name, name.value);
  const beside = Object.fromEntries(files.map((each, number) => [each.name, texts[number]]).filter((_, number) => number !== at));
  /** @type {HTMLInputElement} */ (document.getElementById("check-siblings")).value = others.length ? JSON.stringify(beside) : "";
  for (const id of ["check-beside-of", "check-folder"]) /** @type {HTMLInputElement} */ (document.getElementById(id)).value = "";
  document.getElementById("check-beside").textContent = besideText(Object.keys(beside));
}

/** The space of one adapter. @param {HTMLElement} section */
function edit(section) {
  const fields = /** @type {HTMLInputElement[]} */ ([...section.querySelectorAll("[data-param]")]);
  const rules = /** @type {HTMLTextAreaElement} */ (section.querySelector("[data-rules]"));
  const find = (name) => section.querySelector(`[data-${name}]`);
  let timer = 0, asking = null;

  const tell = (wrong) => {
    for (const place of section.querySelectorAll("[data-wrong]")) place.textContent = wrong[place.dataset.wrong] ?? "";
    for (const field of fields) field.toggleAttribute("aria-invalid", Boolean(wrong[field.dataset.param]));
    rules.toggleAttribute("aria-invalid", Boolean(wrong.constraints));
    for (const each of [...fields, rules]) if (each.hasAttribute("aria-invalid")) each.setAttribute("aria-invalid", "true");
  };

  async function count() {
    asking?.abort();
    const mine = asking = new AbortController();
    const params = Object.fromEntries(fields.map((field) => [field.dataset.param, field.value]));
    try {
      const found = await postJson(section.dataset.count, {
        params, constraints: rulesOf(rules.value), check: Number(section.dataset.check), kernel: section.dataset.space }, { signal: mine.signal });
      if (mine !== asking) return;
      if (found.valid === null) {
        find("valid").textContent = "—";
        tell(found.fields);
        return;
      }
      find("valid").textContent = found.valid.toLocaleString("en");
      find("size").textContent = found.size.toLocaleString("en");
      find("left").replaceChildren(...found.constraints.map((rule) => {
        const item = document.createElement("li"), number = document.createElement("span"), [left, reason] = leftOut(rule);
        number.className = "num";
        number.textContent = left;
        item.append(number, ` left out: ${reason}`);
        return item;
      }));
      find("adapter").textContent = found.adapter;
      tell(found.default_breaks ? { params: `The default breaks: ${found.default_breaks}` } : {});
    } catch (error) {
      if (error.name === "AbortError" || mine !== asking) return;
      find("valid").textContent = "—";
      tell({ params: error.message });
    }
  }

  section.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(count, COUNT_AFTER_MS);
  });
}

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? /** @type {HTMLElement|null} */ (event.target.closest("button[data-download]")) : null;
  if (!button) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([document.getElementById(button.dataset.download).textContent], { type: "text/plain" }));
  link.download = button.dataset.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
});

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? /** @type {HTMLElement|null} */ (event.target.closest("button[data-call]")) : null;
  if (!button) return;
  const field = /** @type {HTMLInputElement} */ (document.getElementById("check-call"));
  field.value = button.dataset.call;
  field.focus();
});

if (form) takeFiles(form, /** @type {HTMLInputElement} */ (document.getElementById("check-open")), take);
/** Sections that came with a refresh are edited as well. @type {WeakSet<Element>} */
const edited = new WeakSet();
function editAll() {
  for (const section of document.querySelectorAll("[data-space]")) {
    if (edited.has(section)) continue;
    edited.add(section);
    edit(/** @type {HTMLElement} */ (section));
  }
}
document.addEventListener("refreshed", editAll);
editAll();
