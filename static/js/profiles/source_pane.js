// A pane of code: as many rows in the document as are on screen, columns of numbers before them, a selection that keys and clicks move.

const ROW_PX = 20;
const MARGIN_ROWS = 12;
const NUMBER_PX = 56;

/** @typedef {import("./source_columns.js").Cell} Cell */
/** @typedef {import("./source_columns.js").Column} Column */

export class Pane {
  /**
   * @param {{label: string, number: string, row: (index: number) => {cells: Cell[], number: string, text: string, mark?: string, title?: string},
   *   onPick: (index: number) => void, onHover?: (index: number) => void, onKey?: (key: string) => boolean,
   *   margin?: {px: () => number, draw: (first: number, last: number, rowPx: number, chosen: number) => Element}}} options
   */
  constructor(options) {
    this.options = options;
    this.count = 0;
    this.selected = -1;
    this.hovered = -1;
    /** @type {Set<number>} */
    this.linked = new Set();
    /** @type {Map<number, "writer"|"reader">} rows that the one under the pointer, or the selected one, depends on */
    this.related = new Map();
    /** @type {Column[]} */
    this.columns = [];
    this.element = element("div", "source-pane");
    this.head = element("header", "");
    this.list = element("div", "code-list");
    this.list.tabIndex = 0;
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", options.label);
    this.names = element("div", "code-names");
    this.names.setAttribute("role", "presentation");
    this.space = element("div", "code-space");
    this.space.setAttribute("role", "presentation");
    this.list.append(this.names, this.space);
    this.element.append(this.head, this.list);
    this.id = `pane-${Math.random().toString(36).slice(2, 8)}`;
    this.list.addEventListener("scroll", () => this.draw(), { passive: true });
    this.list.addEventListener("click", (event) => {
      const index = indexOf(event.target);
      if (index !== null) options.onPick(index);
    });
    if (options.onHover) {
      this.list.addEventListener("pointerover", (event) => this.hover(indexOf(event.target) ?? -1));
      this.list.addEventListener("pointerleave", () => this.hover(-1));
    }
    this.list.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.list);
  }

  /** @param {Column[]} columns before the row's number */
  setColumns(columns) {
    this.columns = columns;
    const px = this.options.margin?.px() ?? 0;
    this.marginLeft = columns.reduce((sum, { width }) => sum + width, 0) + NUMBER_PX;
    this.list.style.setProperty("--columns", [...columns.map(({ width }) => `${width}px`), `${NUMBER_PX}px`, ...(px ? [`${px}px`] : []), "max-content"].join(" "));
    this.names.replaceChildren(...columns.map(({ label, title }) => Object.assign(element("span", "code-name"), { textContent: label, title })),
      Object.assign(element("span", "code-name"), { textContent: this.options.number }));
    this.width();
    this.redraw();
  }

  /** @param {number} count rows @param {number} chars of the longest */
  fill(count, chars) {
    this.count = count;
    this.chars = chars;
    this.space.style.height = `${count * ROW_PX}px`;
    this.width();
    this.redraw();
  }

  width() {
    const before = (this.marginLeft ?? NUMBER_PX) + (this.options.margin?.px() ?? 0);
    this.space.style.minWidth = this.names.style.minWidth = `calc(${Math.min(this.chars ?? 10, 400)}ch + ${before + 40}px)`;
  }

  /** @param {number} selected @param {Iterable<number>} linked */
  select(selected, linked = []) {
    this.selected = selected;
    this.linked = new Set(linked);
    this.redraw();
  }

  /** @param {number} index */
  hover(index) {
    if (index === this.hovered) return;
    this.hovered = index;
    this.options.onHover?.(index);
  }

  /** Marks rows without drawing the others again. @param {Map<number, "writer"|"reader">} related */
  relate(related) {
    this.related = related;
    for (const row of this.space.querySelectorAll(".code-row")) this.mark(/** @type {HTMLElement} */ (row), Number(/** @type {HTMLElement} */ (row).dataset.index));
  }

  /** @param {HTMLElement} row @param {number} index */
  mark(row, index) {
    const how = this.related.get(index);
    row.classList.toggle("is-writer", how === "writer");
    row.classList.toggle("is-reader", how === "reader");
    row.dataset.depends = how === "writer" ? "◀" : how === "reader" ? "▶" : "";
  }

  /** @param {number} index into the middle, unless it is in view */
  show(index) {
    const top = index * ROW_PX, view = this.list.clientHeight - ROW_PX;
    if (top < this.list.scrollTop + ROW_PX || top > this.list.scrollTop + view - 2 * ROW_PX) this.list.scrollTop = Math.max(0, top - view / 2);
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.list.clientHeight / ROW_PX) - 2);
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
    /** @type {Element[]} */
    const rows = [];
    for (let index = first; index < last; index += 1) rows.push(this.row(index));
    if (this.options.margin?.px() && last > first) {
      const svg = /** @type {SVGElement} */ (this.options.margin.draw(first, last, ROW_PX, this.selected));
      svg.style.left = `${this.marginLeft}px`;
      svg.style.top = `${first * ROW_PX}px`;
      rows.push(svg);
    }
    this.space.replaceChildren(...rows);
    const shown = this.selected >= first && this.selected < last;
    if (shown) this.list.setAttribute("aria-activedescendant", `${this.id}-${this.selected}`); else this.list.removeAttribute("aria-activedescendant");
  }

  /** @param {number} index */
  row(index) {
    const { cells, number, text, mark, title } = this.options.row(index);
    const row = element("div", `code-row${this.linked.has(index) ? " is-linked" : ""}${(cells[0]?.heat ?? 0) <= 0 ? " is-cold" : ""}`);
    row.id = `${this.id}-${index}`;
    row.dataset.index = String(index);
    row.style.top = `${index * ROW_PX}px`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(index === this.selected));
    row.setAttribute("aria-posinset", String(index + 1));
    row.setAttribute("aria-setsize", String(this.count));
    if (title) row.title = title;
    for (const [at, cell] of cells.entries()) {
      const hot = element("span", at ? "code-cell" : "code-cell code-heat");
      hot.textContent = cell.text;
      hot.style.setProperty("--hot", String(cell.heat ?? 0));
      if (cell.title) hot.title = cell.title;
      row.append(hot);
    }
    const code = Object.assign(element("span", "code-text"), { textContent: text });
    if (mark) code.append(Object.assign(element("span", "code-mark"), { textContent: `  ◀ ${mark}` }));
    row.append(Object.assign(element("span", "code-no"), { textContent: number }), ...(this.options.margin?.px() ? [element("span", "")] : []), code);
    this.mark(row, index);
    return row;
  }
}

/** @param {string} name @param {string} className @returns {HTMLElement} */
function element(name, className) {
  return Object.assign(document.createElement(name), { className });
}

/** @param {EventTarget|null} target @returns {number|null} */
function indexOf(target) {
  const row = /** @type {HTMLElement|null} */ (/** @type {HTMLElement} */ (target).closest?.(".code-row") ?? null);
  return row ? Number(row.dataset.index) : null;
}
