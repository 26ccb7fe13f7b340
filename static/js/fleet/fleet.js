// The fleet's pages: numbers that take their time come with a second request; a list of agents follows the server.

import "../lib/copy.js";
import { refresh } from "../lib/refresh.js";

const EVERY_MS = 15_000;
const waiting = document.getElementById("fleet-wait");

if (waiting) {
  const url = new URL(location.href);
  url.searchParams.set("whole", "1");
  const elapsed = waiting.querySelector("[data-elapsed]"), began = performance.now();
  const clock = setInterval(() => { if (elapsed) elapsed.textContent = `${Math.round((performance.now() - began) / 1000)} s`; }, 1000);
  waiting.querySelector("button")?.addEventListener("click", () => window.stop());
  refresh(() => {}, url.href).then((answered) => {
    clearInterval(clock);
    if (!answered && waiting.isConnected) waiting.querySelector("[data-says]").textContent = "The server did not answer. Reload the page to ask again.";
  });
}

const followed = document.querySelector("[data-follow]");       // its value: seconds
if (followed) setInterval(() => { if (!document.hidden) refresh(); }, 1000 * Number(followed.dataset.follow) || EVERY_MS);
