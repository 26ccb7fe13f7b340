// What the palette lists for what was typed: pages, actions and recent objects, by how well their words fit. No DOM.

import { root } from "../lib/root.js";

/** @typedef {{kind: string, title: string, url: string, words?: string, detail?: string, keys?: string, run?: () => void}} Entry */
/** @typedef {{title: string, entries: Entry[]}} Group */

export const MOST_MATCHES = 8;
export const MOST_RECENT = 6;
const KEPT = 24;
const RECENT_BONUS = 6;

/** @param {string} text */
const wordsOf = (text) => text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);

/**
 * Letters of `token` in order within `text`, the first at the start of a word: "nwtj" in "New tune job". 0 where they are not.
 * @param {string} token @param {string} text
 */
function scattered(token, text) {
  let at = -1, gaps = 0;
  for (const [index, letter] of [...token].entries()) {
    let next = text.indexOf(letter, at + 1);
    while (index === 0 && next > 0 && /[\p{L}\p{N}]/u.test(text[next - 1])) next = text.indexOf(letter, next + 1);
    if (next < 0) return 0;
    if (index && next !== at + 1) gaps += /[\p{L}\p{N}]/u.test(text[next - 1]) ? 4 : 1; // less where a word begins
    at = next;
  }
  return Math.max(0, 40 - 3 * gaps);
}

/**
 * How well one typed word fits an entry; 0: not at all.
 * @param {string} token lower case @param {Entry} entry
 */
function fit(token, entry) {
  const title = entry.title.toLowerCase();
  if (title === token) return 120;
  if (title.startsWith(token)) return 100;
  if (wordsOf(title).some((word) => word.startsWith(token))) return 80;
  if (title.includes(token)) return 60;
  if (wordsOf(entry.words ?? "").some((word) => word.startsWith(token))) return 50;
  if ((entry.detail ?? "").toLowerCase().includes(token)) return 30;
  return token.length > 1 ? scattered(token, title) : 0;
}

/** Every typed word must fit; shorter titles first among equals. @param {string} query @param {Entry} entry */
export function score(query, entry) {
  const tokens = query.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = tokens.map((token) => fit(token, entry));
  if (!fits.length || fits.some((each) => each === 0)) return 0;
  return fits.reduce((sum, each) => sum + each, 0) / fits.length - Math.min(entry.title.length, 60) / 20;
}

/**
 * Entries that fit, best first; of an address only its best. What was opened lately gains a little.
 * @param {string} query @param {Entry[]} entries @param {Set<string>} recent addresses @returns {Entry[]}
 */
export function rank(query, entries, recent = new Set(), most = MOST_MATCHES) {
  const scored = entries.map((entry) => ({ entry, points: score(query, entry) })).filter(({ points }) => points > 0);
  for (const each of scored) if (recent.has(each.entry.url)) each.points += RECENT_BONUS;
  scored.sort((a, b) => b.points - a.points);
  const seen = new Set();
  return scored.map(({ entry }) => entry).filter(({ url, title }) => {
    const key = `${url} ${title}`;
    return !seen.has(key) && seen.add(key);
  }).slice(0, most);
}

/**
 * Groups to show. Hits of the server stand below what is known here, so that they move nothing when they arrive.
 * @param {string} query @param {{entries: Entry[], recent: Entry[], hits: Group[]}} known @returns {Group[]}
 */
export function groups(query, { entries, recent, hits }) {
  const typed = query.trim();
  if (!typed) {
    return [
      { title: "Recent", entries: recent.slice(0, MOST_RECENT) },
      { title: "Actions", entries: entries.filter(({ kind }) => kind === "action") },
      { title: "Pages", entries: entries.filter(({ kind }) => kind === "page") },
    ].filter((group) => group.entries.length);
  }
  const known = new Set(entries.map(({ url }) => url));
  const best = rank(typed, [...entries, ...recent.filter(({ url }) => !known.has(url))], new Set(recent.map(({ url }) => url)));
  const shown = new Set(best.map(({ url }) => url));
  const others = hits.map(({ title, entries: found }) => ({ title, entries: found.filter(({ url }) => !shown.has(url)) }));
  return [
    { title: "Jump to", entries: best },
    ...others,
    { title: "Everything", entries: [{ kind: "search", title: `Search for “${typed}”`, url: `${root}search/?q=${encodeURIComponent(typed)}` }] },
  ].filter((group) => group.entries.length);
}

/** Hits of an earlier query that fit this one as well: they stay until the new answer. @param {string} query @param {Group[]} hits @returns {Group[]} */
export function stillFitting(query, hits) {
  return hits.map(({ title, entries }) => ({ title, entries: entries.filter((entry) => score(query, entry) > 0) })).filter((group) => group.entries.length);
}

/** The list with one more at its head, without its older self. @param {Entry[]} recent @param {Entry} entry @returns {Entry[]} */
export function remembered(recent, { kind, title, url, detail = "" }) {
  return [{ kind, title, url, detail }, ...recent.filter((each) => each.url !== url)].slice(0, KEPT);
}
