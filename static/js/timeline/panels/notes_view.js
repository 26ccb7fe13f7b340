// Bookmarks and notes as people meet them: the list, the editor, the keys, and going to one.

import { getJson, sendJson } from "../../lib/http.js";
import { watch } from "../../lib/live.js";
import { ago } from "../../lib/time.js";
import { ns as nsText } from "../../lib/units.js";
import { el, part } from "../widgets/dom.js";
import { NoteFlags } from "./note_flags.js";
import { Notes, title } from "../data/notes.js";
import { registerKey } from "../model/url.js";
import { clock } from "../model/viewport.js";

const MAX_TEXT = 4000;

registerKey("notes", { get: (app) => (app.notes.panel.hidden ? null : "1"), set: (app, text) => app.notes.show(text === "1") });
registerKey("note", { get: (app) => app.notes.store.current?.toString() ?? null, set: (app, text) => { app.notes.store.current = /^\d+$/.test(text ?? "") ? Number(text) : null; } });

export class NotesView {
  /** @param {import("../app.js").App} app @param {HTMLElement} root */
  constructor(app, root) {
    this.app = app;
    this.panel = part(root, "tl-notes");
    this.button = part(root, "tl-notes-button");
    this.store = new Notes(app.api.url("notes/"), { getJson, sendJson }, () => this.changed());
    this.flags = new NoteFlags(app, this.store, (note) => this.go(note));
    this.commands = {
      bookmark: () => this.bookmark(), note: () => this.write(this.here()), notes: () => this.toggle(),
      "note-next": () => this.step(1), "note-previous": () => this.step(-1),
    };
    this.button.addEventListener("click", () => this.toggle());
  }

  start() {
    const load = () => this.store.load().catch((error) => this.app.controls.fail(error));
    watch([`profile.${this.app.timeline.meta.id}`], ({ event, data }) => { if (event === "note") this.store.told(data); }, (state) => { if (state === "live") load(); });
    load();
  }

  changed() {
    const count = this.store.ordered.length;
    this.button.textContent = count ? `Notes ${count.toLocaleString("en-US")}` : "Notes";
    this.flags.renew();
    if (!this.panel.hidden) this.list();
    this.app.changed("overlay");
  }

  toggle() {
    this.show(this.panel.hidden);
    if (!this.panel.hidden) this.panel.querySelector("button, a")?.focus();
    this.app.history.remember();
  }

  show(open) {
    this.panel.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
    if (open) this.list();
  }

  list() {
    const { store, app } = this, { rights } = store;
    const place = (note) => `${clock(note.start_ns)}${note.end_ns > note.start_ns ? ` for ${nsText(note.end_ns - note.start_ns)}` : ""}`;
    const entry = (note) => el("li", { class: note.id === store.current ? "tl-note-current" : null },
      el("button", { class: "tl-jump tl-note-go", type: "button", onclick: () => this.go(note), "aria-current": note.id === store.current ? "true" : null },
        el("b", {}, title(note)), el("span", { class: "muted num" }, place(note)), el("span", { class: "muted" }, app.timeline.tracks.get(note.track)?.name ?? "all tracks")),
      note.text.includes("\n") ? el("p", { class: "tl-note-text" }, note.text.slice(note.text.indexOf("\n") + 1)) : null,
      el("p", { class: "tl-note-by muted" }, note.author ?? "somebody", " · ", el("time", { datetime: note.created, title: new Date(note.created).toLocaleString(), "data-ago": true }, ago(note.created)),
        note.changed.slice(0, 19) === note.created.slice(0, 19) ? null : " · edited",
        store.mayChange(note) ? el("button", { class: "btn btn-small", type: "button", onclick: () => this.write(note, note) }, "Edit") : null,
        store.mayChange(note) ? el("button", { class: "btn btn-small", type: "button", "aria-label": `Delete ${title(note)}`, onclick: () => this.remove(note) }, "Delete") : null));
    this.panel.replaceChildren(
      el("header", {}, el("h2", {}, "Bookmarks and notes"),
        el("button", { class: "icon-btn", type: "button", "aria-label": "Close the list", title: "Close (L)", onclick: () => { this.toggle(); app.focus(); } }, "✕")),
      rights.may_write ? el("p", { class: "tl-note-add" }, el("button", { class: "btn btn-small", type: "button", onclick: () => this.bookmark() }, "Bookmark (B)"),
        el("button", { class: "btn btn-small", type: "button", onclick: () => this.write(this.here()) }, "Write a note (N)")) : el("p", { class: "muted" }, "You may read them; writing needs the role engineer."),
      store.ordered.length ? el("ul", {}, store.ordered.map(entry)) : el("p", { class: "muted" }, "None yet. They are bound to a track and a time, and shared with everybody who reads this profile."));
  }

