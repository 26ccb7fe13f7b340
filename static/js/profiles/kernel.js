// The kernel page: its tables, and every raw metric of a launch, fetched when the section comes near.

import { getJson } from "../lib/http.js";
import { bytes, ns, pct, si } from "../lib/units.js";

/** @param {number|string|null} value @param {string} unit @returns {string} */
function shown(value, unit) {
  if (typeof value !== "number") return value ?? "—";
  if (unit === "ns") return ns(value);
  if (unit === "%") return pct(value);
  if (unit === "byte") return bytes(value);
  if (unit === "hz") return si(value, "Hz");
  if (unit === "byte/s") return si(value, "B/s");
  return Number.isInteger(value) ? value.toLocaleString("en-US") : String(Number(value.toPrecision(6)));
}

/** A metric's name; on hover what it means and which values are good. @param {string} value @param {any} row @returns {HTMLElement} */
function named(value, row) {
  const hover = [value, `${row.meaning} Unit: ${row.unit}.`, row.source ? `${row.range} (${row.source})` : row.range].join("\n");
  return Object.assign(document.createElement("span"), { textContent: value, title: hover });
}

const COLUMNS = [
  { field: "metric", title: "Metric", type: "text", width: 420, format: named },
  { field: "value", title: "Value", type: "number", format: (value, row) => shown(value, row.unit) },
  { field: "unit", title: "Base unit", type: "text", width: 90 },
  { field: "meaning", title: "Meaning", type: "text", width: 320 },
  { field: "range", title: "Good and bad", type: "text", width: 200, hidden: true },
];

const VERSUS = [
  { field: "baseline", title: "Baseline", type: "number", format: (value, row) => shown(value, row.unit) },
  { field: "change", title: "Change", type: "number", format: (value) => typeof value === "number" ? `${value > 0 ? "+" : ""}${Number(value.toPrecision(3))} %` : "—" },
];

/** Puts the baseline's value and the change into each row. @param {any[]} rows @param {any[]} others */
function beside(rows, others) {
  const known = new Map(others.map((each) => [each.metric, each.value]));
  for (const row of rows) {
    row.baseline = known.get(row.metric) ?? null;
    row.change = typeof row.value === "number" && typeof row.baseline === "number" && row.baseline ? 100 * (row.value / row.baseline - 1) : null;
  }
}

function metrics(element) {
  const select = /** @type {HTMLSelectElement} */ (document.getElementById("metrics-launch"));
  let grid = null;
  const load = async () => {
    const address = `${element.dataset.url}?launch=${select.value}`;
    try {
      const { metrics: rows } = await getJson(address);
      const columns = element.dataset.baseline ? [...COLUMNS, ...VERSUS] : COLUMNS;
      if (element.dataset.baseline) beside(rows, (await getJson(element.dataset.baseline)).metrics);
      const { gridFrom } = await import("../grid/grid.js");
      if (grid) grid.setRows(rows);
      else grid = gridFrom(element, columns, rows, { name: "metrics", api: address, index: "metric", empty: "No metrics are stored" });
    } catch (error) {
      element.replaceChildren(Object.assign(document.createElement("p"), { className: "notice notice-error", textContent: `The metrics could not be fetched: ${error.message}` }));
      grid = null;
    }
  };
  select.addEventListener("change", load);
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    load();
  }, { rootMargin: "300px" }).observe(element);
}

for (const select of document.querySelectorAll("select[data-submits]")) {
  select.addEventListener("change", () => {
    const url = new URL(location.href);
    if (select.value === "") url.searchParams.delete(select.name);
    else url.searchParams.set(select.name, select.value);
    location.assign(url);
  });
}
const element = document.getElementById("metrics-grid");
if (element) metrics(element);
