// Rows that are being read change as they are read.

import { getJson } from "../lib/http.js";
import { watch } from "../lib/live.js";
import { count, ns, pct } from "../lib/units.js";
import { root } from "../lib/root.js";

const SHOWN = { gpu: (x) => x || "", steps: count, wall_ns: ns, busy_pct: pct, launches: count, gpu_time_ns: ns, top_kernel: (x) => x };
const MARKS = { ready: ["mark-ok", "ready"], failed: ["mark-bad", "✕ failed"], deleted: ["muted", "deleted"], uploaded: ["muted", "waiting"] };

const GRADES = { ok: "✓ whole", warn: "! see report", bad: "✕ loss" };

const ids = new Set([...document.querySelectorAll("[data-live]")].map((row) => Number(row.dataset.live)));
/** @param {number} id cells are looked up each time: a long table holds only the rows in view */
const status = (id) => document.querySelector(`[data-status="${id}"]`);

function mark(id, name, title = "") {
  const [className, textContent] = MARKS[name];
  status(id)?.replaceChildren(Object.assign(document.createElement("span"), { className, textContent, title }));
}

/** @param {any} data */
function progress(id, data) {
  const element = status(id);
  if (!element) return;
  let bar = element.querySelector("progress");
  if (!bar) {
    bar = document.createElement("progress");
    const text = Object.assign(document.createElement("span"), { className: "progress-text" });
    const wrap = Object.assign(document.createElement("span"), { className: "progress" });
    wrap.append(bar, text);
    element.replaceChildren(wrap);
  }
  if (data.total_bytes) { bar.max = data.total_bytes; bar.value = data.done_bytes; } else bar.removeAttribute("value");
  element.querySelector(".progress-text").textContent = data.phase ?? "reading";
}

async function refresh(id) {
  const row = await getJson(`${root}api/profiles/${id}/`).catch(() => null);
  if (!row) return;
  if (row.status === "ingesting") { progress(id, row.progress ?? {}); return; }
  mark(id, row.status, row.error?.what ?? "");
  if (row.status === "uploaded") return;
  ids.delete(id);
  const cells = status(id)?.closest("tr");
  for (const [name, show] of Object.entries(SHOWN)) {
    const cell = cells?.querySelector(`[data-cell="${name}"]`);
    if (cell) cell.textContent = show(row[name]);
  }
  const [grade, why] = row.integrity_mark;
  const cell = cells?.querySelector('[data-cell="mark"]');
  if (cell && grade) cell.replaceChildren(Object.assign(document.createElement("span"), { className: `mark-${grade}`, title: why, textContent: GRADES[grade] }));
  recount();
}

/** The sentence at the top counts what is there: take it from the server again. */
async function recount() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  if (!answer?.ok) return;
  const now = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".answer");
  if (now) document.querySelector(".answer")?.replaceChildren(...now.childNodes);
}


if (ids.size) {
  watch([...ids].map((id) => `profile.${id}`), ({ topic, event, data }) => {
    const id = Number(topic.split(".")[1]);
    if (event === "progress") progress(id, data);
    else if (data.status === "deleted") mark(id, "deleted");
    else refresh(id);
  }, (state) => { if (state === "live") for (const id of ids) refresh(id); });
}
