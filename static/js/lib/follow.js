// A page that follows what it names: data-watch="suite.3 gate.7" says which topics, [data-live] which parts. Nothing needs a reload.

import { watch } from "./live.js";
import { refresh, refreshSoon } from "./refresh.js";
import { reload } from "./reload.js";

const RUNS_MS = 1500; // runs come several a second, and a page with figures is dear: so often at most
const EVERY_MS = 15000;
const topics = [...new Set([...document.querySelectorAll("[data-watch]")].flatMap((part) => part.dataset.watch.split(" ").filter(Boolean)))];
const patient = document.querySelector("[data-runs=no]") !== null; // dear to make: once more when a job ends, not with each run
const warning = document.getElementById("not-live");

if (topics.length) {
  const handle = watch(topics, ({ event }) => {
    if (event === "watching" || event === "run" && patient) return;
    refreshSoon(() => {}, event === "run" ? RUNS_MS : undefined);
  }, (state) => {
    if (warning) warning.hidden = state !== "lost";
    if (state === "live") refreshSoon();
  });
  // A worker may be elsewhere and its messages with it: rows are the truth.
  setInterval(() => { if (!document.hidden && document.querySelector("[data-under-way=yes]")) refresh(); }, EVERY_MS);
  // The first runs of a page that had none bring parts of their own: it is made anew, unless somebody is typing.
  document.addEventListener("reshaped", () => {
    if (!document.activeElement?.matches("input, textarea, select") && !document.querySelector("details.menu[open]")) reload();
  });
  window.addEventListener("pagehide", () => handle.close());
}
