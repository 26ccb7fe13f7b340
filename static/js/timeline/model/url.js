// The view as a query string and back: window, selection, search, what is done to tracks, marks, and what other modules
// register. Knows no DOM.

import { BY } from "./grouping.js";

/**
 * @typedef {{by: "rank"|"stream"|"kernel", window: ?[number, number], slice: ?number, area: ?{start: number, end: number, tracks: number[]}, query: string,
 *   filter: string, pinned: number[], hidden: number[], moves: [string, string][], folded: ?string[],
 *   marks: {start: number, end: number}[], scroll: number, pinnedScroll: number, extra: Object<string, ?string>}} View
 *   folded null: as the page decides; extra: what modules registered, by their keys, null where the URL says nothing
 */

/** @type {Map<string, {get: (app: object) => ?string, set: (app: object, text: ?string) => void}>} */
export const registered = new Map();

/**
 * A module's own part of the view. `get` says it as a text (null: the usual), `set` takes it over from a URL.
 * @param {string} key of the query, not one of those below
 */
export function registerKey(key, { get, set }) {
  registered.set(key, { get, set });
}

const OWN = new Set(["by", "w", "s", "a", "q", "f", "pin", "hide", "mv", "fold", "m", "y", "py"]);

/** Entries of a query that are no timeline's: they stay as they are. @param {string[]} prefixes of the timelines of the page @param {string[]} others that are written anew, too */
export function foreignEntries(text, prefixes, others = []) {
  const own = (key) => prefixes.some((prefix) => key.startsWith(prefix) && (OWN.has(key.slice(prefix.length)) || registered.has(key.slice(prefix.length))));
  return [...new URLSearchParams(text)].filter(([key]) => !own(key) && !others.includes(key));
}

/** @param {View} view @returns {[string, string][]} what a query holds */
export function toEntries(view) {
  const entries = [];
  const add = (key, value) => { if (value !== null && value !== undefined && value !== "") entries.push([key, String(value)]); };
  add("by", view.by === "rank" ? null : view.by);
  if (view.window) add("w", span(...view.window));
  add("s", view.slice);
  if (view.area) add("a", `${span(view.area.start, view.area.end)}@${ranges(view.area.tracks)}`);
  add("q", view.query);
  add("f", view.filter);
  add("pin", view.pinned.join(","));
  add("hide", ranges(view.hidden));
  add("mv", view.moves.map((move) => move.join(".")).join(","));
  if (view.folded) for (const key of view.folded.length ? view.folded : [""]) entries.push(["fold", key]);
  for (const mark of view.marks) add("m", span(mark.start, mark.end));
  if (view.scroll > 0) add("y", Math.round(view.scroll));
  if (view.pinnedScroll > 0) add("py", Math.round(view.pinnedScroll));
  for (const [key, value] of Object.entries(view.extra)) add(key, value);
  return entries;
}

/** @param {[string, string][]} entries @returns {string} "?w=…" or "" */
export function joined(entries) {
  const text = new URLSearchParams(entries).toString().replace(/%2C/g, ",").replace(/%40/g, "@").replace(/%3A/g, ":");
  return text ? `?${text}` : "";
}

/** @param {View} view */
export const toQuery = (view) => joined(toEntries(view));

/**
 * @param {string} text location.search @param {string} prefix of the keys of this timeline: "b." for the second of a page
 * @returns {View} what is not there or not readable is left at its default
 */
export function fromQuery(text, prefix = "") {
  const all = new URLSearchParams(text), get = (key) => all.get(prefix + key), getAll = (key) => all.getAll(prefix + key);
  const [areaSpan, areaTracks] = (get("a") ?? "").split("@");
  const area = parseSpan(areaSpan);
  const slice = get("s");
  return {
    by: BY.some(([key]) => key === get("by")) ? get("by") : "rank",
    window: parseSpan(get("w")),
    slice: slice !== null && /^\d+$/.test(slice) ? Number(slice) : null,
    area: area && areaTracks !== undefined ? { start: area[0], end: area[1], tracks: parseRanges(areaTracks) } : null,
    query: get("q") ?? "",
    filter: get("f") ?? "",
    pinned: parseRanges(get("pin") ?? ""),
    hidden: parseRanges(get("hide") ?? ""),
    moves: parseMoves(get("mv") ?? ""),
    folded: all.has(`${prefix}fold`) ? getAll("fold").filter(Boolean) : null,
    marks: getAll("m").map(parseSpan).filter(Boolean).map(([start, end]) => ({ start, end })),
    scroll: Math.max(Number(get("y")) || 0, 0),
    pinnedScroll: Math.max(Number(get("py")) || 0, 0),
    extra: Object.fromEntries([...registered.keys()].map((key) => [key, get(key)])),
  };
}

// A window finer than a nanosecond per pixel needs fractions; thousandths are finer than any screen.
const number = (ns) => String(Math.round(ns * 1000) / 1000);
const span = (start, end) => `${number(start)}-${number(end)}`;

function parseSpan(text) {
  const found = /^(-?\d+(?:\.\d+)?)-(-?\d+(?:\.\d+)?)$/.exec(text ?? "");
  return found && Number(found[2]) >= Number(found[1]) ? [Number(found[1]), Number(found[2])] : null;
}

function parseMoves(text) {
  return text.split(",").map((part) => /^([gt]\d+)\.([gt]\d+)?$/.exec(part)).filter(Boolean).map(([, what, before]) => [what, before ?? ""]);
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
