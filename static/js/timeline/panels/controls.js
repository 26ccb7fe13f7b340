// The bar above the timeline: search, filter, zoom buttons, link, data; and what the page says in words.

import * as units from "../../lib/units.js";
import { copyText, el, part } from "../widgets/dom.js";
import { clock, exactNs, Viewport } from "../model/viewport.js";

const FILTER_HELP = "Words that the name of a track holds, or a pattern: stream [0-3]$, /nccl|memcpy/";
const TELL_MS = 90;
const SPEAK_SETTLE_MS = 700;
const SAID_MS = 1400;
const SAY_MS = 3500;
const LONG_SAY_MS = 12000;

export class Controls {
  /** @param {import("../app.js").App} app @param {HTMLElement} root `.tl` */
  constructor(app, root) {
    this.app = app;
    this.part = (id) => part(root, id);
    this.search = app.searchBar;
    this.filterField = this.part("tl-filter");
  }

  start() {
    const { app, filterField } = this;
    this.search.start();
    filterField.addEventListener("input", () => this.filter(filterField.value));
    filterField.addEventListener("keydown", (event) => { if (event.key === "Escape") { this.filter(""); app.focus(); } });
    const press = (id, run) => this.part(id).addEventListener("click", run);
    this.part("tl-by").addEventListener("change", (event) => app.tracks.groupBy(event.target.value));
    press("tl-zoom-in", () => this.zoom(0.5));
    press("tl-zoom-out", () => this.zoom(2));
    press("tl-fold-all", () => app.tracks.foldAll());
    press("tl-show-all", () => app.tracks.showAll());
    press("tl-fit", () => app.fit());
    press("tl-whole", () => app.whole());
    press("tl-mark", () => app.mark());
    press("tl-panel-close", () => app.chosen.select(null));
    press("tl-retry", () => { this.part("tl-error").hidden = true; app.tiles.retry(); });
    press("tl-link", (event) => this.copyLink(event.target));
    this.part("tl-data").addEventListener("toggle", () => this.dataLinks());
  }

  /** Fill the fields from a restored view. */
  show(view) {
    this.search.field.value = view.query;
    this.filterField.value = view.filter;
    this.showGrouping(view.by);
  }

  showGrouping(by) { this.part("tl-by").value = by; }

  lookFor(text) { this.search.lookFor(text); }
  step(direction) { return this.search.step(direction); }
  focusSearch() { this.search.focus(); }

  filter(text) {
    this.filterField.value = text;
    this.app.tracks.filter(text);
  }

  /** How many tracks are not shown, and a way back; what is wrong with the filter. */
  tellTracks({ byHand, byFilter, error }) {
    const button = this.part("tl-show-all"), hidden = byHand + byFilter, { filterField } = this;
    button.hidden = !hidden;
    button.textContent = `${hidden.toLocaleString("en-US")} hidden: show`;
    button.title = [byHand && `${byHand} hidden by hand`, byFilter && `${byFilter} by the filter`].filter(Boolean).join(", ");
    filterField.setAttribute("aria-invalid", String(Boolean(error)));
    filterField.title = error ? `Not a pattern: ${error}` : FILTER_HELP;
  }

  zoom(factor) {
    const { viewport } = this.app, goal = Object.assign(new Viewport(viewport.min, viewport.max), viewport);
    goal.zoomAt(viewport.width / 2, factor);
    this.app.go(goal.start, goal.end, false);
  }

  async copyLink(button) {
    this.app.history.write(false);
    await copyText(location.href);
    button.textContent = "Link copied";
    setTimeout(() => { button.textContent = "Copy link"; }, SAID_MS);
  }

