// A profile that is being read: phase, bytes, records, rate, time left; then the page of the result.

import { getJson } from "../lib/http.js";
import { watch } from "../lib/live.js";
import { reload } from "../lib/reload.js";
import { bytes, ns, plural, si } from "../lib/units.js";

const card = document.getElementById("ingest");
const bar = document.getElementById("ingest-bar");
const text = document.getElementById("ingest-text");

/** @param {any} state */
function show({ phase, done_bytes, total_bytes, records, rate_bytes_s, eta_s }) {
  if (total_bytes) { bar.max = total_bytes; bar.value = done_bytes; } else bar.removeAttribute("value");
  const parts = [phase, total_bytes ? `${bytes(done_bytes)} of ${bytes(total_bytes)}` : "", records ? plural(records, "record") : "",
    rate_bytes_s ? si(rate_bytes_s, "B/s") : "", eta_s ? `${ns(eta_s * 1e9)} left` : ""];
  text.textContent = parts.filter(Boolean).join(" · ");
}

/** @param {string} status */
function changed(status) {
  if (status === "ready" || status === "failed") reload();
  else if (status === "deleted") text.textContent = "deleted";
  else if (status === "uploaded") text.textContent = "waits for an ingest worker";
}

async function catchUp() {
  const row = await getJson(card.dataset.api).catch(() => null);
  if (row?.progress) show(row.progress);
  if (row) changed(row.status);
}

watch([`profile.${card.dataset.profile}`], ({ event, data }) => (event === "progress" ? show(data) : changed(data.status)),
  (state) => { if (state === "live") catchUp(); else if (state === "lost") text.textContent = "not live: trying to reconnect"; });
