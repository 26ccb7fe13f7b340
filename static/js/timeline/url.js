// The view as a query string and back: window, selection, search, filter, pinned and folded tracks, marks. Knows no DOM.

/**
 * @typedef {{window: ?[number, number], slice: ?number, area: ?{start: number, end: number, tracks: number[]}, query: string,
 *   filter: string, pinned: number[], folded: ?string[], marks: {start: number, end: number}[], scroll: number}} View
 *   folded null: as the page decides
 */

/** @param {View} view @returns {string} "?w=…" or "" */
export function toQuery(view) {
  const query = new URLSearchParams();
  if (view.window) query.set("w", span(...view.window));
  if (view.slice !== null) query.set("s", String(view.slice));
  if (view.area) query.set("a", `${span(view.area.start, view.area.end)}@${ranges(view.area.tracks)}`);
  if (view.query) query.set("q", view.query);
  if (view.filter) query.set("f", view.filter);
  if (view.pinned.length) query.set("pin", view.pinned.join(","));
  if (view.folded) for (const key of view.folded.length ? view.folded : [""]) query.append("fold", key);
  for (const mark of view.marks) query.append("m", span(mark.start, mark.end));
  if (view.scroll > 0) query.set("y", String(Math.round(view.scroll)));
  const text = query.toString().replace(/%2C/g, ",").replace(/%40/g, "@").replace(/%3A/g, ":");
  return text ? `?${text}` : "";
}

/** @param {string} text location.search @returns {View} what is not there or not readable is left at its default */
export function fromQuery(text) {
  const query = new URLSearchParams(text);
  const [areaSpan, areaTracks] = (query.get("a") ?? "").split("@");
  const area = parseSpan(areaSpan);
  const slice = query.get("s");
  return {
    window: parseSpan(query.get("w")),
    slice: slice !== null && /^\d+$/.test(slice) ? Number(slice) : null,
    area: area && areaTracks !== undefined ? { start: area[0], end: area[1], tracks: parseRanges(areaTracks) } : null,
    query: query.get("q") ?? "",
    filter: query.get("f") ?? "",
    pinned: parseRanges(query.get("pin") ?? ""),
    folded: query.has("fold") ? query.getAll("fold").filter(Boolean) : null,
    marks: query.getAll("m").map(parseSpan).filter(Boolean).map(([start, end]) => ({ start, end })),
    scroll: Math.max(Number(query.get("y")) || 0, 0),
  };
}

// A window finer than a nanosecond per pixel needs fractions; thousandths are finer than any screen.
const number = (ns) => String(Math.round(ns * 1000) / 1000);
const span = (start, end) => `${number(start)}-${number(end)}`;

function parseSpan(text) {
  const found = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/.exec(text ?? "");
  return found && Number(found[2]) >= Number(found[1]) ? [Number(found[1]), Number(found[2])] : null;
}

/** [0, 1, 2, 5] -> "0-2,5" */
export function ranges(numbers) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const parts = [];
  for (let i = 0; i < sorted.length;) {
    let j = i;
    while (sorted[j + 1] === sorted[j] + 1) j++;
    parts.push(j > i ? `${sorted[i]}-${sorted[j]}` : String(sorted[i]));
    i = j + 1;
  }
  return parts.join(",");
}

export function parseRanges(text) {
  const numbers = [];
  for (const part of text.split(",")) {
    const found = /^(\d+)(?:-(\d+))?$/.exec(part);
    if (!found) continue;
    const last = Math.min(Number(found[2] ?? found[1]), Number(found[1]) + 100000);
    for (let n = Number(found[1]); n <= last; n++) numbers.push(n);
  }
  return numbers;
}
