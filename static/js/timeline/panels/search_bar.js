// The search field: what is looked for and how, the count, next and previous, and the strip of hits that can be clicked.

import { ApiError } from "../../lib/http.js";
import { part } from "../widgets/dom.js";
import { overviewNs } from "../draw/ruler.js";
import { HITS_PX } from "../draw/hits.js";
import { MODES } from "../data/search.js";
import { registerKey } from "../model/url.js";

const SETTLE_MS = 220;
const HINTS = { name: "Search slices", regex: "Search by RE2 pattern", argument: "stream:7 or Input Dims:[[64" };

registerKey("qm", { get: (app) => (app.search.mode === "name" ? null : app.search.mode), set: (app, text) => app.searchBar.setMode(MODES.includes(text) ? text : "name") });

export class SearchBar {
  /** @param {import("../app.js").App} app @param {HTMLElement} root */
  constructor(app, root) {
    this.app = app;
    this.part = (id) => part(root, id);
    this.field = this.part("tl-q");
    this.modes = this.part("tl-mode");
    this.strip = root.querySelector(".tl-hits");
  }

  start() {
    const { app, field, modes, strip } = this;
    field.addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.look(), SETTLE_MS); });
    field.addEventListener("keydown", (event) => this.key(event));
    modes.addEventListener("change", () => { this.setMode(modes.value); this.look(); field.focus(); });
    this.part("tl-hit-previous").addEventListener("click", () => this.step(-1));
    this.part("tl-hit-next").addEventListener("click", () => this.step(1));
    strip.addEventListener("click", (event) => this.goTo(event.clientX - strip.getBoundingClientRect().left));
    strip.addEventListener("keydown", (event) => {
      const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!direction) return;
      event.preventDefault();
      this.step(direction);
    });
  }

  setMode(mode) {
    this.mode = mode;
    this.modes.value = mode;
    this.field.placeholder = HINTS[mode];
  }

  key(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    }
    if (event.altKey && ["n", "r", "a"].includes(event.key)) {
      event.preventDefault();
      this.setMode({ n: "name", r: "regex", a: "argument" }[event.key]);
      this.look();
    }
    if (event.key !== "Escape") return;
    event.preventDefault();
    if (!this.field.value) this.app.focus();
    this.lookFor("");
  }

  /** @param {string} mode name: what other panels look for is written as it stands */
  lookFor(text, mode = "name") {
    if (text) this.setMode(mode);
    this.field.value = text;
    this.look();
  }

  look() {
    clearTimeout(this.timer);
    this.app.search.set(this.field.value, this.mode);
    this.app.searched();
    this.app.history.remember();
  }

  async step(direction) {
    const { app } = this;
    if (this.field.value.trim() !== app.search.query || this.mode !== app.search.mode) this.look();
    const hit = await app.search.step(direction, app.chosen.slice?.start_ns ?? app.viewport.start).catch(() => null);
    if (hit) await app.chosen.jump(hit, false);
  }

  async goTo(x) {
    const { app } = this, hit = await app.search.goTo(overviewNs(app.timeline, x, app.viewport.width)).catch(() => null);
    if (hit) await app.chosen.jump(hit, false);
  }

  focus() {
    this.field.focus();
    this.field.select();
  }

  /** "3 / 120" in the field, the strip under the overview, and what is wrong with a pattern. */
  tell({ text, total, error, query, complete, strip }) {
    const { app, field } = this, output = this.part("tl-hits"), problem = this.part("tl-q-error");
    output.textContent = text;
    output.title = complete ? "" : "The first hits; the server is still counting";
    for (const id of ["tl-hit-previous", "tl-hit-next"]) this.part(id).disabled = !total;
    const wrong = query && error ? `${error.message}${error instanceof ApiError && error.hint ? `. ${error.hint}` : ""}` : "";
    field.setAttribute("aria-invalid", String(Boolean(wrong)));
    problem.hidden = !wrong;
    problem.textContent = wrong;
    this.strip.setAttribute("aria-label", total ? `${total.toLocaleString("en-US")} hits${complete ? "" : " so far"} over the whole trace; left and right go from hit to hit` : "No hits");
    const height = query && !error && (total || strip) ? `${HITS_PX}px` : "0px";
    if (app.stage.root.style.getPropertyValue("--tl-hits") === height) return;
    app.stage.root.style.setProperty("--tl-hits", height);
    this.strip.tabIndex = height === "0px" ? -1 : 0;
    app.stage.measure();
  }
}
