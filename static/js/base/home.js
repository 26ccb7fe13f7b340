// Home: jobs in progress move by themselves; the rest of the page follows when one of them ends.

import { watch } from "../lib/live.js";
import { refresh, refreshSoon } from "../lib/refresh.js";
import { bytes, count, ns, plural } from "../lib/units.js";

const EVERY_MS = 15000;
const STATUSES = new Set(["status", "profile", "tune", "capture", "gate", "suite", "regression", "series"]);

/** What the page shows decides what is watched: the jobs in progress, and "home" for new ones. */
function topics() {
  return [...new Set(["home", ...[...document.querySelectorAll("[data-topic]")].map((row) => row.dataset.topic),
    ...[...document.querySelectorAll("[data-runs]")].map((row) => row.dataset.runs)])];
}

/** @param {string} topic @param {any} data */
function showProgress(topic, data) {
  const row = document.querySelector(`[data-topic="${CSS.escape(topic)}"]`);
  const bar = row?.querySelector("progress"), text = row?.querySelector(".progress-text");
  if (!bar || !text) return;
  if (data.total_bytes) { bar.max = data.total_bytes; bar.value = data.done_bytes; } else bar.removeAttribute("value");
  const parts = [data.phase];
  if (data.total_bytes) parts.push(`${bytes(data.done_bytes)} of ${bytes(data.total_bytes)}`);
  if (data.records) parts.push(plural(data.records, "record"));
  if (data.rate_bytes_s) parts.push(`${bytes(data.rate_bytes_s)}/s`);
  if (data.eta_s) parts.push(`${ns(data.eta_s * 1e9)} left`);
  text.textContent = parts.filter(Boolean).join(" · ");
}

/** @param {string} topic @param {any} trial */
function showTrial(topic, trial) {
  const text = document.querySelector(`[data-topic="${CSS.escape(topic)}"] .progress-text`);
  const bar = document.querySelector(`[data-topic="${CSS.escape(topic)}"] progress`);
  if (bar && Number.isFinite(trial.number)) bar.value = trial.number + 1;
  if (text && Number.isFinite(trial.number)) text.textContent = `${count(trial.number + 1)} of ${count(bar?.max)} trials`;
}

/** A fresh run of one kernel was stored; the next refresh counts the rows again. @param {{job: number}} run */
function showRun(run) {
  const row = document.querySelector(`[data-job="${CSS.escape(String(run.job))}"]`);
  const bar = row?.querySelector("progress"), text = row?.querySelector(".progress-text");
  if (!row) return;
  if (!bar) { refreshSoon(follow); return; }
  bar.value = Math.min(bar.max, bar.value + 1);
  text.textContent = `${count(bar.value)} of ${count(bar.max)} runs`;
}

let watched = topics().join();
const handle = watch(topics(), ({ topic, event, data }) => {
  if (event === "progress") showProgress(topic, data);
  else if (event === "trial") showTrial(topic, data);
  else if (event === "run") showRun(data);
  else if (STATUSES.has(event)) refreshSoon(follow);
}, (state) => { if (state === "live") refresh(follow); });

/** The page shows other jobs now: watch those. */
function follow() {
  const now = topics();
  if (now.join() === watched) return;
  watched = now.join();
  handle.set(now);
}

// Workers come and go without a message.
setInterval(() => { if (!document.hidden) refresh(follow); }, EVERY_MS);

// The drop zone is the uploader of the upload page; without it the link in the zone leads there.
const zone = document.querySelector("[data-uploader]");
if (zone) import("../profiles/upload.js").then(({ mountUploader }) => mountUploader(zone)).catch(() => {});
