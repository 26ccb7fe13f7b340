// The list of jobs follows their starts and ends: the answer and the queue by themselves, the table with the next visit.

import { watch } from "../lib/live.js";
import { root } from "../lib/root.js";
import { refresh, refreshSoon } from "../lib/refresh.js";
import { reorder } from "./queue.js";

watch(["home"], ({ event }) => { if (event === "tune") refreshSoon(); },
  (state) => { if (state === "live") refreshSoon(); }); // what changed before it was live is in the rows
reorder(() => refresh());

// Two selected rows of the table can be compared.
const offer = document.getElementById("compare-picked");
const selected = () => [...document.querySelectorAll("#table-jobs tr[aria-selected]")].map((row) => /(\d+)\/$/.exec(row.querySelector("a[href]")?.getAttribute("href") ?? "")?.[1]).filter(Boolean);
if (offer) {
  document.addEventListener("rowselect", () => { offer.hidden = selected().length !== 2; });
  offer.querySelector("button").addEventListener("click", () => { const [a, b] = selected(); location.href = `${root}tune/compare/?a=${a}&b=${b}`; });
}
