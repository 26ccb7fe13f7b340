// The page of one job: catches up from the API, then follows the WebSocket. The server renders the sentences and cards;
// this fills the curve, the table and the progress in between.

import { source } from "../lib/figures.js";
import { gridFrom } from "../grid/grid.js";
import { getJson, postJson } from "../lib/http.js";
import { watch } from "../lib/live.js";
import { refresh } from "../lib/refresh.js";
import { bytes, count, msAsTime } from "../lib/units.js";
import { explore } from "./explore.js";
import { secondsLeft, Trials, withoutGain } from "./trials.js";
import "../lib/copy.js";

const REFRESH_EVERY_MS = 1500; // the server's part of the page while trials come in
const CHECK_AFTER_MS = 1500; // until every message about one change has come
const ENDED = new Set(["done", "stopped", "failed"]);

const LIVE_PARTS = "?part=live"; // only what the server words anew; the same answer serves every page that asks within a second

const state = JSON.parse(document.getElementById("tune-state").textContent);
const controls = Object.fromEntries(["pause", "resume", "stop"].map((name) => [name, /** @type {HTMLFormElement|null} */ (document.getElementById(name))]));
const trials = new Trials();
const pictures = explore(() => trials.inOrder(), picked, choose);
let job = { ...state, most: state.budget_trials, elapsed_s: 0 };
let grid = null;
let tabled = -1; // the table holds every trial up to this number
let filling = Promise.resolve();
let painted = -1;
let frame = 0;
let refreshAt = 0;
let checking = 0;
let told = 0; // how often the job's state came

/** @param {any} row */
function outcomeNode(row) {
  if (row.outcome === "measured") return row.facts?.ended === "raced" ? Object.assign(document.createElement("span"), { textContent: "raced", title: "Given up early: surely slower than the best so far" }) : "measured";
  const node = Object.assign(document.createElement("span"), { className: "mark-bad", textContent: `✕ ${row.reason}`, title: row.message || row.reason });
  return node;
}

/** @param {any} trial a row of the table: facts and parameters become columns */
function tableRow(trial) {
  const { facts } = trial;
  return { ...trial, id: trial.number, trial: trial.number + 1, ...Object.fromEntries(Object.entries(trial.config).map(([name, value]) => [`config_${name}`, value])),
    registers: facts.registers ?? null, spills: facts.spills ?? null, smem_bytes: facts.smem_bytes ?? null, compile_s: facts.compile_s ?? null, error: facts.relative_error ?? null };
}

/** @param {Record<string, any>} config */
function tableColumns(config) {
  return [
    { field: "trial", title: "trial", type: "number" },
    ...Object.entries(config).map(([name, value]) => ({ field: `config_${name}`, title: name, type: typeof value === "number" ? "number" : "text", minWidth: 42 + 9 * name.length })),
    { field: "median_ms", title: "median", type: "number", unit: "ms", format: (value) => msAsTime(value) },
    { field: "min_ms", title: "min", type: "number", unit: "ms", format: (value) => msAsTime(value) },
    { field: "p90_ms", title: "p90", type: "number", unit: "ms", format: (value) => msAsTime(value) },
    { field: "n", title: "n", type: "number", help: "samples" },
    { field: "registers", title: "registers", type: "number", minWidth: 96, help: "per thread" },
    { field: "spills", title: "spills", type: "number", help: "bytes or registers spilled, as the compiler reports" },
    { field: "smem_bytes", title: "shared", type: "number", unit: "B", help: "shared memory of a block", format: (value) => value === null ? "—" : bytes(value) },
    { field: "error", title: "error", type: "number", hidden: true, help: "relative error against the reference", format: (value) => value === null ? "—" : Number(value).toExponential(1) },
    { field: "compile_s", title: "compile", type: "number", unit: "s", format: (value) => value === null ? "—" : `${Number(value).toFixed(3)} s` },
    { field: "outcome", title: "outcome", type: "text", format: (_, row) => outcomeNode(row), text: (_, row) => `${row.outcome} ${row.reason} ${row.message}` },
    { field: "at_s", title: "at", type: "number", unit: "s", help: "job time when it was known", format: (value) => `${Number(value).toFixed(1)} s` },
  ];
}

