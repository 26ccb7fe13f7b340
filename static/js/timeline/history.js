// The URL is the view: written when the view comes to rest, taken over on load and on Back.

import { fromQuery, toQuery } from "./url.js";

const SETTLE_MS = 300;

export class History {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.timer = 0;
  }

  start() {
    this.restore(false);
    addEventListener("popstate", () => this.restore(true));
  }

  view(window) {
    const { app } = this, { viewport } = app, shown = window ?? viewport;
    return {
      window: shown.start <= viewport.min && shown.end >= viewport.max ? null : [shown.start, shown.end],
      slice: app.chosen.slice?.id ?? null, area: app.chosen.area, query: app.search.query, filter: app.view.filter,
      pinned: [...app.view.pinned], folded: app.foldedByHand ? [...app.view.folded] : null, marks: app.marks, scroll: app.stage.main.scroll,
    };
  }

  /** Keep the URL at the view: at once as a new step of the history, or soon in place. */
  remember(push = false, window = undefined) {
    clearTimeout(this.timer);
    if (push) this.write(true, window);
    else this.timer = setTimeout(() => this.write(false), SETTLE_MS);
  }

  /** @param {{start: number, end: number}} window where a running animation leads; else what is shown */
  write(push, window = this.app.animation?.to) {
    const url = `${location.pathname}${toQuery(this.view(window))}`;
    if (url !== location.pathname + location.search) history[push ? "pushState" : "replaceState"](null, "", url);
  }

  restore(animate) {
    clearTimeout(this.timer);
    const { app } = this, view = fromQuery(location.search);
    app.foldedByHand = view.folded !== null;
    app.view = {
      folded: new Set(view.folded ?? app.usuallyFolded()), filter: view.filter,
      pinned: new Set(view.pinned.filter((id) => app.timeline.tracks.has(id))),
    };
    app.marks = view.marks;
    app.controls.show(view);
    app.relayout();
    const [start, end] = view.window ?? [app.viewport.min, app.viewport.max];
    if (animate) app.animate(start, end);
    else app.viewport.set(start, end);
    app.stage.main.element.scrollTop = view.scroll;
    app.stage.measure();
    app.search.set(view.query);
    app.searched();
    app.chosen.restore(view);
  }
}
