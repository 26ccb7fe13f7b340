// Files dropped on any page: asked once whether several are ranks of one job, uploaded with progress and Stop, and opened as soon as
// they can be. Loaded when a file is dragged over a page for the first time; pages with a form of their own (data-uploader) keep it.

import { upload, getJson } from "../lib/http.js";
import { watch } from "../lib/live.js";
import { bytes, count } from "../lib/units.js";

const RANK = /(?:rank|worker|node|gpu|host|proc)[-_ ]?\d+/i;

/** @param {string} tag @param {Record<string, any>} properties @param {...(Node|string)} children */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Whether names of files speak for ranks of one job. @param {string[]} names */
export function likeRanks(names) {
  const rest = new Set(names.map((name) => name.replace(RANK, "#")));
  return names.length > 1 && names.every((name) => RANK.test(name)) && rest.size === 1;
}

class Drop {
  /** @param {string} url where files go @param {number} maxBytes */
  constructor(url, maxBytes) {
    this.url = url;
    this.maxBytes = maxBytes;
    this.veil = make("div", { className: "drop-veil", hidden: true }, make("p", { textContent: "Drop a profile here" }));
    document.body.append(this.veil);
  }

  /** @param {boolean} on */
  over(on) { this.veil.hidden = !on; }

  /** @param {File[]} files */
  take(files) {
    this.over(false);
    const wrong = files.find((file) => !file.size || file.size > this.maxBytes);
    this.dialog = make("dialog", { className: "drop-dialog" });
    this.dialog.setAttribute("aria-label", "Import");
    this.dialog.addEventListener("cancel", (event) => { if (this.abort) event.preventDefault(); });      // Stop ends an upload
    this.dialog.addEventListener("close", () => { this.live?.close(); this.dialog.remove(); });
    document.body.append(this.dialog);
    this.dialog.showModal();
    if (wrong) this.failed({ where: wrong.name, what: wrong.size ? `${bytes(wrong.size)} are more than the ${bytes(this.maxBytes)} that are taken` : "the file is empty (0 bytes)", hint: wrong.size ? "compress it (.gz) or record fewer steps" : "write the trace again" });
    else if (files.length > 1) this.ask(files);
    else this.send([files]);
  }

  /** @param {File[]} files */
  ask(files) {
    const ranks = likeRanks(files.map((file) => file.name));
    const one = make("button", { type: "button", className: ranks ? "btn btn-primary" : "btn", textContent: "Ranks of one job", onclick: () => this.send([files]) });
    const each = make("button", { type: "button", className: ranks ? "btn" : "btn btn-primary", textContent: "Profiles of their own", onclick: () => this.send(files.map((file) => [file])) });
    this.dialog.replaceChildren(make("h2", { textContent: `${files.length} files` }), this.names(files),
      make("div", { className: "toolbar" }, ...(ranks ? [one, each] : [each, one]), this.closing("Cancel")));
    (ranks ? one : each).focus();
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
        rows.push(await upload(this.url, data, (sent) => { bar.value = Math.min(total, before + sent); said.textContent = `${bytes(bar.value)} of ${bytes(total)}`; }, { signal: this.abort.signal }));
        before += files.reduce((sum, file) => sum + file.size, 0);
      }
    } catch (error) {
      this.abort = null;
      this.failed(error.name === "AbortError" ? { what: "stopped", where: "", hint: rows.length ? `${rows.length} of ${sets.length} profiles are loaded` : "nothing was loaded" } : error, sets);
      return;
    }
    this.abort = null;
    if (rows.length > 1) { location.assign("/profiles/"); return; }
    this.follow(rows[0], sets, bar, said, stop);
  }

  /** Open the profile once it is read. */
  follow(row, sets, bar, said, stop) {
    bar.removeAttribute("value");
    said.textContent = "waits for an ingest worker";
    stop.replaceWith(make("a", { className: "btn", href: `/profiles/${row.id}/`, textContent: "Open now" }), this.closing("Close"));
    const told = ({ status, error, kind }) => {
      if (status === "ready") location.assign(kind === "trace" ? `/profiles/${row.id}/timeline/` : `/profiles/${row.id}/`);
      else if (status === "failed") this.failed(error ?? { what: "failed" }, sets);
      else if (status === "ingesting") said.textContent = "reading";
    };
    const look = () => getJson(`${this.url}${row.id}/`).then(told, () => {});
    this.live = watch([`profile.${row.id}`], ({ event, data }) => {
      if (event === "progress") {
        if (data.total_bytes) { bar.max = data.total_bytes; bar.value = data.done_bytes; }
        said.textContent = [data.phase, data.records ? `${count(data.records)} records` : ""].filter(Boolean).join(" · ");
      } else look();
    }, (state) => { if (state === "live") look(); });
  }

  /** @param {{error?: string, what?: string, where?: string, hint?: string}} error @param {File[][]} sets */
  failed(error, sets = []) {
    this.live?.close();
    const words = [error.where, error.what ?? error.error ?? error.message].filter(Boolean).join(": ");
    const apart = sets.length === 1 && sets[0].length > 1
      ? [make("button", { type: "button", className: "btn btn-primary", textContent: "Load as profiles of their own", onclick: () => this.send(sets[0].map((file) => [file])) })] : [];
    const close = this.closing("Close");
    this.dialog.replaceChildren(make("h2", { textContent: "Not loaded" }), make("p", { className: "notice notice-error", role: "alert", textContent: words + (error.hint ? `. ${error.hint}` : "") }),
      make("div", { className: "toolbar" }, ...apart, close));
    (apart[0] ?? close).focus();
  }
}

/** Show where to drop, from the drag on that loads this. @param {string} url @param {number} maxBytes @returns {Drop} */
export function start(url, maxBytes) {
  const drop = new Drop(url, maxBytes);
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
