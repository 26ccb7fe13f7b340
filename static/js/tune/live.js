// The page of one job: every part of it is painted from the same snapshot.

import { watch } from "../lib/live.js";
import { putParts, refresh } from "../lib/refresh.js";
import { tabs } from "../lib/tabs.js";
import { count } from "../lib/units.js";
import { Controls } from "./controls.js";
import { explore } from "./explore.js";
import { Progress } from "./progress.js";
import { Snapshots } from "./snapshots.js";
import { TrialTable } from "./table.js";
import "../lib/copy.js";
import "../lib/save.js";

const page = document.getElementById("tune-job");
const first = JSON.parse(document.getElementById("tune-state").textContent);
const table = new TrialTable(document.getElementById("trials"));
const pictures = explore(() => snapshots.trials, () => { showRows(); drawProgress(); }, choose);
const panels = tabs(document.getElementById("job-tabs"), () => pictures.update());
const progress = new Progress(document.getElementById("progress-figure"), document.getElementById("progress-choices"), document.getElementById("progress-said"), choose);
const snapshots = new Snapshots(page.dataset.snapshot, first, paint);
const controls = new Controls(() => snapshots.ask());

const passes = (trial) => pictures.picks.passes(trial);
const shownTrials = () => pictures.picks.size ? snapshots.trials.filter(passes) : snapshots.trials;
const drawProgress = () => progress.draw(snapshots.trials, snapshots.shown.state, passes);

/** The table follows what is picked in the pictures, and says so. */
function showRows() {
  const rows = shownTrials(), note = document.getElementById("trials-picked");
  note.hidden = !pictures.picks.size;
  note.querySelector("span").textContent = `${count(rows.length)} of ${count(snapshots.trials.length)} trials are picked in Parameters.`;
  table.set(rows);
}

/** A line or dot of the pictures was clicked: its row. @param {import("./trials.js").Trial} trial */
function choose(trial) {
  panels.show("trials");
  table.choose(trial);
}

let status = first.state.status;
let painted = null; // the trials that the table and the pictures show

/** @param {import("./snapshots.js").Snapshot} snapshot @param {import("./trials.js").Trial[]} trials */
function paint(snapshot, trials) {
  if (snapshot.parts) putParts(snapshot.parts);
  if (snapshot.state.status === "done" && status !== "done") refresh(); // what a finished job offers stands in the page itself
  status = snapshot.state.status;
  controls.show(snapshot.state);
  drawProgress();
  if (trials === painted) return;
  painted = trials;
  showRows();
  pictures.update();
}

document.querySelector("#trials-picked button").addEventListener("click", () => pictures.clear());
controls.show(first.state);
watch([`tune.${page.dataset.job}`], ({ event, data }) => {
  if (event === "trials") progress.add(data.trials); // its points at once; the rest of the page with the next snapshot
  if (event !== "watching") snapshots.ask();
}, (connection) => {
  document.getElementById("not-live").hidden = connection !== "lost" || snapshots.shown.state.ended;
  if (connection === "live") snapshots.ask();
});
snapshots.ask();
