// Wires the timeline: page → model, input → state, state → one frame, state ↔ URL.

import { ApiError, getJson } from "../lib/http.js";
import { css, onChange as onThemeChange } from "../lib/theme.js";
import * as units from "../lib/units.js";
import { sliceDetails } from "./details.js";
import { copyText, el } from "./dom.js";
import { overviewNs, overviewPart } from "./draw_ruler.js";
import { listen } from "./input.js";
import { groupKey, layout } from "./layout.js";
import { category, MERGED, Timeline } from "./model.js";
import { makePalette } from "./palette.js";
import { Search } from "./search.js";
import { selectionDetails } from "./selection.js";
import { Stage } from "./stage.js";
import { Api, Tiles } from "./tiles.js";
import { fromQuery, toQuery } from "./url.js";
import { between, clock, exactNs, Viewport } from "./viewport.js";

const MOVE_MS = 220;
const URL_SETTLE_MS = 300;
const SEARCH_SETTLE_MS = 220;
const MANY_TRACKS = 60;         // beyond this, groups start folded

const $ = (id) => document.getElementById(id);

class App {
  constructor(root, api, meta) {
    this.root = root;
    this.api = api;
    this.timeline = new Timeline(meta);
    this.viewport = new Viewport(this.timeline.startNs, this.timeline.endNs);
    this.tiles = new Tiles({
      fetchTile: (...request) => api.tile(...request), endNs: this.timeline.endNs, topLevel: this.timeline.topLevel,
      tileBins: this.timeline.tileBins, onChange: () => this.changed("tracks"), onError: (error) => this.fail(error),
    });
    this.tiles.setOverview([...this.timeline.tracks.values()].filter((t) => t.slices).sort((a, b) => (b.kind === "stream") - (a.kind === "stream") || b.slices - a.slices).map((t) => t.id));
    this.stage = new Stage($("tl-stage"), {
      viewport: this.viewport, tiles: this.tiles, timeline: this.timeline,
      labelActions: { fold: (key) => this.fold(key), pin: (track) => this.pin(track) },
    });
    this.search = new Search(api, () => this.searched());
    this.view = { folded: new Set(), pinned: new Set(), filter: "" };
    this.selection = { slice: null, area: null };
    this.marks = [];
    this.hover = this.cursorX = this.match = this.motion = this.animation = null;
    this.due = { tracks: true, ruler: true, overlay: true };
    this.frames = [];
    this.repaint();
  }

  start() {
    this.motion = listen({
      stage: $("tl-stage"), overview: this.stage.overview.canvas, ruler: this.stage.ruler.canvas, resizer: $("tl-resizer"),
      panelHandle: $("tl-panel-handle"), tracks: this.stage.panes.map((pane) => pane.element),
    }, this.actions());
    this.controls();
    this.restore(fromQuery(location.search), false);
    addEventListener("popstate", () => this.restore(fromQuery(location.search), true));
    new ResizeObserver(() => { this.stage.measure(); this.changed("tracks"); }).observe(this.stage.root);
    for (const pane of this.stage.panes) pane.element.addEventListener("scroll", () => { pane.scroll = pane.element.scrollTop; this.changed("tracks"); this.remember(); }, { passive: true });
    onThemeChange(() => this.repaint());
    this.api.names().then(({ names }) => { this.timeline.setNames(names); this.searched(); this.changed("tracks"); }, (error) => this.fail(error));
  }

  /** Colours and fonts of the theme. */
  repaint() {
    this.palette = makePalette(css);
    this.palette.id = (this.paletteId = (this.paletteId ?? 0) + 1);
    const font = `11px ${css("--mono") || "monospace"}`;
    const context = document.createElement("canvas").getContext("2d");
    context.font = font;
    this.font = { font, charPx: context.measureText("0123456789").width / 10 };
    this.changed("tracks");
  }

  // ---- frames ----

  changed(what) {
    this.due[what] = true;
    this.scheduled ??= requestAnimationFrame((time) => this.frame(time));
  }

