// The list of gates and one gate: while something is measured the parts follow the server; when a gate ends the page is made anew.

import { watch } from "../lib/live.js";
import { refresh, refreshSoon } from "../lib/refresh.js";
import { reload } from "../lib/reload.js";

const EVERY_MS = 5000, RUN_MS = 700;
const gate = document.getElementById("live-gate");
const warning = document.getElementById("not-live");
let due = 0;
const began = gate?.dataset.underWay;

/** Its tables became grids, its menus are open: only a page that is measuring replaces its parts. */
function follow() {
  if (!gate) { refreshSoon(); return; }
  if (began === "yes") refreshSoon(ended);
  else refreshStates();
}

/** The parts hold another state than they began with: a verdict came, or somebody measures again. */
function ended() {
  const now = document.querySelector("[data-state-of-gate]");
  if (now && now.dataset.stateOfGate !== began) reload();
}

/** Runs may come faster than a page is made: one refresh for those of a while, and none is put off by the next. */
function afterRun() {
  due ||= setTimeout(() => { due = 0; refresh(ended); }, RUN_MS);
}

async function refreshStates() {
  const response = await fetch(location.href, { credentials: "same-origin", headers: { Accept: "text/html" } });
  if (!response.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (page.getElementById("live-gate")?.dataset.underWay !== began) reload();
}

const handle = watch(gate ? [gate.dataset.topic, gate.dataset.runs] : ["home"], ({ topic, event }) => {
  if (event === "run" || topic.startsWith("suite.")) { if (began === "yes") afterRun(); }
  else if (["status", "gate"].includes(event)) follow();
}, (state) => {
  if (warning) warning.hidden = state !== "lost";
  if (state === "live") follow();
});

// A worker may be elsewhere and its messages with it: rows are the truth.
setInterval(() => { if (!document.hidden && (!gate || began === "yes")) refresh(ended); }, EVERY_MS);
window.addEventListener("pagehide", () => handle.close());
