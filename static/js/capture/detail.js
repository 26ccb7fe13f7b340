// A capture's page while it runs: its log as it comes, its state, and the way to its profile.
import { getJson } from "../lib/http.js";
import { si } from "../lib/units.js";
import { watch } from "../lib/live.js";

const MOST_CHARS = 400_000;
const root = document.getElementById("capture");
const log = document.getElementById("capture-log");
const since = document.getElementById("capture-since");
const UNDER_WAY = ["queued", "running"];
let started_ms = Date.parse(since?.dataset.started ?? "");

/** @param {string} text */
function append(text) {
  const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 30;
  log.append(text);
  if (log.textContent.length > MOST_CHARS) log.textContent = log.textContent.slice(-MOST_CHARS / 2);
  if (atEnd) log.scrollTop = log.scrollHeight;
}

/** @param {{status: string, error: any, worker: string, profile: number|null, stopping: boolean, dumps: {asked: number, most: number}}} row */
function show(row) {
  root.dataset.status = row.status;
  const live = UNDER_WAY.includes(row.status);
  const sentence = {
    queued: "Waiting for a gpu worker.", cancelled: "Stopped; nothing was kept.",
    running: row.stopping ? `Finishing its report on ${row.worker}.` : `Running on ${row.worker}.`, done: "Captured.", failed: `Failed: ${row.error?.what ?? "see the log"}.`,
  };
  document.getElementById("capture-answer").textContent = sentence[row.status] ?? row.status;
  document.getElementById("capture-error").hidden = !row.error;
  for (const part of ["where", "what", "hint"]) document.getElementById(`capture-error-${part}`).textContent = row.error?.[part] ?? "";
  document.getElementById("capture-next").hidden = live;
  document.getElementById("capture-log-note").textContent = live ? "as it comes" : "complete";
  const stop = document.getElementById("capture-stop");
  if (stop) stop.hidden = !live;
  const dump = document.getElementById("capture-dump");
  if (dump) {
    dump.hidden = row.status !== "running" || row.stopping;
    /** @type {HTMLButtonElement} */ (document.getElementById("capture-dump-button")).disabled = row.dumps.asked >= row.dumps.most;
    document.getElementById("capture-dumps").textContent = `${row.dumps.asked} of ${row.dumps.most} asked for`;
  }
  const profile = /** @type {HTMLAnchorElement} */ (document.getElementById("capture-profile"));
  profile.hidden = !row.profile;
  if (row.profile) profile.href = root.dataset.profileUrl.replace("/0/", `/${row.profile}/`);
}

/** Who watched it is led to the page that answers the question, once its profile is read.
 * @param {{profile: number|null, profile_status: string, result: string}} row */
function goOn(row) {
  const answer = document.getElementById("capture-answer");
  if (row.result) location.assign(row.result);
  else if (row.profile && row.profile_status !== "failed") {
    answer.textContent = "Captured. Reading the result…";
    window.setTimeout(async () => goOn(await getJson(root.dataset.api)), 1000);
  } else if (row.profile) answer.textContent = "Captured; the result could not be read: open it to see why.";
}

/** What it left: a profile each, or a file to download.
 * @param {{id: number, name: string, what: string, holds: string, bytes: number, sha256: string, profile: number|null, profile_name: string|null, kept: boolean}[]} files */
function showFiles(files) {
  const section = document.getElementById("capture-files");
  section.hidden = !files.length;
  section.querySelector("ul").replaceChildren(...files.map((file) => {
    const item = document.createElement("li"), link = document.createElement("a"), said = document.createElement("span");
    link.className = "what";
    link.textContent = file.profile_name ?? file.name;
    link.title = `${file.name} · sha256 ${file.sha256}`;
    if (file.kept || file.profile) link.href = file.kept ? section.dataset.download.replace("/0/", `/${file.id}/`) : root.dataset.profileUrl.replace("/0/", `/${file.profile}/`);
    link.toggleAttribute("download", file.kept);
    said.className = "muted";
    said.textContent = [file.what, si(file.bytes, "B")].filter(Boolean).join(" · ");
    item.append(link, " ", said);
    if (file.holds) {
      const holds = document.createElement("span");
      holds.className = "why";
      holds.textContent = file.holds;
      item.append(holds);
    }
    return item;
  }));
}

/** The row is the truth: after each (re)connection it is read again. @param {boolean} [ended] it ended while somebody watched */
async function catchUp(ended = false) {
  const row = await getJson(root.dataset.api);
  show(row);
  showFiles(row.files);
  started_ms = Date.parse(row.started ?? "");
  if (log.textContent !== row.log) {
    log.textContent = row.log;
    log.scrollTop = log.scrollHeight;
  }
  if (row.status === "done" && ended) goOn(row);
}

function tick() {
  if (!since || root.dataset.status !== "running" || Number.isNaN(started_ms)) return;
  since.textContent = `for ${Math.max(0, Math.round((Date.now() - started_ms) / 1000))} s`;
}

if (UNDER_WAY.includes(root.dataset.status)) {
  const handle = watch([`capture.${root.dataset.id}`], (message) => {
    if (message.event === "log") append(message.data.lines.map((line) => `${line}\n`).join(""));
    if (message.event === "status") {
      show(message.data);
      if (message.data.status === "running") catchUp();
      else if (!UNDER_WAY.includes(message.data.status)) { catchUp(true); handle.close(); }
    }
  }, (state) => { if (state === "live") catchUp(true); });
  window.setInterval(tick, 1000);
}
log.scrollTop = log.scrollHeight;