/** Rows go in one after the other, in order; what comes late or in bulk sets all of them anew. @param {any[]} fresh */
async function fillTable(fresh) {
  grid ??= gridFrom(document.getElementById("trials"), tableColumns(fresh[0].config), [], { name: "trials", index: "id", empty: "No trial yet" });
  await grid.ready;
  const inTurn = fresh.every((trial, at) => trial.number === tabled + 1 + at), shown = (trial) => pictures.picks.passes(trial);
  if (inTurn && fresh.length <= 20) for (const trial of fresh.filter(shown)) await grid.addRow(tableRow(trial));
  else await grid.setRows(trials.inOrder().filter(shown).map(tableRow));
  tabled = inTurn ? fresh[fresh.length - 1].number : trials.contiguous;
}

/** The table and the curve follow what is picked in the pictures. */
function picked() {
  filling = filling.then(() => grid?.setRows(trials.inOrder().filter((trial) => pictures.picks.passes(trial)).map(tableRow))).catch((error) => console.error(error));
  repaint();
}

/** A line of the pictures was clicked: its row. @param {import("./trials.js").Trial} trial */
async function choose(trial) {
  await filling;
  const row = grid?.table.getRow(trial.number);
  if (!row) return;
  grid.table.deselectRow();
  row.select();
  document.getElementById("trials").scrollIntoView({ block: "nearest" });
  grid.table.scrollToRow(row, "center", true).catch(() => {});
}

async function repaint() {
  const live = await source("live");
  live.data = trials.columns((trial) => pictures.picks.passes(trial));
}

async function paintCurve() {
  frame = 0;
  if (painted === trials.size) return;
  painted = trials.size;
  const live = await source("live");
  const columns = trials.columns((trial) => pictures.picks.passes(trial)), shown = live.data.number.length;
  const same = shown <= columns.number.length && (shown === 0 || live.data.number[shown - 1] === columns.number[shown - 1]);
  if (!same) live.data = columns; // something came late: draw anew
  else if (shown < columns.number.length) live.stream(Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values.slice(shown)])));
}

/** @param {string} name @param {number|null} ms */
async function level(name, ms) {
  const [line, width] = [await source(name), await source("width")], end = state.by_seconds ? Math.max(job.budget_seconds, job.elapsed_s) + 1 : job.most + 1;
  if (width.end !== end) width.setv({ bounds: [0, end], end });
  line.data = ms ? { number: [0, end], ms: [ms, ms] } : { number: [], ms: [] };
}

function showProgress() {
  const bar = document.querySelector("#tune-progress progress"), text = document.querySelector("#tune-progress .progress-text");
  if (!bar || !text) return;
  const used = Math.max(job.most ? trials.size / job.most : 0, job.elapsed_s / job.budget_seconds);
  bar.value = Math.min(100, used * 100);
  const parts = [`${count(trials.size)} of ${count(job.most)} trials`, `${job.elapsed_s.toFixed(0)} of ${job.budget_seconds.toFixed(0)} s`];
  if (job.elapsed_s > 0.5) parts.push(`${(trials.size / job.elapsed_s).toPrecision(2)} trials/s`);
  const idle = job.plateau ? withoutGain(trials.inOrder()) : 0;
  if (idle > 1) parts.push(`${idle} of ${job.plateau} without a gain`);
  const left = secondsLeft({ trials: trials.size, most: job.most, elapsed_s: job.elapsed_s, budget_seconds: job.budget_seconds });
  if (left !== null) parts.push(left < 1 ? "about to end" : `${job.plateau ? "at most" : "about"} ${left < 90 ? `${Math.round(left)} s` : `${Math.round(left / 60)} min`} left`);
  text.textContent = parts.join(" · ");
}

