// The SQL console: runs what is in the editor over the chosen profiles and shows what comes back.

import { ApiError, csrfToken, postJson } from "../lib/http.js";
import { bind } from "../lib/keys.js";
import { el } from "./dom.js";
import { Editor } from "./editor.js";
import { Result, trackKind } from "./result.js";
import { Saved } from "./saved.js";
import { Scope } from "./scope.js";

const URL_CHARS = 1800;         // a longer query is not kept in the address
const root = document.getElementById("sql");
const data = JSON.parse(document.getElementById("sql-data").textContent);
const find = (id) => document.getElementById(id);
const [runButton, stopButton, progress, elapsed, told, answer, track] = ["sql-run", "sql-stop", "sql-progress", "sql-elapsed", "sql-error", "sql-answer", "sql-track"].map(find);

let running = null;             // {name, controller, timer}
let lastRun = null;             // what the shown result was asked with

const field = find("sql-text");
const editor = await import("./code.js").then(({ CodeEditor }) => new CodeEditor(field, { run }, data.tables), () => new Editor(field, { run }));
const scope = new Scope(root, data.chosen, writeUrl);
const saved = new Saved(root, data, { open: (entry) => { openEntry(entry); if (!scope.isEmpty) run(); } });
const result = new Result(root, { chart: (asked) => postJson(root.dataset.run, { ...lastRun, chart: asked }) });

function openEntry(entry) {
  editor.set(entry.sql);
  saved.mark(entry);
  writeUrl();
}

/** The address restores the page: profiles, and the query by number, key or text. */
function writeUrl() {
  const url = new URL(location.href), text = editor.text.trim(), { current } = saved;
  scope.write(url);
  for (const name of ["query", "example", "q"]) url.searchParams.delete(name);
  if (current && current.sql.trim() === text) url.searchParams.set(current.key ? "example" : "query", current.key ?? current.id);
  else if (text && text.length <= URL_CHARS) url.searchParams.set("q", text);
  if (url.href !== location.href) history.replaceState(history.state, "", url);
}

function working(on) {
  runButton.disabled = on;
  stopButton.hidden = progress.hidden = !on;
  root.setAttribute("aria-busy", String(on));
}

async function run() {
  if (running) return;
  const began = performance.now(), name = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random().toString(36).slice(2)}`;
  const controller = new AbortController();
  const tick = () => { elapsed.textContent = `${((performance.now() - began) / 1000).toFixed(1)} s`; };
  running = { name, controller, timer: setInterval(tick, 100) };
  tick();
  working(true);
  told.hidden = true;
  editor.unmark();
  if (!editor.text.trim()) editor.set(find("sql-text").placeholder);        // the query that an empty editor shows
  const asked = { ...scope.request(), query: editor.text, rows: Number(find("sql-rows").value), seconds: Number(find("sql-seconds").value) };
  try {
    const found = await postJson(root.dataset.run, { ...asked, run: name, fresh: true }, { signal: controller.signal });
    lastRun = asked;
    editor.history.add(editor.text);
    showPast();
    show(found);
  } catch (error) {
    fail(error);
  } finally {
    clearInterval(running.timer);
    running = null;
    working(false);
    writeUrl();
  }
}

function show(found) {
  const profiles = found.profiles.length === 1 ? found.profiles[0].name : `${found.profiles.length} profiles`;
  answer.textContent = `${found.row_count.toLocaleString("en")}${found.truncated ? " or more" : ""} row${found.row_count === 1 && !found.truncated ? "" : "s"} of ${profiles} in ${found.seconds.toFixed(2)} s.`;
  result.set(found, saved.current?.sql.trim() === editor.text.trim() ? saved.current.chart : {});
  offerTrack(found);
}

/** A result with times can be drawn on its profile's timeline, once the query has a name there. */
function offerTrack(found) {
  const one = found.profiles.length === 1 ? found.profiles[0].id : null, kind = trackKind(found.columns.map((column) => column.name));
  const known = saved.current && saved.current.sql.trim() === editor.text.trim() ? saved.current.key ?? saved.current.id : null;
  track.hidden = !one || !kind || (known === null && !data.may_save);
  track.textContent = known === null ? "Save and show on the timeline" : "Show on the timeline";
  track.href = known === null ? "#" : timelineOf(one, known);
  track.onclick = known !== null ? null : async (event) => {
    event.preventDefault();
    const kept = await keep();
    if (kept) location.assign(timelineOf(one, kept.id));
  };
}

const timelineOf = (profile, key) => `${root.dataset.timeline.replace("/0/", `/${profile}/`)}?sql=${encodeURIComponent(key)}`;

function fail(error) {
  if (error.name === "AbortError") return;
  const { position = null, kind = "" } = error.body ?? {};
  told.replaceChildren(el("b", {}, error.where || "query"), `: ${error.message}. ${error.hint ?? ""}`);
  if (position !== null) {
    told.append(el("button", { type: "button", className: "btn btn-small", onclick: () => editor.mark(position) }, "Go there"));
    editor.mark(position);
  }
  told.hidden = false;
  answer.textContent = kind === "stopped" ? "The query was stopped." : kind === "time" ? "The query took too long." : "The query gave no result.";
  if (!(error instanceof ApiError)) throw error;
}

async function keep() {
  const kept = await saved.save({ sql: editor.text, chart: lastRun?.query === editor.text ? result.chart : {} });
  if (kept) writeUrl();
  return kept;
}

/** The whole result as a file: the query runs again with a greater limit of rows. */
async function download(format, button) {
  const before = button.textContent;
  button.textContent = `${before}…`;
  button.disabled = true;
  try {
    const { rows, ...asked } = lastRun;
    const response = await fetch(root.dataset.run, { method: "POST", credentials: "same-origin", headers: { "Content-Type": "application/json", "X-CSRFToken": csrfToken() }, body: JSON.stringify({ ...asked, format }) });
    if (!response.ok) throw new ApiError(response.status, await response.json().catch(() => null));
    const url = URL.createObjectURL(await response.blob());
    el("a", { href: url, download: `query.${format}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  } catch (error) {
    fail(error);
  } finally {
    button.textContent = before;
    button.disabled = false;
  }
}

function showPast() {
  const entries = editor.history.entries;
  find("sql-past").replaceChildren(...(entries.length ? entries.map((sql) => el("button", { type: "button", title: sql, onclick: () => { editor.set(sql); find("sql-history").open = false; } }, sql.replace(/\s+/g, " "))) : [el("p", {}, "Queries that ran in this browser appear here.")]));
}

runButton.addEventListener("click", run);
stopButton.addEventListener("click", () => { if (running) postJson(root.dataset.stop, { run: running.name }).catch(fail); });
find("sql-save").addEventListener("click", keep);
for (const button of find("sql-files").querySelectorAll("[data-format]")) button.addEventListener("click", () => download(button.dataset.format, button));
root.addEventListener("click", (event) => {
  const { word, sql } = event.target.dataset ?? {};
  if (word) editor.insert(word);
  if (sql) { editor.set(sql); saved.mark(null); }
});
bind("Ctrl+Enter", "Run the query");
bind("Ctrl+↑", "The query before");
bind("Ctrl+↓", "The query after");

showPast();
const parameters = new URL(location.href).searchParams, entry = saved.named(parameters);
if (entry) openEntry(entry);
else if (parameters.get("q")) editor.set(parameters.get("q"), false);
if (editor.text && !scope.isEmpty) run(); else editor.focus();
root.dataset.ready = "1";
