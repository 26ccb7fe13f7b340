// The export menu: what is on screen, the selection or the whole trace, as files; and the way to Perfetto.

import { count } from "../../lib/units.js";
import { el, part } from "../widgets/dom.js";
import { openInPerfetto } from "./perfetto.js";
import { clock } from "../model/viewport.js";

const MOST_SLICES = 20_000_000;         // a browser tab holds no more (Perfetto states 2 GB)
const FILES = [["csv", "CSV"], ["parquet", "Parquet"], ["arrow", "Arrow"], ["json", "JSON"]];

export class Exporting {
  /** @param {import("../app.js").App} app @param {HTMLElement} root */
  constructor(app, root) {
    this.app = app;
    this.menu = part(root, "tl-data");
    this.body = part(root, "tl-export");
    this.address = this.body.dataset.perfetto || "https://ui.perfetto.dev";
    this.scope = null;                  // null: the selection where there is one, else the window
    this.said = el("p", { role: "status" });
    this.commands = { export: () => this.toggle() };
    this.menu.addEventListener("toggle", () => { if (this.menu.open) this.fill(); });
  }

  toggle() {
    this.menu.open = !this.menu.open;
    this.fill();
    this.menu.querySelector(this.menu.open ? "select" : "summary").focus();
  }

  /** What can be exported: title, and the part of the trace as parameters. */
  scopes() {
    const { viewport, stage, chosen: { area }, timeline } = this.app, shown = stage.shownTracks();
    const window = { start: Math.max(Math.floor(viewport.start), 0), end: Math.max(Math.ceil(viewport.end), 0) };
    const tracks = (ids) => (ids.length < timeline.tracks.size ? ids.join(",") : undefined);
    const n = (ids) => `${count(ids.length)} ${ids.length === 1 ? "track" : "tracks"}`;
    return [
      area && ["selection", `Selection: ${clock(area.start)} – ${clock(area.end)}, ${n(area.tracks)}`, { start: area.start, end: area.end, tracks: tracks(area.tracks) }],
      ["window", `Visible window, ${n(shown)} shown`, { ...window, tracks: tracks(shown) }],
      ["window-all", "Visible window, all tracks", window],
      ["whole", `Whole trace: ${count(timeline.meta.slices)} slices`, {}],
    ].filter(Boolean);
  }

  get chosenScope() {
    const scopes = this.scopes();
    return scopes.find(([key]) => key === this.scope) ?? scopes[0];
  }

  fill() {
    const scopes = this.scopes(), [now, , parameters] = this.chosenScope, { api, search } = this.app;
    const table = (title, path, asked) => el("div", { class: "tl-export-files" }, el("span", {}, title), FILES.map(([format, name]) => el("a", { href: api.url(path, { ...asked, format }), download: true }, name)));
    const select = el("select", { "aria-label": "What to export", onchange: () => { this.scope = select.value; this.fill(); this.menu.querySelector("select").focus(); } },
      scopes.map(([key, title]) => el("option", { value: key, selected: key === now }, title)));
    this.body.replaceChildren(
      el("div", { class: "tl-export-scope" }, select),
      el("a", { href: api.url("export/trace/", parameters), download: true }, "Trace for Perfetto and others (.json.gz)"),
      el("button", { type: "button", class: "tl-perfetto", onclick: () => this.perfetto() }, "Open in Perfetto"),
      el("p", {}, `Opens ${new URL(this.address).host} in a new tab, and this browser hands it the trace. Nothing is uploaded: it stays in this browser. Needs a way from this machine to that address.`),
      table("Slices as a table", "export/slices/", parameters),
      search.query ? table("Search hits", "export/hits/", { q: search.query, mode: search.mode }) : "",
      this.said);
  }

  async perfetto() {
    const [, , parameters] = this.chosenScope, { api, timeline } = this.app, say = (text) => { this.said.textContent = text; };
    if (!parameters.end && timeline.meta.slices > MOST_SLICES) return say(`The whole trace has ${count(timeline.meta.slices)} slices: more than a browser tab can hold. Choose a window.`);
    return openInPerfetto(this.address, { title: `${timeline.meta.name} · Ridgepoint`, fileName: "ridgepoint.json.gz", load: () => api.bytes("export/trace/", parameters), say });
  }
}
