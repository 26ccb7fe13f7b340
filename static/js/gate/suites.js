// Suites and one suite: while something is measured its parts follow the server.

import { watch } from "../lib/live.js";
import { refresh, refreshSoon } from "../lib/refresh.js";

const EVERY_MS = 5000;
const topic = document.querySelector("script[data-topic]")?.dataset.topic;
const EVENTS = ["status", "run", "runs", "suite"];

const handle = watch([topic ?? "home"], ({ event }) => { if (EVENTS.includes(event)) refreshSoon(); }, (state) => {
  if (state === "live") refresh();
});

// A worker may be elsewhere and its messages with it: rows are the truth.
setInterval(() => {
  const measuring = document.querySelector("[data-under-way]")?.dataset.underWay !== "no";
  if (!document.hidden && (!topic || measuring)) refresh();
}, EVERY_MS);
window.addEventListener("pagehide", () => handle.close());
