// Paints the strip of search hits under the overview: how many lie where in the whole trace, and the one that is selected.

import { fit } from "./tracks.js";
import { overviewX } from "./ruler.js";

export const HITS_PX = 12;

export class HitsPainter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.key = "";
  }

  /** @param {import("./tracks.js").Scene} scene @param {import("../data/search.js").Search} search */
  paint({ viewport, timeline, palette, dpr }, { query, error, strip, hits, total, current }) {
    const key = [query, error, total, hits.length, strip && strip.length, current?.id, viewport.width, viewport.start, viewport.end, palette.id, dpr].join(" ");
    if (key === this.key || !query || error) return;
    this.key = key;
    const { context } = this, { width } = viewport;
    fit(this.canvas, width, HITS_PX, dpr);
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    context.fillStyle = palette.panel;
    context.fillRect(0, 0, width, HITS_PX);
    context.fillStyle = palette.raised;
    const a = overviewX(timeline, viewport.start, width), b = overviewX(timeline, viewport.end, width);
    context.fillRect(a, 0, Math.max(b - a, 1), HITS_PX);
    context.fillStyle = palette.warn;
    if (strip) this.bars(strip, timeline, width);
    else for (const hit of hits) context.fillRect(Math.round(overviewX(timeline, hit.start_ns, width)), 2, 1.5, HITS_PX - 4);
    context.globalAlpha = 1;
    if (!current) return;
    const x = overviewX(timeline, current.start_ns, width);
    context.fillStyle = palette.text;
    context.fillRect(Math.round(x) - 1, 0, 3, HITS_PX);
  }

  /** A bar for each part of the trace that holds hits: at least visible, higher by their logarithm. */
  bars(strip, timeline, width) {
    const most = Math.log1p(Math.max(...strip)), partNs = (timeline.endNs - timeline.startNs) / strip.length;
    const wide = overviewX(timeline, timeline.startNs + partNs, width);
    strip.forEach((count, i) => {
      if (!count) return;
      const height = 4 + (HITS_PX - 6) * (most ? Math.log1p(count) / most : 1);
      this.context.fillRect(i * wide, HITS_PX - 1 - height, Math.max(wide, 1.5), height);
    });
  }
}