/** @param {any[]} more */
function take(more) {
  const fresh = more.filter((trial) => trials.add(trial));
  if (!fresh.length) return;
  for (const trial of fresh) {
    job.elapsed_s = Math.max(job.elapsed_s, trial.at_s);
  }
  filling = filling.then(() => fillTable(fresh)).catch((error) => console.error(error));
  if (!frame) frame = requestAnimationFrame(paintCurve);
  pictures.update();
  showProgress();
  if (!ENDED.has(job.status)) refreshServerParts();
}

/** At most every REFRESH_EVERY_MS, and only after the last one has come: a slow server is not asked faster. */
function refreshServerParts(at_once = false) {
  if (refreshAt && !at_once) return;
  clearTimeout(refreshAt);
  const mine = refreshAt = setTimeout(async () => {
    await refresh(() => { showProgress(); pictures.update(); }, LIVE_PARTS);
    if (refreshAt === mine) refreshAt = 0;
  }, at_once ? 0 : REFRESH_EVERY_MS);
}

/** @param {any} next */
function takeStatus(next) {
  told += 1;
  const most = Math.min(next.budget_trials, next.valid_size ?? next.budget_trials);
  job = { ...job, status: next.status, plateau: next.plateau, most, elapsed_s: Math.max(job.elapsed_s, next.elapsed_s ?? 0), budget_seconds: next.budget_seconds };
  showControls(next);
  level("default", next.default_ms);
  level("library", next.library_ms);
  refreshServerParts(true);
  clearTimeout(checking);
  if (!ENDED.has(next.status)) checking = setTimeout(checkStatus, CHECK_AFTER_MS);
}

/** Two processes publish what a job is (who asks for a pause, and its worker): the later message may be the older news. */
async function checkStatus() {
  const toldBefore = told, now = await getJson(`/api/tune/${state.id}/`).catch(() => null);
  if (now && told === toldBefore && now.status !== job.status) takeStatus(now);
}

async function catchUp() {
  let after = trials.contiguous;
  for (;;) {
    const page = await getJson(`/api/tune/${state.id}/trials/?after=${after}`);
    take(page.trials);
    if (page.next_after === null) break;
    after = page.next_after;
  }
  const toldBefore = told, now = await getJson(`/api/tune/${state.id}/`);
  if (told === toldBefore) takeStatus(now);
}

/** Which of the buttons make sense now, and what was already asked for. @param {any} next */
function showControls(next) {
  const runs = next.status === "queued" || next.status === "running", ended = ENDED.has(next.status);
  show("pause", runs, next.pause_requested ? "Pausing…" : "Pause", !next.pause_requested);
  show("resume", next.status === "paused", "Resume", true);
  show("stop", !ended, next.stop_requested ? "Stopping…" : "Stop", !next.stop_requested);
}

/** @param {string} name @param {boolean} there @param {string} text @param {boolean} enabled */
function show(name, there, text, enabled) {
  const button = controls[name]?.querySelector("button");
  if (!button) return;
  controls[name].hidden = !there;
  button.disabled = !enabled;
  button.textContent = text;
}

for (const [name, said] of [["pause", "Pausing…"], ["resume", "Resuming…"], ["stop", "Stopping…"]]) {
  controls[name]?.addEventListener("submit", async (event) => {
    if (!controls[name].dataset.api) return;
    event.preventDefault();
    const button = controls[name].querySelector("button"), before = button.textContent;
    show(name, true, said, false);
    const toldBefore = told;
    try {
      const answer = await postJson(controls[name].dataset.api);
      if (told === toldBefore) takeStatus(answer); // else the job has moved on, and the answer is the older news
    } catch (error) {
      show(name, true, `${before} (${error.message})`, true);
    }
  });
}

watch([`tune.${state.id}`], ({ event, data }) => {
  if (event === "trials") {
    job.elapsed_s = Math.max(job.elapsed_s, data.elapsed_s ?? 0);
    take(data.trials);
  }
  else if (event === "status") takeStatus(data);
}, (connection) => {
  document.getElementById("not-live").hidden = connection !== "lost" || ENDED.has(job.status);
  if (connection === "live") catchUp().then(() => { if (pictures.picks.size) picked(); }).catch(() => {}); // the server's dots do not know what is picked
});
