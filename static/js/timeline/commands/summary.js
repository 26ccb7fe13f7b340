// What is in view, in words: for who does not see the picture, and for who wants it in a sentence.

import { count, ns, pct } from "../../lib/units.js";

const NAMES = 3;
const FRAMES = new Set(["annotation", "gpu_annotation"]);      // they cover work without being work

/**
 * @param {{start_ns: number, end_ns: number, slices: number, busy_ns: number, rows: {name: string, count: number, total_ns: number, share_pct: number}[]}} answer
 *   of GET …/selection/ for the window @param {boolean} hasGpu whether a GPU's tracks are among those asked for
 */
export function summaryText(answer, hasGpu) {
  const span = answer.end_ns - answer.start_ns;
  const busy = hasGpu && span > 0 ? ` GPU busy ${pct((100 * answer.busy_ns) / span)}.` : "";
  const most = answer.rows.filter((row) => !FRAMES.has(row.category)).slice(0, NAMES).map((row) => `${row.name}, ${ns(row.total_ns)} in ${count(row.count)}`).join("; ");
  return `${ns(span)} from ${ns(answer.start_ns)}: ${count(answer.slices)} slices.${busy}${most ? ` Most time: ${most}.` : ""}`;
}

/** Ask for the window and say it. @param {import("../app.js").App} app */
export async function sayView(app) {
  const { viewport, timeline, stage } = app, tracks = stage.shownTracks();
  const window = { start: Math.max(Math.floor(viewport.start), timeline.startNs), end: Math.min(Math.ceil(viewport.end), timeline.endNs) };
  try {
    const answer = await app.api.selection({ ...window, tracks: tracks.length < timeline.meta.tracks.length ? tracks.join(",") : undefined });
    app.say(summaryText(answer, tracks.some((id) => timeline.tracks.get(id)?.kind === "stream")), true);
  } catch (error) {
    app.controls.fail(error);
  }
}
