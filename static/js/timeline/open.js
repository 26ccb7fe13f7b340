// Opens one timeline of a page: asks for its tracks, wires input, theme and size to its app.

import { ApiError, getJson } from "../lib/http.js";
import { onChange as onThemeChange } from "../lib/theme.js";
import { Api } from "./data/api.js";
import { App } from "./app.js";
import { el, part } from "./widgets/dom.js";
import { listen } from "./input/input.js";
import { decodeDensity } from "./model/model.js";

function wire(app, root) {
  const find = (selector) => root.querySelector(selector);
  const { stage } = app;
  app.motion = listen({
    root, stage: stage.root, overview: find(".tl-overview"), ruler: find(".tl-ruler"), tracks: stage.panes.map((pane) => pane.element),
    resizer: part(root, "tl-resizer"), panelHandle: part(root, "tl-panel-handle"),
  }, app.actions);
  for (const kind of ["focusin", "mousedown"]) root.addEventListener(kind, () => app.activate());
  app.controls.start();
  app.controls.tellTrace();
  app.history.start();
  app.notes.start();
  new ResizeObserver(() => { stage.measure(); app.changed("tracks"); }).observe(stage.root);
  for (const pane of stage.panes) {
    pane.element.addEventListener("scroll", () => { pane.scroll = pane.element.scrollTop; app.changed("tracks"); app.history.remember(); }, { passive: true });
  }
  onThemeChange(() => app.repaint());
  app.api.density().then((bytes) => { app.timeline.density = decodeDensity(bytes); app.changed("tracks"); }, () => {});     // the overview stays empty
  app.api.names().then(({ names, total, labels }) => { app.timeline.setNames(names, total, labels); app.searched(); }, (error) => app.controls.fail(error));
}

/**
 * @param {HTMLElement} root `.tl` of the page
 * @param {(app: App) => void} prepare called before the view of the URL is taken over
 * @returns {Promise<App>} once the tracks are known; a failure is told in the page, with a way to try again
 */
export function open(root, prepare = () => {}) {
  const api = new Api(root.dataset.api, getJson), state = part(root, "tl-state");
  return new Promise((resolve) => {
    const attempt = async () => {
      try {
        const meta = await api.timeline();
        state.hidden = true;
        part(root, "tl-stage").hidden = false;
        const app = new App(root, api, meta);
        prepare(app);
        wire(app, root);
        root.timeline = app;            // for measurements and tests from outside: frames, viewport
        root.dataset.ready = "1";
        resolve(app);
      } catch (error) {
        state.hidden = false;
        state.replaceChildren(el("div", { class: "notice notice-error", role: "alert" },
          el("p", {}, `The timeline could not be opened: ${error.message}. ${error.hint ?? ""}`),
          el("button", { class: "btn", type: "button", onclick: () => { state.replaceChildren("Opening the timeline…"); attempt(); } }, "Try again")));
        if (!(error instanceof ApiError)) throw error;
      }
    };
    attempt();
  });
}
