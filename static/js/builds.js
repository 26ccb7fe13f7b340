// Builds: a choice shows at once, and the answer follows when runs arrive.

import { watch } from "./lib/live.js";
import { refreshSoon } from "./lib/refresh.js";

for (const form of document.querySelectorAll("form[data-submits]")) {
  form.addEventListener("change", (event) => {
    if (event.target.name === "suite") for (const other of form.querySelectorAll("[name=on], [name=branch], [name=kernel]")) other.disabled = true;
    form.requestSubmit();
  });
}

const topic = document.querySelector("[data-watch]")?.dataset.watch;
if (topic) watch([topic], ({ event }) => { if (event !== "run") refreshSoon(); }, (state) => { if (state === "live") refreshSoon(); });
