// Who is told: what becomes of each message shows as workers send it.

import { watch } from "../lib/live.js";
import { refresh, refreshSoon } from "../lib/refresh.js";

const EVERY_MS = 10000;
const handle = watch(["notified"], () => refreshSoon(), (state) => { if (state === "live") refreshSoon(); });

// A worker may be elsewhere and its messages with it: rows are the truth.
setInterval(() => { if (!document.hidden) refresh(); }, EVERY_MS);
window.addEventListener("pagehide", () => handle.close());
