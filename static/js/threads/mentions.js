// Names after an @ in a comment: https://www.w3.org/WAI/ARIA/apg/patterns/combobox/ with a listbox, in a textarea. The server knows
// the people of the project (data-mentions); Ctrl+Enter sends.

import { getJson } from "../lib/http.js";

const PAUSE_MS = 120;
const WORD = /(?:^|[^\w@.+\-/])@([\w.+\-]{0,150})$/;
let made = 0;

class Mentions {
  /** @param {HTMLTextAreaElement} box */
  constructor(box) {
    this.box = box;
    this.active = -1;
    this.timer = 0;
    this.asked = 0;
    this.list = Object.assign(document.createElement("ul"), { id: `mentions-${++made}`, className: "combobox-list", hidden: true });
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "People");
    const around = Object.assign(document.createElement("div"), { className: "combobox mentions" });
    box.before(around);
    around.append(box, this.list);
    box.setAttribute("aria-autocomplete", "list");
    box.setAttribute("aria-controls", this.list.id);
    box.addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.ask(), PAUSE_MS); });
    box.addEventListener("blur", () => this.close());
    box.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("pointerdown", (event) => event.preventDefault()); // the textarea keeps the focus
    this.list.addEventListener("click", (event) => {
      const row = /** @type {HTMLElement} */ (event.target).closest("[role=option]");
      if (row) this.choose(row.textContent);
    });
  }

  /** What is typed after the @ before the caret; null where none stands there. */
  word() {
    return this.box.value.slice(0, this.box.selectionStart).match(WORD)?.[1] ?? null;
  }

  async ask() {
    const word = this.word(), number = ++this.asked;
    if (word === null) { this.close(); return; }
    try {
      const { people } = await getJson(`${this.box.dataset.mentions}?q=${encodeURIComponent(word)}`);
      if (number === this.asked && this.word() === word) this.show(people);
    } catch { this.close(); } // names can be typed in full
  }

  /** @param {string[]} people */
  show(people) {
    this.list.replaceChildren(...people.map((name, at) => {
      const row = Object.assign(document.createElement("li"), { id: `${this.list.id}-${at}`, textContent: name });
      row.setAttribute("role", "option");
      return row;
    }));
    this.list.hidden = !people.length;
    this.mark(people.length ? 0 : -1);
  }

  /** @param {number} at */
  mark(at) {
    this.active = at;
    [...this.list.children].forEach((row, index) => { row.classList.toggle("active", index === at); row.setAttribute("aria-selected", String(index === at)); });
    if (at >= 0) this.box.setAttribute("aria-activedescendant", `${this.list.id}-${at}`); else this.box.removeAttribute("aria-activedescendant");
    this.list.children[at]?.scrollIntoView({ block: "nearest" });
  }

  close() {
    clearTimeout(this.timer);
    this.asked += 1;
    this.list.hidden = true;
    this.mark(-1);
  }

  /** @param {string} name */
  choose(name) {
    const word = this.word(), caret = this.box.selectionStart;
    if (word !== null) this.box.setRangeText(`${name} `, caret - word.length, caret, "end");
    this.close();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); this.box.form.requestSubmit(); return; }
    if (this.list.hidden) return;
    const count = this.list.children.length;
    if (event.key === "ArrowDown") this.mark((this.active + 1) % count);
    else if (event.key === "ArrowUp") this.mark((this.active + count - 1) % count);
    else if (event.key === "Escape") this.close();
    else if (event.key === "Enter" || event.key === "Tab") this.choose(this.list.children[this.active].textContent);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

const known = new WeakSet();
function begin() {
  for (const box of /** @type {NodeListOf<HTMLTextAreaElement>} */ (document.querySelectorAll("textarea[data-mentions]"))) {
    if (!known.has(box)) { known.add(box); new Mentions(box); }
  }
}
begin();
document.addEventListener("refreshed", begin);