  frame(time) {
    const began = performance.now();
    this.scheduled = null;
    this.advance(time);
    if (this.due.tracks) this.tiles.want(this.viewport.level(this.timeline.topLevel), this.viewport.start, this.viewport.end, this.stage.visibleTracks());
    const due = this.due;
    this.due = {};
    this.stage.paint(this.scene(), due, this.view);
    if (due.tracks) this.tell();
    this.frames.push({ time, ms: performance.now() - began, entries: this.stage.entries });
    if (this.frames.length > 600) this.frames.splice(0, 300);
    if (this.motion?.isMoving || this.animation) this.changed("tracks");
    else this.lastTime = null;
  }

  scene() {
    return {
      timeline: this.timeline, viewport: this.viewport, tiles: this.tiles, palette: this.palette, match: this.match, units,
      dpr: devicePixelRatio || 1, ...this.font, selection: this.selection, hover: this.hover, cursorX: this.cursorX, marks: this.marks, hits: this.search.hits,
    };
  }

  /** Move by held keys and by the running animation. */
  advance(time) {
    const seconds = Math.min((time - (this.lastTime ?? time - 16)) / 1000, 0.1);
    this.lastTime = time;
    if (this.motion?.isMoving) {
      const moved = this.motion.advance(seconds);
      if (moved.zoom) this.viewport.zoomAt(this.cursorX ?? this.viewport.width / 2, Math.exp(moved.zoom));
      if (moved.pan) this.viewport.pan(moved.pan * this.viewport.span);
      if (moved.scroll) this.stage.scrollBy(moved.scroll * 100);
      this.animation = null;
      this.remember();
    }
    if (!this.animation) return;
    const t = Math.min((time - (this.animation.began ??= time)) / MOVE_MS, 1);
    const now = between(this.animation.from, this.animation.to, 1 - (1 - t) ** 3);
    if (t >= 1) {
      this.viewport.set(this.animation.to.start, this.animation.to.end);
      this.animation = null;
    } else this.viewport.set(now.start, now.end);
  }

  /** Go to a window; `push` makes it a step of the browser's history. */
  go(start, end, push = true) {
    const goal = new Viewport(this.viewport.min, this.viewport.max);
    goal.resize(this.viewport.width);
    goal.set(start, end);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (still) this.viewport.set(goal.start, goal.end);
    else this.animation = { from: { start: this.viewport.start, end: this.viewport.end }, to: goal };
    this.changed("tracks");
    this.remember(push, goal);
  }

  // ---- what the input means ----

  actions() {
    return {
      wake: () => this.changed("tracks"),
      zoom: (x, factor) => this.moved(() => this.viewport.zoomAt(x, factor)),
      pan: (px) => this.moved(() => this.viewport.pan(px * this.viewport.nsPerPx)),
      scroll: (px, element) => { this.stage.scrollBy(px, element?.matches?.(".tl-pane") ? element : undefined); this.changed("tracks"); this.remember(); },
      hover: (point) => this.hovered(point),
      click: (point) => this.clicked(point),
      open: (point) => { const hit = this.stage.hit(point); if (hit?.entry) this.go(...this.viewport.around(hit.entry.start, hit.entry.start + hit.entry.dur)); },
      area: (a, b, done, ruler) => this.areaDragged(a, b, done, ruler),
      overview: (phase, x) => this.overviewDragged(phase, x),
      resize: (x, relative) => { this.stage.setLabelWidth(relative ? this.stage.labelWidth + x : x - this.stage.root.getBoundingClientRect().left); this.changed("tracks"); },
      resizePanel: (y, relative) => this.resizePanel(y, relative),
      command: (name) => this.command(name),
    };
  }

  moved(change) {
    this.animation = null;
    change();
    this.changed("tracks");
    this.remember();
  }

