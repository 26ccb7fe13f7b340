// The frame of every page: theme switch, keys, search box, live indicator, enhanced tables, times in words.

import { start as startActivity } from "./activity.js";
import { start as startPalette } from "./palette.js";
import { rememberPage } from "./recent.js";
import { enhanceAll } from "../grid/table.js";
import { start as startKernelNames } from "../lib/kernel_names.js";
import { bind, showHelp } from "../lib/keys.js";
import { onConnection } from "../lib/live.js";
import "../lib/refresh.js"; // before tables become grids: it notes what each part says
import { toggle } from "../lib/theme.js";
import { ago } from "../lib/time.js";

const STATES = { live: "live", connecting: "connecting…", lost: "not live: reconnecting" };

document.getElementById("theme-switch")?.addEventListener("click", toggle);
document.getElementById("keys-help")?.addEventListener("click", showHelp);

const entries = JSON.parse(document.getElementById("entries")?.textContent ?? "[]");
const box = document.getElementById("search-open");
const openPalette = box && startPalette([...entries,
  { kind: "action", title: "Switch light or dark", url: "", words: "theme", run: toggle },
  { kind: "action", title: "Help and keys of this page", url: "", words: "shortcuts help", keys: "", run: showHelp }], box);
if (box && /Mac|iP/.test(navigator.platform)) box.querySelector("kbd").textContent = "⌘ K";
rememberPage();
bind("Ctrl K", "Search or jump", null, "Everywhere");

// A page may take "/" for its own search (the timeline): it marks the field with data-page-search.
bind("/", "Search", () => {
  const own = /** @type {HTMLInputElement|null} */ (document.querySelector("[data-page-search]"));
  if (own) { own.focus(); own.select(); } else openPalette?.();
}, "Everywhere");
bind("?", "Help and keys", showHelp, "Everywhere");
for (const { keys, url, title } of entries) if (keys) bind(`g ${keys}`, `Go to ${title}`, () => location.assign(url), "Everywhere");

// A file dropped on any page is loaded; a page with an uploader of its own takes it there.
const { upload, uploadMax, profiles } = document.body.dataset;
if (upload && !document.querySelector("[data-uploader]")) {
  const holds = (event) => event.dataTransfer?.types.includes("Files");
  let drop = null;
  addEventListener("dragenter", (event) => { if (holds(event)) drop ??= import("./drop.js").then(({ start }) => start(upload, profiles, Number(uploadMax) || Infinity), () => { drop = null; }); });
  addEventListener("dragover", (event) => { if (holds(event)) event.preventDefault(); });
  addEventListener("drop", (event) => {
    if (!holds(event)) return;
    event.preventDefault();
    const files = [...event.dataTransfer.files];
    if (files.length) drop?.then((own) => own?.take(files));
  });
}

/** What scrolls is reached by the keyboard, a table or a code sample as well. */
function reachScrolling() {
  for (const box of document.querySelectorAll("main :is(.table-scroll, .chart-scroll, .cm-scroller, pre):not([tabindex])")) {
    if (box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1) box.tabIndex = 0;
  }
}
requestIdleCallback(reachScrolling);
addEventListener("resize", () => requestIdleCallback(reachScrolling));

document.querySelector(".nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" }); // of a phone's row of pages

const indicator = document.getElementById("live-state");
onConnection((state) => {
  if (!indicator) return;
  indicator.hidden = state === null;
  if (state === null) return;
  indicator.dataset.state = state;
  indicator.title = state === "live" ? "This page updates by itself" : "Connection to the server is down: numbers may be old";
  indicator.querySelector(".live-text").textContent = STATES[state];
});

document.addEventListener("click", (event) => { // a menu closes when something else is clicked
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(/** @type {Node} */ (event.target))) menu.removeAttribute("open");
});
document.addEventListener("keydown", (event) => {
  const open = event.key === "Escape" ? [...document.querySelectorAll("details.menu[open]")] : [];
  for (const menu of open) menu.removeAttribute("open");
  if (open.length) event.preventDefault(); // this Escape is spent: it does not also clear what the page has selected
});

// A menu opens to the left of its button's right edge, and to the right where it would leave the page.
document.addEventListener("toggle", (event) => {
  const menu = /** @type {HTMLElement} */ (event.target), body = menu instanceof Element && menu.matches("details.menu[open]") ? menu.querySelector(".menu-body") : null;
  if (!body) return;
  body.classList.remove("to-right");
  body.classList.toggle("to-right", body.getBoundingClientRect().left < 4);
}, true);

function tellTimes() {
  for (const time of document.querySelectorAll("time[data-ago]")) time.textContent = ago(time.getAttribute("datetime") ?? "");
}
tellTimes();
setInterval(tellTimes, 15000);

enhanceAll(false); // of tables that the server wrote; those of JSON fetch the library that draws them
startKernelNames();
startActivity();
document.addEventListener("refreshed", () => { tellTimes(); enhanceAll(true); requestIdleCallback(reachScrolling); });
