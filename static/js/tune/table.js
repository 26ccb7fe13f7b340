// The table of trials, fastest first: set anew from each snapshot that brings one, or when the pictures' picks change.

import { bytes, msAsTime } from "../lib/units.js";
import { byTime, isRaced } from "./trials.js";

/** @typedef {import("./trials.js").Trial} Trial */

const MOST_ADDED = 40;

export class TrialTable {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.grid = null;
    this.shown = new Set(); // numbers of the trials that it holds
    this.filling = Promise.resolve();
  }

  /** @param {Trial[]} trials in order */
  set(trials) {
    this.filling = this.filling.then(async () => {
      if (!trials.length && !this.grid) return undefined;
      const ordered = byTime(trials), fresh = ordered.filter((trial) => !this.shown.has(trial.number));
      const adds = this.grid && fresh.length <= MOST_ADDED && this.shown.size + fresh.length === trials.length;
      this.shown = new Set(trials.map((trial) => trial.number));
      if (adds) return this.add(ordered, fresh);
      const rows = ordered.map(tableRow);
      if (this.grid) return this.grid.setRows(rows);
      await new Promise((resolve) => { setTimeout(resolve); }); // the curve is painted first: to make a grid takes as long again
      const { gridFrom } = await import("../grid/grid.js");
      this.grid = gridFrom(this.element, tableColumns(trials[0].config), rows, { name: "trials", index: "id", empty: "No trial yet", maxHeight: "420px", buffer: 112 });
      return this.grid.ready;
    }).catch((error) => console.error(error));
    return this.filling;
  }

  /** Rows go in where their time puts them, and the library draws once: all rows anew took 70 ms. @param {Trial[]} ordered @param {Trial[]} fresh */
  async add(ordered, fresh) {
    const { table } = this.grid;
    table.blockRedraw();
    for (const trial of [...fresh].reverse()) { // the slowest first: the one behind it is there already
      const next = ordered[ordered.indexOf(trial) + 1];
      await table.addRow(tableRow(trial), Boolean(next), next?.number);
    }
    table.restoreRedraw();
  }

  /** Show and select the row of a trial. @param {Trial} trial */
  async choose(trial) {
    await this.filling;
    const row = this.grid?.table.getRow(trial.number);
    if (!row) return;
    this.grid.table.deselectRow();
    row.select();
    this.element.scrollIntoView({ block: "nearest" });
    this.grid.table.scrollToRow(row, "center", true).catch(() => {});
  }
}

/** @param {Trial} row */
function outcomeNode(row) {
  if (row.outcome === "measured") return isRaced(row) ? Object.assign(document.createElement("span"), { textContent: "raced", title: "Given up early: surely slower than the best so far" }) : "measured";
  return Object.assign(document.createElement("span"), { className: "mark-bad", textContent: `✕ ${row.reason}`, title: row.message || row.reason });
}

/** Facts and parameters become columns. @param {Trial} trial */
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
