// Jumps as arrows in the margin of the code, as SVG over the rows that are drawn.

const NS = "http://www.w3.org/2000/svg";
const LANE_PX = 7;

/** Width of the margin. @param {number} lanes */
export function marginPx(lanes) {
  return lanes ? lanes * LANE_PX + 12 : 0;
}

/**
 * @param {import("./source_program.js").Jump[]} jumps that cross the rows @param {number} lanes @param {number} first row drawn
 * @param {number} last one past @param {number} rowPx @param {number} chosen row whose jumps stand out
 */
export function margin(jumps, lanes, first, last, rowPx, chosen) {
  const svg = document.createElementNS(NS, "svg"), width = marginPx(lanes), right = width - 2;
  svg.setAttribute("class", "code-margin");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("width", String(width));
  svg.setAttribute("height", String((last - first) * rowPx));
  const middle = (/** @type {number} */ row) => (row - first + 0.5) * rowPx;
  for (const { from, to, lane } of jumps) {
    const group = document.createElementNS(NS, "g");
    group.setAttribute("class", `jump${to < from ? " is-back" : ""}${from === chosen || to === chosen ? " is-chosen" : ""}`);
    const path = document.createElementNS(NS, "path");
    const x = right - 8 - (lane ?? 0) * LANE_PX, up = to < from;
    const clip = (/** @type {number} */ y) => Math.max(-rowPx, Math.min((last - first + 1) * rowPx, y));
    path.setAttribute("d", lane === null
      ? `M${right} ${middle(from)} h-6 v${up ? -6 : 6}` : `M${right} ${clip(middle(from))} H${x} V${clip(middle(to))} H${right}`);
    group.append(path);
    if (to >= first && to < last) {
      const head = document.createElementNS(NS, "path");
      head.setAttribute("d", `M${right} ${middle(to)} l-5 -3.5 v7 z`);
      head.setAttribute("class", "jump-head");
      group.append(head);
    }
    svg.append(group);
  }
  return svg;
}