  command(name) {
    const page = this.stage.main.height * 0.85;
    ({
      fit: () => this.fit(), whole: () => this.go(this.viewport.min, this.viewport.max), mark: () => this.mark(),
      previous: () => this.neighbour(-1), next: () => this.neighbour(1), clear: () => this.clear(),
      "hit-next": () => this.step(1), "hit-previous": () => this.step(-1),
      "page-up": () => this.actions().scroll(-page), "page-down": () => this.actions().scroll(page),
      search: () => { $("tl-q").focus(); $("tl-q").select(); },
      "select-all": () => this.selectArea({ start: this.viewport.start, end: this.viewport.end, tracks: this.shownTracks() }, true),
    })[name]();
  }

  shownTracks() { return [...this.stage.main.rows.byTrack.keys()]; }

  fit() {
    const { slice, area } = this.selection;
    if (slice) this.go(...this.viewport.around(slice.start_ns, slice.start_ns + slice.dur_ns));
    else if (area) this.go(...this.viewport.around(area.start, area.end, 0.05));
    else this.go(this.viewport.min, this.viewport.max);
  }

  mark() {
    const { slice, area } = this.selection;
    const span = slice ? { start: slice.start_ns, end: slice.start_ns + slice.dur_ns } : area ? { start: area.start, end: area.end } : null;
    if (!span) return;
    const at = this.marks.findIndex((m) => m.start === span.start && m.end === span.end);
    if (at >= 0) this.marks.splice(at, 1);
    else this.marks.push(span);
    this.changed("ruler");
    this.remember(true);
  }

  clear() {
    if (this.selection.slice || this.selection.area) return this.select(null);
    $("tl-q").value = "";
    return this.look("");
  }

  fold(key) {
    if (!this.view.folded.delete(key)) this.view.folded.add(key);
    this.foldedByHand = true;
    this.relayout();
    this.remember();
  }

  pin(track) {
    if (!this.view.pinned.delete(track)) this.view.pinned.add(track);
    this.relayout();
    this.remember();
  }

  relayout() {
    const rows = layout(this.timeline, this.view);
    this.stage.setRows(rows);
    $("tl-none").hidden = rows.main.rows.length > 0;
    this.changed("tracks");
  }

  hovered(point) {
    this.cursorX = point ? point.x : null;
    const hit = point && !point.ruler ? this.stage.hit(point) : null;
    this.hover = hit?.entry ? { track: hit.track.id, depth: hit.entry.depth, start_ns: hit.entry.start, dur_ns: hit.entry.dur } : null;
    this.tip(point, hit);
    this.changed("overlay");
  }

  tip(point, hit) {
    const tip = $("tl-tip");
    tip.hidden = !hit?.entry;
    if (!hit?.entry) return;
    const { entry } = hit, many = entry.flags & MERGED;
    tip.replaceChildren(el("b", { class: "mono" }, this.timeline.name(entry.name) || "…"),
      el("span", {}, many ? `${entry.count.toLocaleString("en-US")} slices in ${units.ns(entry.dur)}; the longest is named` : `${units.ns(entry.dur)} (${exactNs(entry.dur)})`),
      el("span", { class: "muted" }, `${category(entry.category).label} · at ${clock(entry.start)}`));
    const box = this.stage.root.getBoundingClientRect(), left = point.x + this.stage.labelWidth + 14;
    tip.style.left = `${Math.max(Math.min(left, box.width - tip.offsetWidth - 8), 0)}px`;
    const below = point.y - box.top + 18;
    tip.style.top = `${below + tip.offsetHeight > box.height ? below - tip.offsetHeight - 30 : below}px`;
  }

  clicked(point) {
    const hit = this.stage.hit(point);
    this.stage.main.element.focus({ preventScroll: true });
    if (!hit?.entry) return this.select(null);
    const { entry, track } = hit;
    return this.select({ id: entry.slice, track: track.id, depth: entry.depth, start_ns: entry.start, dur_ns: entry.dur, merged: entry.flags & MERGED ? entry.count : 0 });
  }

