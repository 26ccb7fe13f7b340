// Files dropped on any page: asked once whether several are ranks of one job (the server knows names of ranks), uploaded with progress
// and Stop, and opened as soon as they can be. Files dropped while another dialog is open wait until it is closed. Loaded when a file is
// dragged over a page for the first time; pages with a form of their own (data-uploader) keep it.

import { upload, getJson, postJson } from "../lib/http.js";
import { watch } from "../lib/live.js";
import { bytes, plural } from "../lib/units.js";

const ANSWERS_WITHIN_MS = 3000;        // what names say is a help: where the server does not tell in time, nothing is suggested

/** @param {string} tag @param {Record<string, any>} properties @param {...(Node|string)} children */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** An address of our own as a path: a proxy may have told the server another scheme or host. @param {string} link */
export function pathOf(link) {
  const { pathname, search } = new URL(link, "http://host/");
  return pathname + search;
}

/** What to do with files that are dropped now. @param {{dialog: boolean, own: boolean, busy: boolean}} state a dialog is open, it is that of a drop, it uploads */
export function takes({ dialog, own, busy }) {
  if (!dialog) return "now";
  if (own) return busy ? "not" : "instead";
  return "later";
}

class Drop {
  /** @param {string} url where files go @param {string} list the page of all profiles @param {number} maxBytes */
  constructor(url, list, maxBytes) {
    this.url = url;
    this.list = list;
    this.maxBytes = maxBytes;
    this.abort = null;
    this.veil = make("div", { className: "drop-veil", hidden: true }, make("p", { textContent: "Drop a profile here" }));
    this.note = make("p", { className: "drop-note", popover: "manual", role: "status" });
    document.body.append(this.veil, this.note);
  }

  /** @param {boolean} on */
  over(on) { this.veil.hidden = !on; }

  /** Files that were dropped. @param {File[]} files */
  take(files) {
    this.over(false);
    const open = /** @type {HTMLDialogElement|null} */ (document.querySelector("dialog[open]"));
    const how = takes({ dialog: open !== null, own: open !== null && open === this.dialog, busy: this.abort !== null });
    const many = files.length === 1 ? files[0].name : `${files.length} files`;
    if (how === "not") { this.tell(`${many} not taken: an import is in progress. Drop again when it has ended`); return; }
    if (how === "later") {
      this.tell(`${many}: imported when this dialog is closed`);
      open?.addEventListener("close", () => { this.tell(""); this.take(files); }, { once: true });
      return;
    }
    this.tell("");
    if (how === "instead") this.dialog.close();
    this.open(files);
  }

  /** Say something over everything, a dialog as well. @param {string} text "" says nothing any more */
  tell(text) {
    clearTimeout(this.forget);
    this.note.textContent = text;
    if (this.note.matches(":popover-open")) this.note.hidePopover();
    if (!text) return;
    this.note.showPopover();
    this.forget = setTimeout(() => this.tell(""), 8000);
  }

  /** @param {File[]} files */
  open(files) {
    const wrong = files.find((file) => !file.size || file.size > this.maxBytes);
    const dialog = this.dialog = make("dialog", { className: "drop-dialog" });
    dialog.setAttribute("aria-label", "Import");
    dialog.addEventListener("cancel", (event) => { if (this.abort) event.preventDefault(); });      // Stop ends an upload
    dialog.addEventListener("close", () => { this.live?.close(); dialog.remove(); });
    document.body.append(dialog);
    dialog.showModal();
    if (wrong) this.failed({ where: wrong.name, what: wrong.size ? `${bytes(wrong.size)} are more than the ${bytes(this.maxBytes)} that are taken` : "the file is empty (0 bytes)", hint: wrong.size ? "compress it (.gz) or record fewer steps" : "write the trace again" });
    else if (files.length > 1) this.ask(files);
    else this.send([files]);
  }

  /** @param {File[]} files */
  async ask(files) {
    const { dialog } = this;
    const title = make("h2", { textContent: `${files.length} files` });
    dialog.replaceChildren(title, this.names(files), make("div", { className: "toolbar" }, this.closing("Cancel")));
    const said = await postJson(`${this.url}names/`, { files: files.map((file) => file.name) }, { signal: AbortSignal.timeout(ANSWERS_WITHIN_MS) }).catch(() => ({ ranks: false, job: "" }));
    if (dialog !== this.dialog || !dialog.open) return;
    const one = make("button", { type: "button", className: said.ranks ? "btn btn-primary" : "btn", textContent: "Ranks of one job", onclick: () => this.send([files]) });
    const each = make("button", { type: "button", className: said.ranks ? "btn" : "btn btn-primary", textContent: "Profiles of their own", onclick: () => this.send(files.map((file) => [file])) });
    if (said.ranks && said.job) title.append(": ", make("span", { className: "mono", textContent: said.job }));
    dialog.lastElementChild.prepend(...(said.ranks ? [one, each] : [each, one]));
    (said.ranks ? one : each).focus();
  }

  /** @param {File[]} files */
  names(files) {
    return make("ul", { className: "drop-files mono" }, ...files.slice(0, 12).map((file) => make("li", {}, file.name, " ", make("span", { className: "muted", textContent: bytes(file.size) }))),
      ...(files.length > 12 ? [make("li", { className: "muted", textContent: `and ${files.length - 12} more` })] : []));
  }

