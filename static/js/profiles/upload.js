// Upload several files, each with its own progress, then watch each being read. Works on a form (the upload page) and on a
// bare drop zone (the home page); without this script the form is a plain form.

import { sayOneJob } from "./files_of_one_job.js";
import { upload, getJson, postJson } from "../lib/http.js";
import { watch } from "../lib/live.js";
import { bytes, count, ns, plural, si } from "../lib/units.js";

const AT_ONCE = 2;
const FIELDS = ["build", "model", "tags", "notes"];
const REMEMBERED = "ridgepoint.upload.";

/** @param {string} tag @param {Record<string, any>} properties @param {...(Node|string)} children */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** A sentence as nodes; `names` in backticks are code. @param {string} text */
function ticked(text) {
  return text.split("`").map((part, at) => (at % 2 ? make("code", { textContent: part }) : part));
}

/** @param {HTMLElement} element a form, or a drop zone; data-url: where to send files */
export function mountUploader(element) {
  if (element.dataset.mounted) return;
  element.dataset.mounted = "1";
  new Uploader(element);
}

class Uploader {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.url = element.dataset.url;
    this.maxBytes = Number(element.dataset.maxBytes) || Infinity;
    this.form = element instanceof HTMLFormElement ? element : null;
    this.zone = element.querySelector("[data-dropzone]") ?? element;
    this.input = element.querySelector("input[type=file]") ?? this.addInput();
    this.list = element.querySelector("[data-files]") ?? this.addList();
    /** @type {Upload[]} */
    this.waiting = [];
    this.running = 0;
    /** @type {Map<number, Upload>} */
    this.reading = new Map();
    this.live = null;
    this.remember();
    this.listen();
  }

  addInput() {
    const input = make("input", { type: "file", multiple: true, hidden: true });
    const button = make("button", { type: "button", className: "btn", textContent: "Choose files" });
    button.addEventListener("click", () => input.click());
    this.zone.append(input, button);
    return input;
  }

  addList() {
    const list = make("ul", { className: "list" });
    list.setAttribute("aria-live", "polite");
    this.element.after(list);
    return list;
  }

  /** What was typed stays typed, for the next upload too. */
  remember() {
    for (const name of FIELDS) {
      const field = this.form?.elements.namedItem(name);
      if (!field) continue;
      field.value ||= localStorage.getItem(REMEMBERED + name) ?? "";
      field.addEventListener("change", () => localStorage.setItem(REMEMBERED + name, field.value));
    }
  }

  listen() {
    const together = this.element.querySelector("[data-together]");
    const offer = async () => {
      const files = this.input.files, tick = together.querySelector("input");
      together.hidden = files.length < 2;
      const say = files.length > 1 && await sayOneJob(files);
      if (say && files === this.input.files) tick.checked = true;      // what was ticked by hand stays
    };
    if (together) { offer(); this.input.addEventListener("change", offer); }
    for (const kind of ["dragenter", "dragover"]) this.zone.addEventListener(kind, (event) => { event.preventDefault(); this.zone.classList.add("over"); });
    for (const kind of ["dragleave", "drop"]) this.zone.addEventListener(kind, () => this.zone.classList.remove("over"));
    this.zone.addEventListener("drop", (event) => { event.preventDefault(); this.add(event.dataTransfer?.files ?? []); });
    // A file dropped beside the zone must not replace the page.
    for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => { if (event.dataTransfer?.types.includes("Files")) event.preventDefault(); });
    if (this.form) {
      this.form.addEventListener("submit", (event) => { event.preventDefault(); this.add(this.input.files); });
    } else {
      this.input.addEventListener("change", () => this.add(this.input.files));
    }
    addEventListener("beforeunload", (event) => { if (this.running || this.waiting.length) event.preventDefault(); });
  }

  /** @param {Iterable<File>} files */
  add(files) {
    const fields = Object.fromEntries(FIELDS.map((name) => [name, this.form?.elements.namedItem(name)?.value ?? ""]));
    for (const [name, value] of Object.entries(fields)) if (this.form) localStorage.setItem(REMEMBERED + name, value);
    const together = this.form?.elements.namedItem("together")?.checked && files.length > 1;
    for (const set of together ? [[...files]] : [...files].map((file) => [file])) {
      const each = new Upload(set, fields, this), empty = set.find((file) => !file.size);
      this.list.append(each.row);
      if (empty) each.failed({ error: "the file is empty (0 bytes)", where: empty.name, hint: "write the trace again" });
      else if (each.size > this.maxBytes) each.failed({ error: `${bytes(each.size)} are more than the ${bytes(this.maxBytes)} that are taken`, where: each.title, hint: "compress it (.gz) or record fewer steps" });
      else this.waiting.push(each);
    }
    this.input.value = "";
    this.next();
  }

  next() {
    while (this.running < AT_ONCE && this.waiting.length) {
      this.running += 1;
      this.waiting.shift().send(this.url).finally(() => { this.running -= 1; this.next(); });
    }
  }

  /** Watch the ingest of an uploaded profile. @param {number} id @param {Upload} each */
  follow(id, each) {
    this.reading.set(id, each);
    this.watchAll();
  }

  /** @param {number} id */
  done(id) {
    this.reading.delete(id);
    if (this.reading.size) this.watchAll();
    else { this.live?.close(); this.live = null; }
  }

  watchAll() {
    const topics = [...this.reading.keys()].map((id) => `profile.${id}`);
    if (this.live) { this.live.set(topics); return; }
    this.live = watch(topics, ({ topic, event, data }) => this.told(Number(topic.split(".")[1]), event, data), (state) => {
      if (state === "live") this.catchUp();
      else if (state === "lost") for (const each of this.reading.values()) each.say("not live: trying to reconnect");
    });
  }

  told(id, event, data) {
    const each = this.reading.get(id);
    if (!each) return;
    if (event === "progress") each.readingNow(data);
    else if (["ready", "failed", "deleted"].includes(data.status)) { each.ended(data); this.done(id); }
    else each.say(data.status === "ingesting" ? "reading" : "waits for an ingest worker");
  }

  /** The rows know what was missed while nothing was live. */
  async catchUp() {
    for (const id of [...this.reading.keys()]) {
      const row = await getJson(`${this.url}${id}/`).catch(() => null);
      if (!row) continue;
      if (row.progress) this.reading.get(id)?.readingNow(row.progress);
      this.told(id, "status", { ...row, records_read: row.integrity?.records_read, records_kept: row.integrity?.records_kept });
    }
  }
}

