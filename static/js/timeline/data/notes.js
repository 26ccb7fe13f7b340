// The notes of a timeline: read, written, kept up with what others write. Knows no DOM.

/** @typedef {{id: number, track: ?number, depth: ?number, start_ns: number, end_ns: number, text: string, author: ?string, created: string, changed: string}} Note */

export class Notes {
  /**
   * @param {string} url of the notes @param {{getJson: Function, sendJson: Function}} http @param {() => void} onChange
   */
  constructor(url, http, onChange) {
    Object.assign(this, { url, http, onChange });
    /** @type {Map<number, Note>} */
    this.byId = new Map();
    this.ordered = [];
    this.rights = { me: null, may_write: false, may_moderate: false };
    this.current = null;            // id of the one that was gone to
  }

  async load() {
    const { notes, ...rights } = await this.http.getJson(this.url);
    this.byId = new Map(notes.map((note) => [note.id, note]));
    this.rights = rights;
    this.changed();
  }

  changed() {
    this.ordered = [...this.byId.values()].sort((a, b) => a.start_ns - b.start_ns || a.id - b.id);
    this.onChange();
  }

  /** What somebody did, as the live connection tells it. @param {{saved?: Note, deleted?: number}} data */
  told({ saved, deleted }) {
    if (saved) this.byId.set(saved.id, saved);
    if (deleted !== undefined) this.byId.delete(deleted);
    this.changed();
  }

  mayChange(note) { return this.rights.may_moderate || (this.rights.may_write && note.author !== null && note.author === this.rights.me); }

  /**
   * The new note is the current one, unless somebody went to another meanwhile.
   * @param {{start_ns: number, end_ns: number, track: ?number, depth: ?number}} place @returns {Promise<Note>}
   */
  async add(place, text) {
    const before = this.current;
    const saved = await this.http.sendJson("POST", this.url, { ...place, text });
    if (this.current === before) this.current = saved.id;
    this.told({ saved });
    return saved;
  }

  async edit(id, text) { this.told({ saved: await this.http.sendJson("PATCH", `${this.url}${id}/`, { text }) }); }

  async remove(id) {
    await this.http.sendJson("DELETE", `${this.url}${id}/`);
    this.told({ deleted: id });
  }

  /** The note after (1) or before (-1) the current one, or a time; round the ends. @returns {?Note} */
  beside(direction, ns) {
    const { ordered } = this;
    if (!ordered.length) return null;
    const at = ordered.findIndex((note) => note.id === this.current);
    let to = at + direction;
    if (at < 0) {
      const after = ordered.findIndex((note) => note.start_ns > ns);
      to = direction > 0 ? (after < 0 ? 0 : after) : (after < 0 ? ordered.length : after) - 1;
    }
    return ordered[(to + ordered.length) % ordered.length];
  }

  /** Notes that touch a stretch of time, at most `most`. */
  between(start, end, most) {
    const found = [];
    for (const note of this.ordered) {
      if (note.start_ns > end || found.length >= most) break;
      if (note.end_ns >= start) found.push(note);
    }
    return found;
  }
}

/** First line of a note, or what a note without a text is. */
export const title = (note) => note.text.split("\n", 1)[0] || "Bookmark";