  areaDragged(a, b, done, ruler) {
    const limit = (x) => this.viewport.ns(Math.min(Math.max(x, 0), this.viewport.width));
    const tracks = ruler ? this.shownTracks() : this.stage.tracksBetween(a.y, b.y);
    this.selectArea({ start: Math.round(limit(Math.min(a.x, b.x))), end: Math.round(limit(Math.max(a.x, b.x))), tracks }, done);
  }

  overviewDragged(phase, x) {
    const { timeline, viewport } = this, at = overviewNs(timeline, x, viewport.width);
    const canvas = this.stage.overview.canvas;
    if (phase === "hover") canvas.style.cursor = { start: "ew-resize", end: "ew-resize", window: "grab", new: "crosshair" }[overviewPart(timeline, viewport, x)];
    if (phase === "start") this.grip = { part: overviewPart(timeline, viewport, x), at, start: viewport.start, end: viewport.end };
    const { grip } = this;
    if (phase === "end") this.remember(true);
    if (phase !== "move" || !grip) return;
    this.moved(() => {
      if (grip.part === "window") viewport.set(grip.start + at - grip.at, grip.end + at - grip.at);
      else if (grip.part === "new") viewport.set(Math.min(at, grip.at), Math.max(at, grip.at));
      else if (grip.part === "start") viewport.set(Math.min(at, grip.end), Math.max(at, grip.end));
      else viewport.set(Math.min(at, grip.start), Math.max(at, grip.start));
    });
  }

  // ---- selection ----

  /** Select a slice (or nothing) and show what the server knows about it. */
  async select(slice, push = true) {
    this.selection = { slice, area: null };
    this.fetching?.abort();
    this.changed("ruler");
    if (push) this.remember(true);
    if (!slice) return this.panel(null);
    const { signal } = (this.fetching = new AbortController());
    try {
      const full = await this.api.slice(slice.id, signal);
      this.selection.slice = { ...full, merged: slice.merged ?? 0 };
      this.panel(sliceDetails(full, {
        kernelUrl: (id) => this.root.dataset.kernelUrl.replace("/0/", `/${id}/`), jump: (link) => this.jump(link),
        zoom: () => this.fit(), merged: slice.merged ?? 0,
      }));
      this.changed("overlay");
      return this.selection.slice;
    } catch (error) {
      return this.panelError(error, () => this.select(slice, false));
    }
  }

  async selectArea(area, done, push = true) {
    this.selection = { slice: null, area };
    this.fetching?.abort();
    this.changed("ruler");
    if (!done) return;
    if (push) this.remember(true);
    const { signal } = (this.fetching = new AbortController());
    const query = { start: area.start, end: area.end, tracks: area.tracks.join(",") };
    try {
      const answer = await this.api.selection(query, signal);
      this.panel(selectionDetails(answer, {
        zoom: () => this.fit(), dataUrl: this.api.url("selection/", query),
        search: (name) => { $("tl-q").value = name; this.look(name); },
      }));
    } catch (error) {
      this.panelError(error, () => this.selectArea(area, true, false));
    }
  }

  panel(content) {
    $("tl-panel").hidden = !content;
    $("tl-panel-body").replaceChildren(...(content ? [content] : []));
    $("tl-panel-body").scrollTop = 0;
  }

  panelError(error, again) {
    if (error.name === "AbortError") return;
    const hint = error instanceof ApiError && error.hint ? ` ${error.hint}` : "";
    this.panel(el("p", { class: "notice notice-error", role: "alert" }, `${error.message}.${hint} `, el("button", { class: "btn btn-small", type: "button", onclick: again }, "Try again")));
  }

  resizePanel(y, relative) {
    const panel = $("tl-panel"), box = panel.getBoundingClientRect();
    const height = relative ? box.height - y : box.bottom - y;
    panel.style.height = `${Math.min(Math.max(height, 90), this.root.clientHeight * 0.75)}px`;
  }

