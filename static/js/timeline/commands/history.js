// The URL is the view: written when the view comes to rest, taken over on load and on Back.

import { foreignEntries, fromQuery, joined, registered, toEntries } from "../model/url.js";

const SETTLE_MS = 300;

/** What the page's URL is made of, in order: one part for each timeline, and one for what links two. @type {{prefix: string, keys?: string[], entries: (window?: object) => [string, string][]}[]} */
export const parts = [];

export class History {
  /** @param {import("../app.js").App} app */
  constructor(app) {
    this.app = app;
    this.prefix = app.root.dataset.prefix ?? "";        // keeps the keys of two timelines apart
    this.timer = 0;                                      // 0: the URL is the view
    parts.push(this);
  }

  start() {
    this.restore(false);
    addEventListener("popstate", () => this.restore(true));
  }

  view(window) {
    const { app } = this, { viewport, view, stage } = app, shown = window ?? viewport;
    return {
      by: view.by, window: app.isOpening(shown) ? null : [shown.start, shown.end],
      slice: app.chosen.slice?.id ?? null, area: app.chosen.area, query: app.search.query, filter: view.filter,
      pinned: [...view.pinned], hidden: [...view.hidden], moves: view.moves, folded: view.foldedByHand ? [...view.folded] : null,
      marks: app.marks, scroll: stage.main.scroll, pinnedScroll: stage.pinned.scroll,
      extra: Object.fromEntries([...registered].map(([key, { get }]) => [key, get(app)])),
    };
  }

  /** @param {{start: number, end: number}} window where a running animation leads; else what is shown */
  entries(window = this.app.animation?.to) {
    return toEntries(this.view(window)).map(([key, value]) => [this.prefix + key, value]);
  }

  /** Keep the URL at the view: at once as a new step of the history, or soon in place. */
  remember(push = false, window = undefined) {
    clearTimeout(this.timer);
    if (push) this.write(true, window);
    else this.timer = setTimeout(() => this.write(false), SETTLE_MS);
  }

  write(push, window = undefined) {
    this.timer = 0;
    const kept = foreignEntries(location.search, parts.map((part) => part.prefix), parts.flatMap((part) => part.keys ?? []));
    const entries = [...kept, ...parts.flatMap((part) => (part === this ? part.entries(window) : part.entries()))];
    const url = `${location.pathname}${joined(entries)}`;
    if (url !== location.pathname + location.search) history[push ? "pushState" : "replaceState"](null, "", url);
  }

  async restore(animate) {
    clearTimeout(this.timer);
    const { app } = this, { stage, viewport } = app, view = fromQuery(location.search, this.prefix);
    if (view.by === "kernel" && !app.timeline.kernels && !(await app.tracks.kernels())) view.by = "rank";
    app.tracks.restore(view);
    app.marks = view.marks;
    for (const [key, { set }] of registered) set(app, view.extra[key]);
    app.controls.show(view);
    app.relayout();
    const [start, end] = view.window ?? app.opening;
    if (animate) app.animate(start, end);
    else viewport.set(start, end);
    stage.main.element.scrollTop = view.scroll;
    stage.pinned.element.scrollTop = view.pinnedScroll;
    stage.measure();
    app.search.set(view.query, app.searchBar.mode);
    app.searched();
    app.chosen.restore(view, animate);
  }
}