  closing(text) { return make("button", { type: "button", className: "btn", textContent: text, onclick: () => this.dialog.close() }); }

  /** Upload sets of files one after the other; the first set is opened. @param {File[][]} sets */
  async send(sets) {
    this.abort = new AbortController();
    const total = sets.flat().reduce((sum, file) => sum + file.size, 0);
    const bar = make("progress", { max: total, value: 0 }), said = make("p", { className: "muted", textContent: "uploading" });
    bar.setAttribute("aria-label", "Progress");
    said.setAttribute("role", "status");
    const stop = make("button", { type: "button", className: "btn", textContent: "Stop", onclick: () => this.abort?.abort() });
    this.dialog.replaceChildren(make("h2", { textContent: sets.length > 1 ? `${sets.length} profiles` : sets[0].length > 1 ? `${sets[0].length} ranks` : sets[0][0].name }), bar, said, make("div", { className: "toolbar" }, stop));
    stop.focus();
    const rows = [];
    let before = 0;
    try {
      for (const files of sets) {
        const data = new FormData();
        for (const file of files) data.append("file", file);
        if (files.length > 1) data.append("together", "true");
        else data.append("written", new Date(files[0].lastModified).toISOString());
        rows.push(await upload(this.url, data, (sent) => { bar.value = Math.min(total, before + sent); said.textContent = `${bytes(bar.value)} of ${bytes(total)}`; }, { signal: this.abort.signal }));
        before += files.reduce((sum, file) => sum + file.size, 0);
      }
    } catch (error) {
      this.abort = null;
      this.failed(error.name === "AbortError" ? { what: "stopped", where: "", hint: rows.length ? `${rows.length} of ${sets.length} profiles are loaded` : "nothing was loaded" } : error, sets);
      return;
    }
    this.abort = null;
    if (rows.length > 1) { location.assign(this.list); return; }
    this.follow(rows[0], sets, bar, said, stop);
  }

  /** Open the profile once it is read. */
  follow(row, sets, bar, said, stop) {
    bar.removeAttribute("value");
    said.textContent = "waits for an ingest worker";
    stop.replaceWith(make("a", { className: "btn", href: pathOf(row.links.page), textContent: "Open now" }), this.closing("Close"));
    const told = ({ status, error, links }) => {
      if (status === "ready") location.assign(pathOf(links.timeline ?? links.page));
      else if (status === "failed") this.failed(error ?? { what: "failed" }, sets, row);
      else if (status === "ingesting") said.textContent = "reading";
    };
    const look = () => getJson(`${this.url}${row.id}/`).then(told, () => {});
    this.live = watch([`profile.${row.id}`], ({ event, data }) => {
      if (event === "progress") {
        if (data.total_bytes) { bar.max = data.total_bytes; bar.value = data.done_bytes; }
        said.textContent = [data.phase, data.records ? plural(data.records, "record") : ""].filter(Boolean).join(" · ");
      } else look();
    }, (state) => { if (state === "live") look(); });
  }

  /**
   * Say why nothing is loaded. Files refused as ranks of different jobs can be loaded apart: the server has them, and the refused row goes.
   * @param {{error?: string, what?: string, where?: string, hint?: string, kind?: string}} error @param {File[][]} sets @param {any} row what the server made of them
   */
  failed(error, sets = [], row = null) {
    this.live?.close();
    const words = [error.where, error.what ?? error.error ?? error.message].filter(Boolean).join(": ");
    const apart = row && error.kind === "different jobs"
      ? [make("button", { type: "button", className: "btn btn-primary", textContent: "Load as profiles of their own", onclick: (event) => this.apart(row, event.currentTarget) })] : [];
    const seen = row ? [make("a", { className: "btn", href: pathOf(row.links.page), textContent: "Open" })] : [];
    const close = this.closing("Close");
    this.dialog.replaceChildren(make("h2", { textContent: "Not loaded" }), make("p", { className: "notice notice-error", role: "alert", textContent: words + (error.hint ? `. ${error.hint}` : "") }),
      make("div", { className: "toolbar" }, ...apart, ...seen, close));
    (apart[0] ?? close).focus();
  }

  /** @param {any} row the refused one @param {HTMLButtonElement} button */
  async apart(row, button) {
    button.disabled = true;
    button.textContent = "Loading…";
    try {
      await postJson(`${this.url}${row.id}/apart/`);
      location.assign(this.list);
    } catch (error) { this.failed(error); }
  }
}

/** Show where to drop, from the drag on that loads this. @param {string} url @param {string} list @param {number} maxBytes @returns {Drop} */
export function start(url, list, maxBytes) {
  const drop = new Drop(url, list, maxBytes);
  let inside = 1;
  const holds = (event) => event.dataTransfer?.types.includes("Files");
  const leave = () => { inside = 0; drop.over(false); };
  addEventListener("dragenter", (event) => { if (holds(event)) { inside += 1; drop.over(true); } });
  addEventListener("dragleave", (event) => { if (holds(event) && --inside <= 0) leave(); });
  addEventListener("drop", leave);
  addEventListener("pointermove", leave);        // a pointer that moves drags no file: it left while this was loaded
  drop.over(true);
  return drop;
}