class Upload {
  /** @param {File[]} files one, or the ranks of one job @param {Record<string, string>} fields @param {Uploader} owner */
  constructor(files, fields, owner) {
    this.files = files;
    this.title = files.length > 1 ? `${files[0].name} and ${files.length - 1} more: one job` : files[0].name;
    this.size = files.reduce((sum, file) => sum + file.size, 0);
    this.fields = fields;
    this.owner = owner;
    this.id = 0;
    this.name = make("span", { className: "what mono", textContent: this.title });
    this.bar = make("progress", { max: this.size || 1, value: 0 });
    this.bar.setAttribute("aria-label", `Progress of ${this.title}`);
    this.text = make("span", { className: "progress-text", textContent: "waits" });
    this.stop = make("button", { type: "button", className: "btn btn-small", textContent: "Stop" });
    this.why = make("span", { className: "why", hidden: true });
    this.state = make("span", { className: "progress push" }, this.bar, this.text, this.stop);
    this.row = make("li", {}, this.name, make("span", { className: "muted", textContent: bytes(this.size) }), this.state, this.why);
    this.abort = new AbortController();
    this.stop.addEventListener("click", () => this.abort.abort());
  }

  say(text) { this.text.textContent = text; }

  /** @param {string} url */
  async send(url) {
    const data = new FormData();
    for (const file of this.files) data.append("file", file);
    if (this.files.length > 1) data.append("together", "true");
    else data.append("written", new Date(this.files[0].lastModified).toISOString());
    for (const [name, value] of Object.entries(this.fields)) if (value) data.append(name, value);
    const began = performance.now();
    try {
      const row = await upload(url, data, (sent, total) => this.sending(sent, total, began),
        { signal: this.abort.signal, onWait: () => this.say("the server is away: it is sent again") });
      this.taken(row);
    } catch (error) {
      if (error.name === "AbortError") this.failed({ error: "stopped", where: this.title, hint: "" });
      else this.failed(error);
    }
  }

