// Rows in view only: of a long table with rows of one height, the rest is two empty rows of the height that is missing.

const OVERSCAN = 20;
export const LONG = 200; // rows; fewer are all there, and the browser's own search finds them

/** @param {number} top px scrolled @param {number} view px in view @param {number} height px of a row @param {number} rows @returns {[number, number]} first and past the last row to draw */
export function span(top, view, height, rows) {
  const first = Math.max(0, Math.floor(top / height) - OVERSCAN), last = Math.min(rows, Math.ceil((top + view) / height) + OVERSCAN);
  return [Math.min(first, Math.max(0, rows - 1)), last];
}

function spacer(columns) {
  const row = document.createElement("tr"), cell = row.insertCell();
  row.className = "grid-space";
  row.setAttribute("aria-hidden", "true");
  cell.colSpan = columns;
  return row;
}

export class VirtualRows {
  /** @param {HTMLTableElement} table @param {HTMLTableSectionElement} body @param {HTMLElement} scroller @param {number} columns */
  constructor(table, body, scroller, columns) {
    this.table = table;
    this.body = body;
    this.scroller = scroller;
    this.above = spacer(columns);
    this.below = spacer(columns);
    this.height = 0;
    this.drawn = "";
    /** @type {HTMLTableRowElement[]} */
    this.rows = [];
    scroller.addEventListener("scroll", () => { if (this.on) this.draw(); }, { passive: true });
    addEventListener("resize", () => { if (this.on) this.measure(); });
  }

  get on() { return this.height > 0; }

  /** @param {HTMLTableRowElement[]} rows all that are to be seen, in order */
  set(rows) {
    this.rows = rows;
    this.drawn = "";
    if (rows.length <= LONG && !this.on) this.body.replaceChildren(...rows); else if (this.on) this.draw(); else this.measure();
  }

  /** All rows at once, once: how high they are and how wide the columns; rows that differ in height all stay. */
  measure() {
    this.height = 0;
    this.table.style.tableLayout = "";
    const heads = [...this.table.tHead.rows[0].cells];
    for (const th of heads) th.style.width = "";
    this.body.replaceChildren(...this.rows);
    const heights = this.rows.map((row) => row.offsetHeight), height = heights[0];
    if (this.rows.length <= LONG || !height || heights.some((other) => other !== height)) return;
    const widths = heads.map((th) => th.offsetWidth);
    heads.forEach((th, at) => { th.style.width = `${widths[at]}px`; });
    this.table.style.tableLayout = "fixed";
    this.height = height;
    this.draw();
  }

  draw() {
    const [first, last] = span(this.scroller.scrollTop, this.scroller.clientHeight, this.height, this.rows.length);
    if (this.drawn === `${first}-${last}`) return;
    this.drawn = `${first}-${last}`;
    this.above.firstElementChild.style.height = `${first * this.height}px`;
    this.below.firstElementChild.style.height = `${(this.rows.length - last) * this.height}px`;
    this.body.replaceChildren(...(first ? [this.above] : []), ...this.rows.slice(first, last), ...(last < this.rows.length ? [this.below] : []));
  }

  /** @param {number} at a row's place */
  reveal(at) {
    if (this.on) {
      const top = at * this.height, head = this.table.tHead.offsetHeight;
      if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
      else if (top + this.height + head > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = top + this.height + head - this.scroller.clientHeight;
      this.draw();
    }
    this.rows[at]?.scrollIntoView({ block: "nearest" });
  }
}