  /** Addresses of what is on screen, so that a script can fetch it. */
  dataLinks() {
    const { api, chosen, viewport, stage, search } = this.app, { area, slice } = chosen;
    const window = { start: Math.floor(viewport.start), end: Math.ceil(viewport.end) };
    const links = [
      ["Tracks, steps, integrity", api.url("timeline/")],
      ["Summary of this window", api.url("selection/", { ...window, tracks: stage.shownTracks().join(",") })],
    ];
    if (search.query) links.push(["Hits in this window", api.url("slices/", { ...search.parameters, ...window })]);
    if (area) links.push(["Summary of the selection", api.url("selection/", { start: area.start, end: area.end, tracks: area.tracks.join(",") })]);
    if (slice) links.push(["The selected slice", api.url(`slices/${slice.id}/`)]);
    this.part("tl-data-links").replaceChildren(...links.map(([text, href]) => el("a", { href }, `${text} (JSON)`)));
  }

  /** The window and what is loading; soon after, the same in a sentence for screen readers. */
  tell() {
    const wait = TELL_MS - (performance.now() - (this.toldAt ?? -Infinity));
    if (wait <= 0) this.tellNow();
    else this.tellTimer ??= setTimeout(() => this.tellNow(), wait);     // a frame is for the picture: words follow
  }

  tellNow() {
    clearTimeout(this.tellTimer);
    this.tellTimer = null;
    this.toldAt = performance.now();
    const { viewport, tiles } = this.app;
    const text = `${clock(viewport.start)} – ${clock(viewport.end)}`;
    if (this.part("tl-window").textContent !== text) {
      this.part("tl-window").textContent = text;
      this.part("tl-span").textContent = units.ns(viewport.span);
      this.part("tl-span").title = exactNs(viewport.span);
    }
    const pending = tiles.pending;
    this.part("tl-loading").hidden = !pending;
    this.part("tl-loading").textContent = pending ? `loading ${pending} ${pending === 1 ? "tile" : "tiles"}` : "";
    clearTimeout(this.speakTimer);
    this.speakTimer = setTimeout(() => { this.part("tl-live").textContent = this.sentence(); }, SPEAK_SETTLE_MS);
  }

  sentence() {
    const { viewport, timeline, stage, chosen: { slice, area } } = this.app;
    const chosen = slice?.name ? ` Selected: ${slice.name}, ${units.ns(slice.dur_ns)}, on ${slice.track_name}.`
      : area ? ` Selected: ${units.ns(area.end - area.start)} on ${area.tracks.length} tracks.` : "";
    return `Showing ${units.ns(viewport.span)} from ${units.ns(viewport.start)} of ${units.ns(timeline.axisEnd(viewport))}; ${stage.shownTracks().length} tracks.${chosen}`;
  }

  /** A short message that goes away by itself; heard by screen readers too. */
  say(text, long = false) {
    const said = this.part("tl-said");
    said.textContent = text;
    said.classList.toggle("tl-said-long", long);
    said.hidden = !text;
    clearTimeout(this.sayTimer);
    this.sayTimer = setTimeout(() => { said.hidden = true; said.textContent = ""; }, long ? LONG_SAY_MS : SAY_MS);
  }

  fail(error) {
    this.part("tl-error").hidden = false;
    this.part("tl-error-text").textContent = `Part of the timeline could not be loaded: ${error.message}.`;
  }

  /** What the whole page should say about the trace: records lost, no GPU work, nothing at all. */
  tellTrace() {
    const { timeline } = this.app, { integrity } = timeline.meta, lostBy = Object.entries(integrity?.not_kept ?? {});
    const lost = lostBy.reduce((sum, [, n]) => sum + n, 0), mark = this.part("tl-integrity");
    const records = `${units.count(lost)} ${lost === 1 ? "record" : "records"} not kept`;
    mark.hidden = !lost && !integrity?.truncated_at;
    mark.textContent = integrity?.truncated_at ? `file is truncated${lost ? `, ${records}` : ""}` : records;
    mark.title = lostBy.map(([reason, n]) => `${n} × ${reason}`).join("\n");
    this.part("tl-by").hidden = !timeline.hasGpuWork;
    this.part("tl-no-gpu").hidden = timeline.hasGpuWork || !timeline.hasSlices;
    this.part("tl-empty").hidden = timeline.hasSlices;
  }
}
