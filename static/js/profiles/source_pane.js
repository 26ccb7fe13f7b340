// A pane of code: as many rows in the document as are on screen, a selection that keys and clicks move.

const ROW_PX = 20;
const MARGIN_ROWS = 12;

export class Pane {
  /**
   * @param {{label: string, row: (index: number) => {share: string, heat: number, number: string, text: string, mark?: string, title?: string}, onPick: (index: number) => void, onKey?: (key: string) => boolean}} options
   */
  constructor(options) {
    this.options = options;
    this.count = 0;
    this.selected = -1;
    /** @type {Set<number>} */
    this.linked = new Set();
    this.element = document.createElement("div");
    this.element.className = "source-pane";
    this.head = document.createElement("header");
    this.list = document.createElement("div");
    this.list.className = "code-list";
    this.list.tabIndex = 0;
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", options.label);
    this.space = document.createElement("div");
    this.space.className = "code-space";
    this.space.setAttribute("role", "presentation");
    this.list.append(this.space);
    this.element.append(this.head, this.list);
    this.id = `pane-${Math.random().toString(36).slice(2, 8)}`;
    this.list.addEventListener("scroll", () => this.draw(), { passive: true });
    this.list.addEventListener("click", (event) => {
      const row = /** @type {HTMLElement} */ (event.target).closest(".code-row");
      if (row) options.onPick(Number(/** @type {HTMLElement} */ (row).dataset.index));
    });
    this.list.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.list);
  }

  /** @param {number} count rows @param {number} chars of the longest */
  fill(count, chars) {
    this.count = count;
    this.space.style.height = `${count * ROW_PX}px`;
    this.space.style.minWidth = `calc(${Math.min(chars, 400)}ch + 150px)`;
    this.redraw();
  }

  /** @param {number} selected @param {Iterable<number>} linked */
  select(selected, linked = []) {
    this.selected = selected;
    this.linked = new Set(linked);
    this.redraw();
  }

  /** @param {number} index into the middle, unless it is in view */
  show(index) {
    const top = index * ROW_PX, view = this.list.clientHeight;
    if (top < this.list.scrollTop + ROW_PX || top > this.list.scrollTop + view - 2 * ROW_PX) this.list.scrollTop = Math.max(0, top - view / 2);
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.list.clientHeight / ROW_PX) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.count, End: this.count };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    if (step !== undefined && this.count) this.options.onPick(Math.max(0, Math.min(this.count - 1, Math.max(0, this.selected) + step)));
    else if (!this.options.onKey?.(event.key)) return;
    event.preventDefault();
  }

  redraw() {
    this.drawn = null;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW_PX) - MARGIN_ROWS);
    const last = Math.min(this.count, Math.ceil((this.list.scrollTop + this.list.clientHeight) / ROW_PX) + MARGIN_ROWS);
    if (this.drawn && this.drawn[0] === first && this.drawn[1] === last) return;
    this.drawn = [first, last];
    const rows = [];
    for (let index = first; index < last; index += 1) rows.push(this.row(index));
    this.space.replaceChildren(...rows);
    const shown = this.selected >= first && this.selected < last;
    if (shown) this.list.setAttribute("aria-activedescendant", `${this.id}-${this.selected}`); else this.list.removeAttribute("aria-activedescendant");
  }

  /** @param {number} index */
  row(index) {
    const { share, heat, number, text, mark, title } = this.options.row(index);
    const row = document.createElement("div");
    row.className = `code-row${this.linked.has(index) ? " is-linked" : ""}${heat <= 0 ? " is-cold" : ""}`;
    row.id = `${this.id}-${index}`;
    row.dataset.index = String(index);
    row.style.top = `${index * ROW_PX}px`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(index === this.selected));
    row.setAttribute("aria-posinset", String(index + 1));
    row.setAttribute("aria-setsize", String(this.count));
    if (title) row.title = title;
    const [hot, no, code] = ["code-heat", "code-no", "code-text"].map((name) => Object.assign(document.createElement("span"), { className: name }));
    hot.textContent = share;
    hot.style.setProperty("--hot", String(heat));
    no.textContent = number;
    code.textContent = text;
    if (mark) code.append(Object.assign(document.createElement("span"), { className: "code-mark", textContent: `  ◀ ${mark}` }));
    row.append(hot, no, code);
    return row;
  }
}
