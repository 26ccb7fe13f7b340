// Opens the timeline of the page: asks for its tracks, wires input, theme and size to the app.

import { ApiError, getJson } from "../lib/http.js";
import { onChange as onThemeChange } from "../lib/theme.js";
import { App } from "./app.js";
import { el } from "./dom.js";
import { listen } from "./input.js";
import { Api } from "./tiles.js";

function wire(app, root) {
  const find = (selector) => root.querySelector(selector);
  const { stage } = app;
  app.motion = listen({
    stage: stage.root, overview: find(".tl-overview"), ruler: find(".tl-ruler"), tracks: stage.panes.map((pane) => pane.element),
    resizer: find("#tl-resizer"), panelHandle: find("#tl-panel-handle"),
  }, app.actions);
  app.controls.start();
  app.controls.tellTrace();
  app.history.start();
  new ResizeObserver(() => { stage.measure(); app.changed("tracks"); }).observe(stage.root);
  for (const pane of stage.panes) {
    pane.element.addEventListener("scroll", () => { pane.scroll = pane.element.scrollTop; app.changed("tracks"); app.history.remember(); }, { passive: true });
  }
  onThemeChange(() => app.repaint());
  app.api.names().then(({ names }) => { app.timeline.setNames(names); app.searched(); }, (error) => app.controls.fail(error));
}

async function open(root) {
  const api = new Api(root.dataset.api, getJson), state = root.querySelector("#tl-state");
  try {
    const meta = await api.timeline();
    state.hidden = true;
    root.querySelector("#tl-stage").hidden = false;
    const app = new App(root, api, meta);
    wire(app, root);
    root.timeline = app;            // for measurements and tests from outside: frames, viewport
    root.dataset.ready = "1";
  } catch (error) {
    const again = () => { state.replaceChildren("Opening the timeline…"); open(root); };
    state.hidden = false;
    state.replaceChildren(el("div", { class: "notice notice-error", role: "alert" },
      el("p", {}, `The timeline could not be opened: ${error.message}. ${error.hint ?? ""}`), el("button", { class: "btn", type: "button", onclick: again }, "Try again")));
    if (!(error instanceof ApiError)) throw error;
  }
}

open(document.getElementById("timeline"));
