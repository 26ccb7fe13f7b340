// Embeds every [data-figure] from its json_script, in the page's colours, and repaints when the theme switches.
//
// The page is painted first: Bokeh (the page's <meta name="bokeh">) is fetched for the first figure that comes near the screen,
// as it takes longer than all else of a page.

import { whenNear } from "./near.js";
import { offerFigure } from "./save.js";
import { css, onChange } from "./theme.js";

/** Model type -> property -> custom property of the page. */
const COLOURS = [
  [/Figure|Plot$/, { outline_line_color: "--line" }],
  [/Axis$/, { axis_line_color: "--line", major_tick_line_color: "--line", major_label_text_color: "--muted", axis_label_text_color: "--muted", group_text_color: "--muted", subgroup_text_color: "--muted" }],
  [/Grid$/, { grid_line_color: "--line" }],
  [/^Title$/, { text_color: "--text" }],
  [/^Legend$/, { label_text_color: "--text", title_text_color: "--muted" }],
  [/^ColorBar$/, { title_text_color: "--muted", major_label_text_color: "--muted" }],
  [/^Label$/, { text_color: "--muted" }],
  [/^LabelSet$/, { text_color: "--text" }],
];

/** @type {Map<Element, any>} */
const views = new Map();
/** @type {?Promise<void>} */
let fetched = null;

function fetchBokeh() {
  return fetched ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = document.querySelector("meta[name=bokeh]").content;
    script.onload = () => { window.Bokeh.set_log_level("warn"); resolve(); };
    script.onerror = () => { fetched = null; script.remove(); reject(new Error("Bokeh could not be fetched")); };
    document.head.append(script);
  });
}
/** @type {{name: string, resolve: (source: any) => void}[]} */
let waiting = [];

/** @param {any} model @param {Record<string, string>} wanted @param {boolean} replaceNull */
function paint(model, wanted, replaceNull) {
  const next = {};
  for (const [property, name] of Object.entries(wanted)) {
    if (!(property in model)) continue;
    const now = model[property];
    if (now === null && !replaceNull) continue; // hidden on purpose (grid_line_color=None) stays hidden
    next[property] = now && typeof now === "object" && "value" in now ? { ...now, value: css(name) } : css(name);
  }
  if (Object.keys(next).length) model.setv(next);
}

/** @param {any} document a BokehJS document */
function paintDocument(document) {
  const models = document.all_models ?? document._all_models.values();
  for (const model of models) {
    for (const [pattern, wanted] of COLOURS) if (pattern.test(model.type)) paint(model, wanted, false);
    for (const tag of model.tags ?? []) {
      const wanted = tag instanceof Map ? tag.get("follows") : tag?.follows;
      if (wanted) paint(model, wanted instanceof Map ? Object.fromEntries(wanted) : wanted, true);
    }
  }
}

/** @param {string} name @returns {any} the data source of that name on this page */
function find(name) {
  for (const view of views.values()) {
    const model = view.model.document?.get_model_by_name(name);
    if (model) return model;
  }
  return null;
}

/**
 * The data source made with ColumnDataSource(name=…), once its figure stands.
 * @param {string} name @returns {Promise<any>}
 */
export function source(name) {
  const now = find(name);
  return now ? Promise.resolve(now) : new Promise((resolve) => waiting.push({ name, resolve }));
}

/**
 * Show a json_item in `target`, in place of what it shows now.
 * @param {HTMLElement} target @param {any} item @returns {Promise<any>} the view, null where the target has left the page
 */
export async function embed(target, item) {
  views.get(target)?.model.document?.clear();
  target.replaceChildren();
  target.id ||= `figure-${Math.random().toString(36).slice(2)}`;
  await fetchBokeh();
  if (!target.isConnected) return null; // the page's part was replaced meanwhile
  const found = await window.Bokeh.embed.embed_item(item, target.id);
  const view = Array.isArray(found) ? found[0] : found.roots?.[0] ?? [...found][0];
  views.set(target, view);
  paintDocument(view.model.document);
  target.dataset.state = "ready";
  if (item.said && !target.hasAttribute("aria-label")) { // its numbers stand in a table or a sentence beside it
    target.setAttribute("role", "figure");
    target.setAttribute("aria-label", item.said);
  }
  offerFigure(target, view);
  waiting = waiting.filter(({ name, resolve }) => {
    const model = find(name);
    if (model) resolve(model);
    return !model;
  });
  return view;
}

/** @param {HTMLElement} target */
async function embedFromPage(target) {
  const script = document.getElementById(target.dataset.figure ?? "");
  if (!script) return;
  target.dataset.state = "loading";
  try {
    const item = JSON.parse(script.textContent ?? "null");
    if (item) await embed(target, item);
  } catch (error) {
    target.dataset.state = "failed";
    target.textContent = "This figure could not be drawn; the table below holds the same numbers.";
    console.error(error);
  }
}

onChange(() => { for (const view of views.values()) if (view.model.document) paintDocument(view.model.document); });

function embedAll() {
  for (const target of document.querySelectorAll("[data-figure]:not([data-state])")) {
    whenNear(target).then(() => { if (target.isConnected && !target.dataset.state) embedFromPage(target); });
  }
}

embedAll();

// A part of the page was replaced (lib/refresh.js): its figures are drawn, those that left it are let go.
document.addEventListener("refreshed", () => {
  for (const [target, view] of views) {
    if (target.isConnected) continue;
    view.model.document?.clear();
    views.delete(target);
  }
  embedAll();
});
