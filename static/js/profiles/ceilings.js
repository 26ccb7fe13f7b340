// A measurement of ceilings while it runs: its results come one by one; the page follows until it ends.

import { watch } from "../lib/live.js";
import { refresh, refreshSoon } from "../lib/refresh.js";
import { reload } from "../lib/reload.js";

const EVERY_MS = 5000;
const part = document.getElementById("ceilings-live");
const handle = watch([`ceilings.${part.dataset.id}`], (message) => {
  if (message.event !== "status") return;
  if (["queued", "running"].includes(message.data.status)) refreshSoon();
  else reload();
}, (state) => { if (state === "live") refresh(); });

async function follow() {
  if (!document.hidden) await refresh();
  setTimeout(follow, EVERY_MS);
}

setTimeout(follow, EVERY_MS);
window.addEventListener("pagehide", () => handle.close());
