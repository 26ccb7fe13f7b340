// A searchable list in place of a long <select data-combobox>: https://www.w3.org/WAI/ARIA/apg/patterns/combobox/ with a listbox.
// Without script the select stands. It opens on the select's own options, the likeliest first, so that the common case needs no
// typing; what is typed is searched by the server (data-api, bounded there), beside what the select of data-beside holds.

import { getJson } from "./http.js";

const PAUSE_MS = 150;
const SHOWN = 50; // options before anything is typed
let made = 0;

/** @typedef {{value: string, title: string, note: string}} Choice */

/** @param {HTMLOptionElement} option @returns {Choice} */
const choiceOf = (option) => ({ value: option.value, title: option.dataset.title ?? option.text, note: option.dataset.note ?? "" });

export class Combobox {
  /** @param {HTMLSelectElement} select */
  constructor(select) {
    this.select = select;
    this.id = `combobox-${++made}`;
    /** @type {Choice[]} */
    this.choices = [];
    this.active = -1;
    this.timer = 0;
    this.typed = false; // since it was opened
    /** @type {AbortController|null} */
    this.asking = null;
    this.build();
    this.showChosen();
  }

  build() {
    const { select, id } = this, label = select.labels[0];
    this.input = Object.assign(document.createElement("input"), { type: "text", id, autocomplete: "off", spellcheck: false, required: select.required, placeholder: select.dataset.placeholder ?? "Search" });
    for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": `${id}-list` })) this.input.setAttribute(name, value);
    this.list = Object.assign(document.createElement("ul"), { id: `${id}-list`, className: "combobox-list", hidden: true });
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", label?.textContent ?? "Choices");
    this.said = Object.assign(document.createElement("span"), { className: "visually-hidden" });
    this.said.setAttribute("role", "status");
    const box = Object.assign(document.createElement("div"), { className: "combobox" });
    select.before(box);
    box.append(this.input, this.list, this.said, select);
    if (label) label.htmlFor = id;
    select.hidden = true;
    select.required = false;
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("click", () => { if (this.list.hidden) this.open(); });
    this.input.addEventListener("focus", () => this.input.select());
    this.input.addEventListener("blur", () => { this.close(); this.showChosen(); });
    this.list.addEventListener("pointerdown", (event) => event.preventDefault()); // the input keeps the focus
    this.list.addEventListener("click", (event) => {
      const row = /** @type {HTMLElement} */ (event.target).closest("[role=option]");
      if (row) this.choose([...this.list.children].indexOf(row));
    });
  }

  showChosen() {
    const option = this.select.selectedOptions[0];
    this.input.value = option?.value ? choiceOf(option).title : "";
    this.input.title = option?.value ? choiceOf(option).note : "";
  }

  open() {
    this.typed = false;
    this.show([...this.select.options].filter(({ value }) => value).slice(0, SHOWN).map(choiceOf), this.select.value);
    if (this.select.dataset.beside) this.ask(""); // the likeliest beside what was chosen there
  }

  search() {
    this.typed = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(this.input.value), PAUSE_MS);
  }

  /** @param {string} words */
  async ask(words) {
    this.asking?.abort();
    this.asking = new AbortController();
    const query = new URLSearchParams({ q: words }), other = /** @type {HTMLSelectElement|null} */ (document.getElementById(this.select.dataset.beside ?? ""));
    if (other?.value) query.set("beside", other.value);
    const address = this.select.dataset.api;
    try {
      const { choices } = await getJson(`${address}${address.includes("?") ? "&" : "?"}${query}`, { signal: this.asking.signal });
      if (document.activeElement === this.input) this.show(choices, words ? choices[0]?.value : this.select.value, words);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.said.textContent = `${error.message}.`;
    }
  }

  /** @param {Choice[]} choices @param {string} active the value that Enter takes @param {string} words */
  show(choices, active, words = "") {
    this.choices = choices;
    this.list.replaceChildren(...choices.map((choice, at) => {
      const row = document.createElement("li");
      row.id = `${this.id}-${at}`;
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", String(choice.value === this.select.value));
      row.append(Object.assign(document.createElement("span"), { textContent: choice.title }), Object.assign(document.createElement("small"), { textContent: choice.note }));
      return row;
    }));
    if (!choices.length) this.list.append(Object.assign(document.createElement("li"), { className: "muted", textContent: words ? `Nothing has “${words}”.` : "Nothing to choose." }));
    this.said.textContent = `${choices.length} result${choices.length === 1 ? "" : "s"}`;
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.go(choices.findIndex(({ value }) => value === active));
  }

  /** @param {number} at -1: none */
  go(at) {
    this.active = at;
    [...this.list.children].forEach((row, place) => row.classList.toggle("active", place === at));
    if (at < 0) { this.input.removeAttribute("aria-activedescendant"); return; }
    this.input.setAttribute("aria-activedescendant", `${this.id}-${at}`);
    this.list.children[at].scrollIntoView({ block: "nearest" });
  }

  close() {
    clearTimeout(this.timer);
    this.asking?.abort();
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.go(-1);
  }

  /** @param {number} at */
  choose(at) {
    const choice = this.choices[at];
    if (!choice) return;
    if (![...this.select.options].some(({ value }) => value === choice.value)) {
      const option = new Option(choice.title, choice.value);
      Object.assign(option.dataset, { title: choice.title, note: choice.note });
      this.select.append(option);
    }
    this.select.value = choice.value;
    this.close();
    this.showChosen();
    this.select.dispatchEvent(new Event("change", { bubbles: true }));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const isOpen = !this.list.hidden, last = this.choices.length - 1;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!isOpen) this.open();
      else if (!event.altKey) this.go(event.key === "ArrowDown" ? (this.active >= last ? 0 : this.active + 1) : (this.active <= 0 ? last : this.active - 1));
      else if (event.key === "ArrowUp") this.close();
    } else if (isOpen && event.key === "PageDown") { event.preventDefault(); this.go(Math.min(last, this.active + 8)); }
    else if (isOpen && event.key === "PageUp") { event.preventDefault(); this.go(Math.max(0, this.active - 8)); }
    else if (isOpen && event.key === "Enter" && this.active >= 0) { event.preventDefault(); this.choose(this.active); }
    else if (event.key === "Escape" && isOpen) { event.preventDefault(); event.stopPropagation(); this.close(); this.showChosen(); }
    else if (event.key === "Tab" && isOpen && this.typed && this.active >= 0) this.choose(this.active);
  }
}

for (const select of document.querySelectorAll("select[data-combobox]")) new Combobox(/** @type {HTMLSelectElement} */ (select));
