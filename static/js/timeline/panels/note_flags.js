// Flags of the notes on the ruler and on their tracks: elements that move with the view, so that keys and screen readers
// reach them.

import { el } from "../widgets/dom.js";
import { laneHeight, laneTop } from "../model/layout.js";
import { title } from "../data/notes.js";
import { clock } from "../model/viewport.js";

const MOST = 150;               // flags in view
const FLAG_PX = 15;

export class NoteFlags {
  /** @param {import("../app.js").App} app @param {import("../data/notes.js").Notes} notes @param {(note: object) => void} open */
  constructor(app, notes, open) {
    Object.assign(this, { app, notes, open });
    this.root = app.root.querySelector(".tl-flags");
    this.shown = new Map();         // note id -> {note, flag, mark}
  }

  /** Put every flag in view at its place. Called once per frame: writes styles, reads nothing. */
  place() {
    const { notes, shown, app: { viewport, stage } } = this;
    const inView = new Set(notes.between(viewport.start, viewport.end, MOST));
    for (const [id, { note, flag, mark }] of shown) {
      if (inView.has(note)) continue;
      flag.remove();
      mark.remove();
      shown.delete(id);
    }
    for (const note of inView) {
      if (!shown.has(note.id)) this.make(note);
      const { flag, mark } = shown.get(note.id), a = viewport.x(note.start_ns), b = viewport.x(note.end_ns);
      flag.style.transform = `translate(${Math.max(a, 0)}px, ${stage.overlayTop - FLAG_PX}px)`;
      flag.classList.toggle("tl-flag-current", note.id === notes.current);
      this.placeMark(mark, note, Math.max(a, -4), Math.min(b, viewport.width + 4));
    }
  }

  placeMark(mark, note, a, b) {
    const { stage } = this.app;
    const pane = stage.panes.find((p) => p.height && p.rows.byTrack.has(note.track)), row = pane?.rows.byTrack.get(note.track);
    const y = row ? laneTop(row, note.depth ?? 0) - pane.scroll : -1, height = row ? laneHeight(row) : 0;
    mark.hidden = !row || y + height <= 0 || y >= pane.height;
    if (mark.hidden) return;
    mark.style.transform = `translate(${a}px, ${stage.overlayTop + pane.top + y}px)`;
    mark.style.width = `${Math.max(b - a, 3)}px`;
    mark.style.height = `${height}px`;
  }

  make(note) {
    const says = `${title(note)}, ${clock(note.start_ns)}${note.author ? `, ${note.author}` : ""}`;
    const flag = el("button", { class: note.text ? "tl-flag" : "tl-flag tl-flag-bookmark", type: "button", "data-note": note.id, "aria-label": says, title: says, onclick: () => this.open(note) });
    const mark = el("i", { class: "tl-note-mark" });
    this.root.append(mark, flag);
    this.shown.set(note.id, { note, flag, mark });
  }

  /** Make all anew: texts may have changed. */
  renew() {
    this.root.replaceChildren();
    this.shown.clear();
  }
}