  /** What a new note is bound to: the selected slice or area, else the moment under the pointer, else the middle of the view. */
  here() {
    const { chosen: { slice, area }, viewport, cursorX, hoverTrack, timeline } = this.app;
    if (slice) return { start_ns: slice.start_ns, end_ns: slice.start_ns + slice.dur_ns, track: slice.track, depth: slice.depth };
    if (area) return { start_ns: area.start, end_ns: area.end, track: area.tracks.length === 1 ? area.tracks[0] : null, depth: null };
    const ns = Math.round(Math.min(Math.max(viewport.ns(cursorX ?? viewport.width / 2), timeline.startNs), timeline.endNs));
    return { start_ns: ns, end_ns: ns, track: cursorX === null ? null : hoverTrack, depth: null };
  }

  async bookmark() {
    if (!this.mayWrite()) return;
    const saved = await this.attempt(() => this.store.add(this.here(), ""));
    if (saved) this.app.say(`Bookmarked ${clock(saved.start_ns)}.`);
  }

  mayWrite() {
    if (!this.store.rights.may_write) this.app.say("Writing notes needs the role engineer.");
    return this.store.rights.may_write;
  }

  /** @param {object} place what it is bound to @param {?object} note the one to change */
  write(place, note = null) {
    if (!this.mayWrite()) return;
    const track = this.app.timeline.tracks.get(place.track)?.name ?? "all tracks";
    const text = el("textarea", { rows: 6, maxlength: MAX_TEXT, "aria-label": "Text of the note", placeholder: "What is to be seen here? Plain text." });
    const problem = el("p", { class: "field-error", role: "alert" });
    const dialog = el("dialog", { class: "tl-note-dialog", "aria-label": note ? "Change the note" : "New note" },
      el("h2", {}, note ? "Change the note" : "New note"), el("p", { class: "muted" }, `${track}, ${clock(place.start_ns)}${place.end_ns > place.start_ns ? ` for ${nsText(place.end_ns - place.start_ns)}` : ""}`),
      text, problem,
      el("p", { class: "tl-note-add" }, el("button", { class: "btn btn-primary", type: "button", onclick: () => save() }, "Save (Ctrl+Enter)"),
        el("button", { class: "btn", type: "button", onclick: () => dialog.close() }, "Cancel")));
    const save = async () => {
      try {
        await (note ? this.store.edit(note.id, text.value) : this.store.add(place, text.value));
        dialog.close();
      } catch (error) { problem.textContent = `${error.message}. ${error.hint ?? ""}`; }
    };
    text.value = note?.text ?? "";
    text.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save(); });
    dialog.addEventListener("close", () => { dialog.remove(); this.app.focus(); });
    document.body.append(dialog);
    dialog.showModal();
    text.focus();
  }

  async remove(note) {
    await this.attempt(() => this.store.remove(note.id));
    this.panel.querySelector("button")?.focus();
  }

  async attempt(act) {
    try {
      return await act();
    } catch (error) {
      this.app.say(`${error.message}. ${error.hint ?? ""}`);
      return null;
    }
  }

  step(direction) {
    const { viewport } = this.app, note = this.store.beside(direction, (viewport.start + viewport.end) / 2);
    if (note) this.go(note);
    else this.app.say("There are no notes yet: B bookmarks, N writes one.");
  }

  /** Bring a note into view. */
  go(note) {
    const { app, store } = this, { viewport } = app, span = note.end_ns - note.start_ns;
    store.current = note.id;
    if (app.timeline.tracks.has(note.track)) {
      app.tracks.uncover(note.track);
      app.stage.reveal(note.track, note.depth ?? 0);
    }
    const wide = Math.min(viewport.span, Math.max(span * 40, 1000)), middle = note.start_ns + span / 2;
    if (span > viewport.span * 0.8) app.go(...viewport.around(note.start_ns, note.end_ns));
    else app.go(middle - wide / 2, middle + wide / 2);
    app.say(`${title(note)}: ${clock(note.start_ns)}${note.author ? `, ${note.author}` : ""}`);
    if (!this.panel.hidden) this.list();
  }
}
