// An analysis that a worker still makes: which one it is at, then the page of the result.

import { watch } from "../lib/live.js";
import { reload } from "../lib/reload.js";

const card = document.getElementById("analysis");
const bar = /** @type {HTMLProgressElement} */ (document.getElementById("analysis-bar"));
const text = document.getElementById("analysis-text");

async function look() {
  const answer = await fetch(card.dataset.api).catch(() => null);
  if (answer?.status === 200) reload();
}

watch([`profile.${card.dataset.profile}`], ({ event, data }) => {
  if (event !== "analysis") return;
  bar.max = data.total;
  bar.value = data.done;
  text.textContent = data.topic ? `analysis ${data.done + 1} of ${data.total}: ${data.topic}` : "done";
  look();
}, (state) => { if (state === "live") look(); else if (state === "lost") text.textContent = "not live: trying to reconnect"; });