  /** Select a slice and bring it into view. */
  async jump(slice) {
    if (!this.stage.main.rows.byTrack.has(slice.track)) {
      this.view.filter = $("tl-filter").value = "";
      this.relayout();
    }
    const group = this.timeline.groups.find((g) => g.tracks.some((t) => t.id === slice.track));
    if (group && this.view.folded.delete(groupKey(group))) this.relayout();
    const { viewport } = this, end = slice.start_ns + slice.dur_ns;
    const tooSmall = slice.dur_ns / viewport.nsPerPx < 3, tooWide = slice.dur_ns > 0.9 * viewport.span;
    if (tooWide) this.go(...viewport.around(slice.start_ns, end), false);
    else if (tooSmall || slice.start_ns < viewport.start || end > viewport.end) {
      const span = tooSmall ? Math.max(slice.dur_ns * 60, 200) : viewport.span;
      const middle = slice.start_ns + slice.dur_ns / 2;
      this.go(middle - span / 2, middle + span / 2, false);
    }
    this.stage.reveal(slice.track, slice.depth);
    return this.select(slice);
  }

  /** The slice before or after the selected one on its track and depth. */
  async neighbour(direction) {
    const { slice } = this.selection;
    if (!slice) return this.firstVisible(direction);
    const { track, depth } = slice;
    const query = direction > 0 ? { track, start: slice.start_ns, limit: 400 } : { track, end: slice.start_ns, limit: 400 };
    try {
      let answer = await this.api.slices(query);
      if (direction < 0 && answer.total > answer.slices.length) answer = await this.api.slices({ ...query, offset: answer.total - 400 });
      const same = answer.slices.filter((s) => s.depth === depth && s.id !== slice.id && (direction > 0 ? s.start_ns >= slice.start_ns : s.start_ns <= slice.start_ns));
      const found = direction > 0 ? same[0] : same.at(-1);
      if (found) await this.jump(found);
    } catch (error) {
      this.panelError(error, () => this.neighbour(direction));
    }
    return undefined;
  }

  async firstVisible() {
    const query = { start: Math.floor(this.viewport.start), end: Math.ceil(this.viewport.end), limit: 1, track: this.stage.visibleTracks(0).join(",") };
    const { slices } = await this.api.slices(query).catch(() => ({ slices: [] }));
    if (slices[0]) await this.jump(slices[0]);
  }

  // ---- search ----

  look(text) {
    clearTimeout(this.searchTimer);
    this.search.set(text);
    this.searched();
    this.remember();
  }

  searched() {
    this.match = this.timeline.matches(this.search.query);
    const text = this.search.text;
    $("tl-hits").textContent = text;
    for (const id of ["tl-hit-previous", "tl-hit-next"]) $(id).disabled = !this.search.total;
    this.changed("tracks");
  }

  async step(direction) {
    clearTimeout(this.searchTimer);
    if ($("tl-q").value.trim() !== this.search.query) this.look($("tl-q").value);
    const hit = await this.search.step(direction, this.selection.slice?.start_ns ?? this.viewport.start).catch(() => null);
    if (hit) await this.jump(hit);
  }

  // ---- controls of the page ----

