// Ctrl-K: jump to a page, an object or an action. Pages and actions are known at once, objects come from the search API.

import { getJson } from "../lib/http.js";
import { groups, stillFitting } from "./palette_model.js";
import { recent, remember } from "./recent.js";

/** @typedef {import("./palette_model.js").Entry} Entry */

const WAIT_MS = 120;
const KINDS = { page: "page", document: "docs", action: "action", search: "" };

/** @param {string} tag @param {Record<string, string>} attributes @param {...(Node|string)} children */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

class Palette {
  /** @param {Entry[]} entries @param {string} url of the search API */
  constructor(entries, url) {
    this.entries = entries;
    this.url = url;
    /** @type {import("./palette_model.js").Group[]} */
    this.hits = [];
    /** @type {Entry[]} */
    this.recent = [];
    /** @type {{entry: Entry, option: HTMLElement}[]} */
    this.options = [];
    this.at = 0;
    this.isChosen = false; // by a key: then it stays chosen when hits arrive
    this.timer = 0;
    /** @type {AbortController|null} */
    this.asking = null;
    this.input = /** @type {HTMLInputElement} */ (make("input", { type: "text", id: "palette-input", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list",
      "aria-autocomplete": "list", "aria-label": "Search or jump", placeholder: "Page, profile, kernel, build, job, action…", autocomplete: "off", spellcheck: "false", maxlength: "200" }));
    this.list = make("div", { id: "palette-list", class: "palette-list", role: "listbox", "aria-label": "Results" });
    this.status = make("p", { class: "palette-status", role: "status" });
    this.dialog = /** @type {HTMLDialogElement} */ (make("dialog", { class: "palette", "aria-label": "Search or jump" }, this.input, this.list, this.status));
    this.input.addEventListener("input", () => this.typed());
    this.dialog.addEventListener("keydown", (event) => this.pressed(event));
    this.dialog.addEventListener("click", (event) => this.clicked(event));
    this.dialog.addEventListener("close", () => this.stop());
    document.body.append(this.dialog);
  }

  open(text = "") {
    if (this.dialog.open) { this.dialog.close(); return; }
    this.recent = recent().filter(({ url }) => url !== location.pathname);
    this.hits = [];
    this.input.value = text;
    this.status.textContent = "";
    this.show("");
    this.dialog.showModal();
    this.input.select();
    if (text) this.typed();
  }

  stop() {
    clearTimeout(this.timer);
    this.asking?.abort();
  }

  typed() {
    const query = this.input.value.trim();
    this.stop();
    this.status.textContent = "";
    this.isChosen = false;
    this.hits = query ? stillFitting(query, this.hits) : [];
    this.show("");
    if (query) this.timer = setTimeout(() => this.ask(query), WAIT_MS);
  }

  /** @param {string} query */
  async ask(query) {
    const mine = this.asking = new AbortController();
    try {
      const answer = await getJson(`${this.url}?q=${encodeURIComponent(query)}`, { signal: mine.signal });
      if (mine !== this.asking) return;
      this.hits = answer.groups.map(({ kind, hits }) => ({ title: kind, entries: hits.map((hit) => ({ kind: "object", ...hit })) }));
      this.show(this.isChosen ? this.options[this.at]?.entry.url ?? "" : "");
      this.status.textContent = `${this.options.length} results`;
    } catch (error) {
      if (error.name !== "AbortError") this.status.textContent = `Objects cannot be searched: ${error.message}. Pages and actions are listed.`;
    }
  }

  /** @param {string} chosen address of the entry that stays chosen; else the first is */
  show(chosen) {
    this.options = [];
    const parts = groups(this.input.value, { entries: this.entries, recent: this.recent, hits: this.hits }).map(({ title, entries }, index) => {
      const group = make("div", { role: "group", "aria-labelledby": `palette-group-${index}` },
        make("div", { class: "palette-group", id: `palette-group-${index}`, role: "presentation" }, title));
      for (const entry of entries) group.append(this.option(entry));
      return group;
    });
    this.list.replaceChildren(...parts);
    this.choose(Math.max(0, this.options.findIndex(({ entry }) => chosen && entry.url === chosen)));
  }

  /** @param {Entry} entry */
  option(entry) {
    const option = make("div", { class: "palette-option", id: `palette-option-${this.options.length}`, role: "option", "aria-selected": "false" },
      make("span", { class: "palette-title" }, entry.title));
    const detail = entry.detail || KINDS[entry.kind] || "";
    if (detail) option.append(make("span", { class: "palette-detail" }, detail));
    if (entry.keys) option.append(make("kbd", {}, `g ${entry.keys}`));
    this.options.push({ entry, option });
    return option;
  }

  /** @param {number} at */
  choose(at) {
    this.options[this.at]?.option.setAttribute("aria-selected", "false");
    this.at = at;
    const option = this.options[at]?.option;
    if (!option) { this.input.removeAttribute("aria-activedescendant"); return; }
    option.setAttribute("aria-selected", "true");
    this.input.setAttribute("aria-activedescendant", option.id);
    if (at === 0) this.list.scrollTop = 0; else option.scrollIntoView({ block: "nearest" });
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    event.stopPropagation(); // the page's own keys rest while this is open
    const count = this.options.length;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    if (event.key in steps && count) {
      event.preventDefault();
      this.isChosen = true;
      const next = this.at + steps[event.key];
      this.choose(Math.abs(steps[event.key]) === 1 ? (next + count) % count : Math.min(count - 1, Math.max(0, next)));
    } else if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      this.go(this.options[this.at]?.entry, event.ctrlKey || event.metaKey);
    } else if (isShortcut(event)) {
      event.preventDefault();
      this.dialog.close();
    }
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    if (event.target === this.dialog) { this.dialog.close(); return; }
    const found = this.options.find(({ option }) => option.contains(/** @type {Node} */ (event.target)));
    if (found) this.go(found.entry, event.ctrlKey || event.metaKey);
  }

  /** @param {Entry|undefined} entry @param {boolean} inNewTab */
  go(entry, inNewTab) {
    if (!entry) return;
    this.dialog.close();
    if (entry.run) { entry.run(); return; }
    if (entry.kind === "object" || entry.kind === "recent") remember({ ...entry, kind: "recent" });
    if (inNewTab) window.open(entry.url, "_blank", "noopener"); else location.assign(entry.url);
  }
}

/** @param {KeyboardEvent} event */
function isShortcut(event) {
  return event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
}

/**
 * Ctrl-K, Cmd-K and the search box open it.
 * @param {Entry[]} entries @param {HTMLElement} box the button that looks like a search field
 * @returns {(text?: string) => void} opens it
 */
export function start(entries, box) {
  /** @type {Palette|null} */
  let palette = null;
  const open = (text = "") => (palette ??= new Palette(entries, box.dataset.api ?? "")).open(text);
  box.addEventListener("click", (event) => { event.preventDefault(); open(); });
  document.addEventListener("keydown", (event) => {
    if (!isShortcut(event)) return;
    event.preventDefault();
    open();
  });
  return open;
}
