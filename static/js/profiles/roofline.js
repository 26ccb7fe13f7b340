// The roofline page: filters act on the figure's data and on the rows below it; a tapped dot opens its kernel.

import { source } from "../lib/figures.js";
import { whenNear } from "../lib/near.js";
import { ns, pct, si } from "../lib/units.js";
import { passes, reduced } from "./roofline_filter.js";

const link = (value, row) => Object.assign(document.createElement("a"), { href: row.url, textContent: row.short_name, title: row.name, className: "mono" });
const COLUMNS = [
  { field: "short_name", title: "Kernel", type: "text", format: link, width: 320, minWidth: 220 },
  { field: "time_ns", title: "Time (ns)", type: "number", format: (value) => ns(value) },
  { field: "launches", title: "Launches", type: "number" },
  { field: "flop_s", title: "FLOP/s", type: "number", minWidth: 118, format: (value) => si(value, "FLOP/s") },
  { field: "intensity", title: "FLOP/B", type: "number", format: (value) => si(value) },
  { field: "roof_pct", title: "Of its roof (%)", type: "number", minWidth: 110, format: (value) => pct(value) },
  { field: "dram_bytes_s", title: "DRAM (B/s)", type: "number", minWidth: 104, format: (value) => si(value, "B/s") },
  { field: "side", title: "Roof", type: "text", width: 90 },
  { field: "precision_label", title: "Precision", type: "text", width: 110 },
  { field: "bound", title: "Bound", type: "text", width: 90 },
  { field: "basis", title: "Basis", type: "text", width: 120, format: (value, row) => (row.mark ? `${value}, ${row.mark}` : value) },
  { field: "recoverable_ns", title: "Headroom (ns)", type: "number", format: (value) => ns(value) },
];

const BOXES = ["precision", "bound", "profile"];

class Filters {
  /** @param {HTMLFormElement} form */
  constructor(form) {
    this.form = form;
    const url = new URL(location.href);
    form.q.value = url.searchParams.get("q") ?? "";
    form.min_us.value = url.searchParams.get("min_us") ?? "";
    for (const name of BOXES) {
      const chosen = url.searchParams.getAll(name);
      if (chosen.length) for (const box of this.boxes(name)) box.checked = chosen.includes(box.value);
    }
  }

  /** @param {string} name @returns {HTMLInputElement[]} */
  boxes(name) {
    return [...this.form.querySelectorAll(`input[name=${name}]`)];
  }

  /** Values that are chosen; null where all are. @param {string} name */
  chosen(name) {
    const boxes = this.boxes(name), on = boxes.filter((box) => box.checked).map((box) => box.value);
    return on.length === boxes.length ? null : new Set(on);
  }

  now() {
    return { q: this.form.q.value, minNs: Number(this.form.min_us.value || 0) * 1000, precisions: this.chosen("precision"), bounds: this.chosen("bound"), profiles: this.chosen("profile") };
  }

  /** The URL holds the view. */
  url() {
    const url = new URL(location.href), form = this.form;
    const plain = { q: form.q.value.trim(), min_us: form.min_us.value, per: form.per.value === "kernel" ? "" : form.per.value,
      colour: form.colour.value === form.colour.dataset.default ? "" : form.colour.value, family: form.family.value };
    for (const [name, value] of Object.entries(plain)) {
      if (value) url.searchParams.set(name, value); else url.searchParams.delete(name);
    }
    for (const name of BOXES) {
      url.searchParams.delete(name);
      for (const value of this.chosen(name) ?? []) url.searchParams.append(name, value);
    }
    return url;
  }
}

/** Every group of dots with all its rows. */
async function groups() {
  const found = [];
  for (let index = 0; ; index += 1) {
    const data = index ? await Promise.race([source(`points-${index}`), new Promise((resolve) => setTimeout(resolve, 0))]) : await source("points-0");
    if (!data) return found;
    found.push({ data, whole: Object.fromEntries(Object.entries(data.data).map(([name, values]) => [name, Array.from(values)])) });
  }
}

async function start() {
  const form = /** @type {HTMLFormElement|null} */ (document.getElementById("roofline-filters"));
  if (!form) return;
  const filters = new Filters(form);
  for (const name of ["per", "colour", "family"]) form[name].addEventListener("change", () => { location.href = filters.url().href; });
  form.addEventListener("submit", (event) => event.preventDefault());
  const script = document.getElementById("roofline-points");
  if (!script) return;
  const points = JSON.parse(script.textContent ?? "[]"), holder = document.getElementById("roofline-rows");
  points.forEach((point, index) => { point.id = index; });
  const sources = await groups();
  let grid = null;
  for (const { data } of sources) {
    data.selected.properties.indices.change.connect(() => {
      const [index] = data.selected.indices;
      if (index !== undefined) location.href = data.data.url[index];
    });
  }
  const apply = () => {
    const filter = filters.now(), kept = points.filter((point) => passes(point, filter));
    for (const { data, whole } of sources) {
      const keep = whole.name.map((_, index) => passes({ name: "", short_name: whole.full_name[index], precision_label: whole.precision[index], bound: whole.bound[index], profile_id: whole.profile[index], time_ns: whole.time_ns[index] }, filter));
      data.data = reduced(whole, keep);
    }
    grid?.setRows(kept);
    document.getElementById("roofline-count").textContent = `${kept.length} of ${points.length} dot${points.length === 1 ? "" : "s"}`;
    history.replaceState(history.state, "", filters.url());
  };
  form.addEventListener("input", (event) => { if (!["per", "colour", "family"].includes(event.target.name)) apply(); });
  const { q, minNs, precisions, bounds, profiles } = filters.now();
  if (q || minNs || precisions || bounds || profiles) apply();
  await whenNear(holder);
  const { gridFrom } = await import("../grid/grid.js"), now = filters.now();
  grid = gridFrom(holder, COLUMNS, points.filter((point) => passes(point, now)), { name: "dots", api: holder.dataset.api, empty: "No dot passes the filters" });
}

start();
