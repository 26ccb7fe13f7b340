// The page of a group follows its jobs: the server words its parts anew when one of them changes, and now and then meanwhile.

import { watch } from "../lib/live.js";
import { refresh, refreshSoon } from "../lib/refresh.js";

const WHILE_RUNNING_MS = 3000;
const state = JSON.parse(document.getElementById("group-state").textContent);
let timer = 0;

function later() {
  if (!timer) timer = setTimeout(async () => { await refresh(); timer = 0; }, WHILE_RUNNING_MS);
}

watch(["home", ...state.jobs.slice(0, 60).map((id) => `tune.${id}`)], ({ event, topic, data }) => {
  if (event === "trials") later();
  else if (topic !== "home" || event === "tune" && state.jobs.includes(data.id)) refreshSoon();
}, (connection) => { if (connection === "live") refreshSoon(); });