  controls() {
    const q = $("tl-q"), filter = $("tl-filter");
    q.addEventListener("input", () => { clearTimeout(this.searchTimer); this.searchTimer = setTimeout(() => this.look(q.value), SEARCH_SETTLE_MS); });
    q.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { event.preventDefault(); this.step(event.shiftKey ? -1 : 1); }
      if (event.key === "Escape") { event.preventDefault(); if (!q.value) this.stage.main.element.focus(); q.value = ""; this.look(""); }
    });
    filter.addEventListener("input", () => { this.view.filter = filter.value; this.relayout(); this.remember(); });
    filter.addEventListener("keydown", (event) => { if (event.key === "Escape") { filter.value = this.view.filter = ""; this.relayout(); this.remember(); this.stage.main.element.focus(); } });
    const press = (id, run) => $(id).addEventListener("click", run);
    press("tl-hit-previous", () => this.step(-1));
    press("tl-hit-next", () => this.step(1));
    press("tl-zoom-in", () => this.go(...this.zoomed(0.5), false));
    press("tl-zoom-out", () => this.go(...this.zoomed(2), false));
    press("tl-fit", () => this.fit());
    press("tl-whole", () => this.command("whole"));
    press("tl-panel-close", () => this.select(null));
    press("tl-retry", () => { $("tl-error").hidden = true; this.tiles.retry(); });
    press("tl-link", async (event) => {
      this.writeUrl(false);
      await copyText(location.href);
      event.target.textContent = "Link copied";
      setTimeout(() => { event.target.textContent = "Copy link"; }, 1400);
    });
    $("tl-data").addEventListener("toggle", () => this.dataLinks());
  }

  zoomed(factor) {
    const goal = Object.assign(new Viewport(this.viewport.min, this.viewport.max), this.viewport);
    goal.zoomAt(this.viewport.width / 2, factor);
    return [goal.start, goal.end];
  }

  /** Addresses of what is on screen, so that it can be fetched by a script. */
  dataLinks() {
    const { area, slice } = this.selection, window = { start: Math.floor(this.viewport.start), end: Math.ceil(this.viewport.end) };
    const links = [["Tracks, steps, integrity", this.api.url("timeline/")], ["Summary of this window", this.api.url("selection/", { ...window, tracks: this.shownTracks().join(",") })],
      ["Slices of this window", this.api.url("slices/", window)]];
    if (area) links.push(["Summary of the selection", this.api.url("selection/", { start: area.start, end: area.end, tracks: area.tracks.join(",") })]);
    if (slice) links.push(["The selected slice", this.api.url(`slices/${slice.id}/`)]);
    $("tl-data-links").replaceChildren(...links.map(([text, href]) => el("a", { href }, `${text} (JSON)`)));
  }

  /** What the page says in words: the window, what is loading, what is selected. */
  tell() {
    const { viewport, tiles } = this;
    const span = units.ns(viewport.span);
    const text = `${clock(viewport.start)} – ${clock(viewport.end)}`;
    if ($("tl-window").textContent !== text) {
      $("tl-window").textContent = text;
      $("tl-span").textContent = span;
      $("tl-span").title = exactNs(viewport.span);
    }
    const pending = tiles.pending;
    $("tl-loading").hidden = !pending;
    $("tl-loading").textContent = pending ? `loading ${pending} ${pending === 1 ? "tile" : "tiles"}` : "";
    clearTimeout(this.tellTimer);
    this.tellTimer = setTimeout(() => { $("tl-live").textContent = this.summary(); }, 700);
  }

  summary() {
    const { slice, area } = this.selection;
    const chosen = slice?.name ? ` Selected: ${slice.name}, ${units.ns(slice.dur_ns)}, on ${slice.track_name}.` : area ? ` Selected: ${units.ns(area.end - area.start)} on ${area.tracks.length} tracks.` : "";
    return `Showing ${units.ns(this.viewport.span)} from ${units.ns(this.viewport.start)} of ${units.ns(this.timeline.endNs)}; ${this.shownTracks().length} tracks.${chosen}`;
  }

  fail(error) {
    $("tl-error").hidden = false;
    $("tl-error-text").textContent = `Part of the timeline could not be loaded: ${error.message}.`;
  }

  // ---- URL ----

  viewOf(window) {
    const { viewport } = this, shown = window ?? viewport;
    return {
      window: shown.start <= viewport.min && shown.end >= viewport.max ? null : [shown.start, shown.end], slice: this.selection.slice?.id ?? null,
      area: this.selection.area, query: this.search.query, filter: this.view.filter, pinned: [...this.view.pinned],
      folded: this.foldedByHand ? [...this.view.folded] : null, marks: this.marks, scroll: this.stage.main.scroll,
    };
  }

  /** Keep the URL at the view: at once as a new step of the history, or soon in place. */
  remember(push = false, window = this.animation?.to) {
    clearTimeout(this.urlTimer);
    if (push) this.writeUrl(true, window);
    else this.urlTimer = setTimeout(() => this.writeUrl(false, this.animation?.to), URL_SETTLE_MS);
  }

  writeUrl(push, window) {
    const url = `${location.pathname}${toQuery(this.viewOf(window))}`;
    if (url === location.pathname + location.search) return;
    history[push ? "pushState" : "replaceState"](null, "", url);
  }

  /** Take over a view from the URL. */
  restore(view, animate) {
    clearTimeout(this.urlTimer);
    this.foldedByHand = view.folded !== null;
    this.view = { folded: new Set(view.folded ?? this.usuallyFolded()), pinned: new Set(view.pinned.filter((id) => this.timeline.tracks.has(id))), filter: view.filter };
    $("tl-filter").value = view.filter;
    $("tl-q").value = view.query;
    this.marks = view.marks;
    this.relayout();
    const [start, end] = view.window ?? [this.viewport.min, this.viewport.max];
    this.animation = animate ? { from: { start: this.viewport.start, end: this.viewport.end }, to: { start, end } } : null;
    if (!animate) this.viewport.set(start, end);
    this.stage.main.element.scrollTop = view.scroll;
    this.stage.measure();
    this.search.set(view.query);
    this.searched();
    this.restoreSelection(view);
  }

  async restoreSelection(view) {
    if (view.area) return this.selectArea(view.area, true, false);
    if (view.slice === null) return this.select(null, false);
    if (view.slice === this.selection.slice?.id) return undefined;
    const slice = await this.select({ id: view.slice, track: -1, depth: 0, start_ns: 0, dur_ns: 0 }, false);
    if (slice && !view.window) await this.jump(slice);
    return undefined;
  }

  usuallyFolded() {
    const { groups, tracks } = this.timeline;
    if (tracks.size <= MANY_TRACKS) return [];
    return groups.filter((g) => !g.tracks.some((t) => t.kind === "stream") && g.tracks.length > 4).map(groupKey);
  }
}

