// Widths of a table's columns: dragged at a heading's right edge, by Shift ← → on a heading, a double click makes them automatic again.
// They are rules of one style sheet, kept per table; js/base/theme-init.js has them in place before the first paint, so nothing moves.

const STORED = "ridgepoint.widths.", LEAST_PX = 40, MOST_PX = 1600, STEP_PX = 16, UNKNOWN_PX = 120;

/** @type {Map<string, string>} the rules of each table */
const rules = new Map();
let sheet = null;
let unnamed = 0;

/** Rules for a table of so many columns. @param {string} selector @param {number} count @param {Map<number, number>} px by place @param {(at: number) => boolean} shown */
export function widthRules(selector, count, px, shown) {
  if (!px.size) return "";
  const table = `${selector}:has(> thead > tr:last-child > :nth-child(${count}):last-child)`, places = Array.from({ length: count }, (_, at) => at);
  const of = (at) => px.get(at) ?? UNKNOWN_PX, total = places.filter(shown).reduce((sum, at) => sum + of(at), 0);
  return [`${table} { table-layout: fixed !important; width: ${total}px !important; }`, `${table} > tbody > tr > td { max-width: none; }`,
    ...places.map((at) => `${table} > thead > tr > :nth-child(${at + 1}) { width: ${of(at)}px !important; min-width: 0 !important; }`)].join("\n");
}

/** @param {number} px */
export const clamp = (px) => Math.round(Math.min(MOST_PX, Math.max(LEAST_PX, px)));

/** One sheet of all tables: that which stood before the first paint, where there is one. */
function paint() {
  if (!sheet) {
    sheet = document.adoptedStyleSheets[0] ?? new CSSStyleSheet();
    if (!document.adoptedStyleSheets.includes(sheet)) document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  }
  sheet.replaceSync([...rules.values()].join("\n"));
}

/** @param {string} key @returns {any} */
function stored(key) { try { return JSON.parse(localStorage.getItem(key) ?? "null"); } catch { return null; } }

export class Widths {
  /** @param {any} grid a table of the server */
  constructor(grid) {
    this.grid = grid;
    this.key = grid.name ? STORED + grid.name : "";
    this.id = grid.name || `unnamed-${++unnamed}`;
    if (!grid.name) grid.table.dataset.widths = this.id;
    this.selector = grid.name ? `table[data-grid][data-name="${CSS.escape(grid.name)}"]` : `table[data-widths="${this.id}"]`;
    const kept = this.key && stored(this.key);
    /** @type {Map<number, number>} place of a column -> its width; none: all are as wide as what they hold */
    this.px = new Map(kept?.count === grid.heads.length ? kept.px : []);
    if (this.px.size) rules.set(this.id, this.rules());
    grid.heads.forEach((th, at) => { if (grid.columns[at].title) this.dress(th, at); });
  }

  rules() { return widthRules(this.selector, this.grid.heads.length, this.px, (at) => this.grid.shows(this.grid.columns[at].field)); }

  /** @param {HTMLTableCellElement} th @param {number} at */
  dress(th, at) {
    const edge = document.createElement("span");
    edge.className = "grid-edge";
    edge.title = "Drag to set the width, double click for automatic widths (Shift ← → on the heading)";
    edge.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      event.preventDefault();
      const from = event.clientX, width = th.offsetWidth;
      const move = (next) => this.set(at, width + next.clientX - from);
      edge.setPointerCapture(event.pointerId);
      edge.classList.add("dragged");
      edge.addEventListener("pointermove", move);
      edge.addEventListener("lostpointercapture", () => { edge.classList.remove("dragged"); edge.removeEventListener("pointermove", move); this.keep(); }, { once: true });
    });
    edge.addEventListener("dblclick", () => this.reset());
    th.querySelector(".grid-sort")?.setAttribute("aria-keyshortcuts", "Shift+ArrowLeft Shift+ArrowRight");
    th.addEventListener("keydown", (event) => {
      if (!event.shiftKey || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
      this.set(at, th.offsetWidth + (event.key === "ArrowRight" ? STEP_PX : -STEP_PX));
      this.keep();
    });
    th.append(edge);
  }

  /** The first width that is set keeps all others as they are. @param {number} at @param {number} px */
  set(at, px) {
    if (!this.px.size) this.grid.heads.forEach((th, place) => { if (!th.hidden) this.px.set(place, th.offsetWidth); });
    this.px.set(at, clamp(px));
    this.changed();
  }

  /** Widths, or which columns are shown, are others now. */
  changed() {
    if (!this.px.size) return;
    rules.set(this.id, this.rules());
    paint();
  }

  keep() {
    if (!this.key || !this.px.size) return;
    try { localStorage.setItem(this.key, JSON.stringify({ count: this.grid.heads.length, px: [...this.px], css: this.rules() })); } catch { /* lasts for this page */ }
  }

  reset() {
    this.px.clear();
    rules.delete(this.id);
    try { localStorage.removeItem(this.key); } catch { /* nothing was kept */ }
    paint();
    if (this.grid.view.on) this.grid.view.measure();
  }
}