  sending(sent, total, began) {
    const seconds = (performance.now() - began) / 1000;
    const rate = seconds > 0.3 ? sent / seconds : 0;
    this.bar.max = total || this.size;
    this.bar.value = sent;
    const left = rate ? ` · ${si(rate, "B/s")} · ${ns(((this.bar.max - sent) / rate) * 1e9)} left` : "";
    this.say(sent >= this.bar.max ? "storing" : `uploading ${bytes(sent)} of ${bytes(this.bar.max)}${left}`);
  }

  taken(row) {
    this.id = row.id;
    this.stop.remove();
    this.bar.removeAttribute("value");
    this.say("waits for an ingest worker");
    this.page = new URL(row.links.page, location.href).pathname;
    this.name.replaceChildren(make("a", { href: this.page, textContent: this.title }));
    if (row.duplicates?.length) {
      const [before] = row.duplicates;
      this.explain("The same bytes were uploaded before: ", make("a", { href: new URL(`../${before}/`, new URL(this.page, location.href)).pathname, textContent: `profile ${before}` }), ".");
    }
    this.owner.follow(row.id, this);
  }

  readingNow({ phase, done_bytes, total_bytes, records, rate_bytes_s, eta_s }) {
    if (total_bytes) { this.bar.max = total_bytes; this.bar.value = done_bytes; } else this.bar.removeAttribute("value");
    const parts = [phase, records ? plural(records, "record") : "", rate_bytes_s ? si(rate_bytes_s, "B/s") : "", eta_s ? `${ns(eta_s * 1e9)} left` : ""];
    this.say(parts.filter(Boolean).join(" · "));
  }

  ended(data) {
    if (data.status !== "ready") { this.failed(data.error ?? { what: data.status }); return; }
    const lost = (data.records_read ?? 0) - (data.records_kept ?? 0);
    this.bar.remove();
    this.text.replaceChildren(make("span", { className: lost ? "mark-warn" : "mark-ok", textContent: lost ? "! ready, with loss" : "✓ ready" }),
      data.launches ? ` ${plural(data.launches, "launch")}, ${ns(data.gpu_time_ns)} of kernel time` : ` ${plural(data.records_kept ?? 0, "record")}, no GPU work`);
    this.state.append(make("a", { className: "btn btn-small btn-primary", href: this.page, textContent: "Open" }));
    if (lost) this.explain(`${count(lost)} of ${plural(data.records_read, "record")} could not be kept; the profile says which.`);
  }

  /** @param {{error?: string, what?: string, where?: string, hint?: string}} error */
  failed(error) {
    this.stop.remove();
    this.bar.remove();
    this.text.replaceChildren(make("span", { className: "mark-bad", textContent: "✕ failed" }));
    this.explain(...ticked([error.where, error.what ?? error.error].filter(Boolean).join(": ") + (error.hint ? `. ${error.hint}` : "")));
    if (this.id && error.kind === "different jobs") {
      this.why.append(" ", make("button", { type: "button", className: "btn btn-small", textContent: "Load as profiles of their own", onclick: (event) => this.apart(event.currentTarget) }));
    }
  }

  /** Of files that were refused as ranks of different jobs: each as a profile, in place of this row. */
  async apart(button) {
    button.disabled = true;
    try {
      const { profiles } = await postJson(`${this.owner.url}${this.id}/apart/`);
      const made = profiles.map((row, at) => [new Upload([this.files[at]], this.fields, this.owner), row]);
      this.row.replaceWith(...made.map(([each]) => each.row));
      for (const [each, row] of made) each.taken(row);
    } catch (error) { this.failed(error); }
  }

  explain(...nodes) {
    this.why.hidden = false;
    this.why.replaceChildren(...nodes);
  }
}