/** Marks of the whole page that come from the trace: integrity, no GPU work, nothing at all. */
function tellTrace(timeline) {
  const { integrity } = timeline.meta;
  const lost = Object.values(integrity?.not_kept ?? {}).reduce((a, b) => a + b, 0);
  const mark = $("tl-integrity");
  mark.hidden = !lost && !integrity?.truncated_at;
  mark.textContent = integrity?.truncated_at ? `file is truncated${lost ? `, ${units.count(lost)} records not kept` : ""}` : `${units.count(lost)} ${lost === 1 ? "record" : "records"} not kept`;
  mark.title = Object.entries(integrity?.not_kept ?? {}).map(([reason, n]) => `${n} × ${reason}`).join("\n");
  $("tl-no-gpu").hidden = timeline.hasGpuWork || !timeline.hasSlices;
  $("tl-empty").hidden = timeline.hasSlices;
}

async function begin(root) {
  const api = new Api(root.dataset.api, getJson);
  const state = $("tl-state");
  try {
    const meta = await api.timeline();
    state.hidden = true;
    $("tl-stage").hidden = false;
    const app = new App(root, api, meta);
    tellTrace(app.timeline);
    app.start();
    root.timeline = app;            // for measurements from outside: frames, viewport
    root.dataset.ready = "1";
  } catch (error) {
    state.replaceChildren(el("div", { class: "notice notice-error", role: "alert" }, el("p", {}, `The timeline could not be opened: ${error.message}. ${error.hint ?? ""}`),
      el("button", { class: "btn", type: "button", onclick: () => { state.replaceChildren("Opening the timeline…"); begin(root); } }, "Try again")));
    if (!(error instanceof ApiError)) throw error;
  }
}

begin($("timeline"));
