// The field with the query: keys, history, the place of an error. Knows nothing of results.

const KEPT = 50;
const LEAST_LINES = 7, MOST_LINES = 22;
const KEY = "ridgepoint.sql.history";

/** Queries that ran here, newest first, without repeats. Only this browser knows them. */
export class History {
  constructor(storage = globalThis.localStorage) {
    this.storage = storage;
    this.at = -1;
    this.draft = "";
  }

  get entries() {
    try {
      const found = JSON.parse(this.storage.getItem(KEY) ?? "[]");
      return Array.isArray(found) ? found.filter((entry) => typeof entry === "string") : [];
    } catch { return []; }
  }

  /** @param {string} sql */
  add(sql) {
    const text = sql.trim();
    if (!text) return;
    const entries = [text, ...this.entries.filter((entry) => entry !== text)].slice(0, KEPT);
    try { this.storage.setItem(KEY, JSON.stringify(entries)); } catch { /* lasts for this page */ }
    this.at = -1;
  }

  /** The next older (+1) or newer (-1) query; what was being written comes back at the end. @returns {string|null} */
  step(direction, now) {
    const entries = this.entries;
    if (this.at < 0) this.draft = now;
    const at = this.at + direction;
    if (at < -1 || at >= entries.length) return null;
    this.at = at;
    return at < 0 ? this.draft : entries[at];
  }
}

/** Lines of the selection moved by two spaces. @returns {{text: string, start: number, end: number}} */
export function indented(text, start, end, back) {
  if (start === end && !back) return { text: `${text.slice(0, start)}  ${text.slice(end)}`, start: start + 2, end: start + 2 };
  const from = text.lastIndexOf("\n", start - 1) + 1;
  const lines = text.slice(from, end).split("\n");
  const moved = lines.map((line) => (back ? line.replace(/^ {1,2}/, "") : `  ${line}`));
  const first = moved[0].length - lines[0].length, all = moved.join("\n").length - lines.join("\n").length;
  return { text: text.slice(0, from) + moved.join("\n") + text.slice(end), start: Math.max(from, start + first), end: end + all };
}

export class Editor {
  /** @param {HTMLTextAreaElement} field @param {{run: () => void}} actions */
  constructor(field, { run }) {
    this.field = field;
    this.history = new History();
    this.leaving = false;
    field.addEventListener("keydown", (event) => this.pressed(event, run));
    field.addEventListener("input", () => this.fit());
    field.addEventListener("blur", () => { this.leaving = false; });
  }

  get text() { return this.field.value; }

  set(text, focus = true) {
    this.field.value = text;
    this.mark(null);
    this.fit();
    if (focus) this.field.focus();
    this.field.scrollTop = this.field.scrollLeft = 0;
  }

  focus() { this.field.focus(); }

  unmark() { this.field.removeAttribute("aria-invalid"); }

  /** As many lines as the query has, within reason. */
  fit() { this.field.rows = Math.min(Math.max(this.text.split("\n").length + 1, LEAST_LINES), MOST_LINES); }

  pressed(event, run) {
    const ctrl = event.ctrlKey || event.metaKey;
    if (event.key === "Enter" && ctrl) { event.preventDefault(); run(); return; }
    if (ctrl && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      const found = this.history.step(event.key === "ArrowUp" ? 1 : -1, this.text);
      if (found !== null) this.set(found);
      event.preventDefault();
      return;
    }
    if (event.key === "Escape") { this.leaving = true; return; }
    if (event.key === "Tab" && !this.leaving && !ctrl && !event.altKey) {
      event.preventDefault();
      const { selectionStart, selectionEnd } = this.field;
      const moved = indented(this.text, selectionStart, selectionEnd, event.shiftKey);
      this.field.setRangeText(moved.text, 0, this.text.length, "preserve");
      this.field.setSelectionRange(moved.start, moved.end);
      return;
    }
    if (event.key !== "Shift" && event.key !== "Tab") this.leaving = false;
  }

  /** Put a word where the cursor is. */
  insert(word) {
    const { selectionStart, selectionEnd } = this.field;
    const before = this.text.slice(0, selectionStart), space = before && !/[\s.(,]$/.test(before) ? " " : "";
    this.field.setRangeText(`${space}${word}`, selectionStart, selectionEnd, "end");
    this.field.focus();
  }

  /** Where an error is: its character is selected, or (null) nothing is wrong. */
  mark(position) {
    this.field.setAttribute("aria-invalid", String(position !== null));
    if (position === null) { this.field.removeAttribute("aria-invalid"); return; }
    const word = /^[\w$]+|^"[^"]*"|^'[^']*'|^./s.exec(this.text.slice(position))?.[0] ?? "";
    this.field.focus();
    this.field.setSelectionRange(position, position + word.length);
    const line = this.text.slice(0, position).split("\n").length;
    this.field.scrollTop = Math.max(0, (line - 4) * parseFloat(getComputedStyle(this.field).lineHeight));
  }
}
