// Which groups the tracks stand in: GPUs above threads, rank after rank; or one stream, or one kernel, of all ranks together.
// Knows no DOM.

export const BY = [["rank", "Rank"], ["stream", "Stream"], ["kernel", "Kernel"]];
export const ASIDE = "Profiler’s own tracks and empty counters";

/**
 * @typedef {{name: string, number: number, tracks: object[], sort: number, rank: ?string, isGpu: boolean, isAside: boolean,
 *   startsFolded: boolean, note: string, facts: string, nameOf: (track: object) => string}} Group
 *   number: its place in the file's order, which links name it by; note: what stands beside its name, facts: what its title says
 */

const isOfGpu = (track) => track.kind === "stream" || (track.device ?? null) !== null;

/** Groups of the file: tracks by the process or GPU they belong to, ordered by sort, then as the file has them. @returns {Group[]} */
export function groupTracks(tracks) {
  const groups = new Map();
  for (const track of tracks) put(groups, track.group, track);
  return finish(groups, (a, b) => a.sort - b.sort);
}

/** @param {object[]} tracks @param {"rank"|"stream"|"kernel"} by @param {?object[]} kernels tracks of kernels, where they are known @returns {Group[]} */
export function grouped(tracks, by, kernels = null) {
  const aside = tracks.filter((track) => track.aside), shown = tracks.filter((track) => !track.aside);
  const main = by === "kernel" && kernels ? byKernel(shown, kernels) : by === "stream" ? byStream(shown) : byRank(shown);
  return aside.length ? [...main, { ...group(ASIDE, aside), number: main.length, isAside: true, startsFolded: true, nameOf: (track) => `${track.group} / ${track.name}` }] : main;
}

/** Rank after rank, in each the GPUs first. What belongs to no rank (a query's rows, a file of one job) keeps the file's order. */
function byRank(tracks) {
  const ranks = [...new Set(tracks.map((track) => track.rank ?? null))], place = (g) => (g.sort < 0 ? -1 : ranks.indexOf(g.rank));
  return sorted(groupTracks(tracks), (a, b) => place(a) - place(b) || Number(b.isGpu) - Number(a.isGpu) || a.number - b.number);
}

/** What lies on GPUs, by its name over all of them: "stream 7" with a lane per GPU. Below it the processes. */
function byStream(tracks) {
  const groups = new Map();
  for (const track of tracks) if (isOfGpu(track)) put(groups, track.name, track);
  const kind = (g) => (g.tracks[0].kind === "stream" ? 0 : g.tracks[0].kind === "counter" ? 2 : 1);
  const streams = finish(groups, (a, b) => kind(a) - kind(b) || a.name.localeCompare(b.name, "en", { numeric: true }));
  for (const each of streams) each.nameOf = (track) => track.group;
  return numbered([...streams, ...groupTracks(tracks.filter((track) => !isOfGpu(track)))]);
}

/** One group per kernel, most time first, with a lane per stream; below it the GPUs and processes as the file has them. */
function byKernel(tracks, kernels) {
  const groups = new Map();
  for (const track of kernels) put(groups, track.group, track);
  const made = finish(groups, () => 0);
  for (const each of made) Object.assign(each, { startsFolded: true, note: each.tracks[0].note ?? "", facts: each.tracks[0].facts ?? "" });
  const rest = byRank(tracks);
  for (const each of rest) if (each.isGpu) each.startsFolded = true;
  return numbered([...made, ...rest]);
}

const group = (name, tracks) => ({
  name, tracks, number: 0, sort: Math.min(...tracks.map((track) => track.sort ?? 0)), rank: tracks[0].rank ?? null, isGpu: tracks.some(isOfGpu),
  isAside: false, startsFolded: false, note: "", facts: "", nameOf: (track) => track.name,
});

function put(groups, name, track) {
  if (!groups.has(name)) groups.set(name, []);
  groups.get(name).push(track);
}

function finish(groups, order) {
  const list = [...groups].map(([name, tracks]) => group(name, tracks.sort((a, b) => (a.sort ?? 0) - (b.sort ?? 0))));
  return numbered(sorted(list, order));
}

const sorted = (list, order) => [...list].sort(order);
const numbered = (list) => list.map((each, number) => Object.assign(each, { number }));

/**
 * Whose steps a track shows: those of its rank; where a file of several processes names no ranks, those of its own process;
 * null: everybody's, because there is only one.
 * @param {object[]} tracks on which steps stand @returns {(track: object) => ?string}
 */
export function stepOwners(tracks) {
  const owner = (track) => track.rank ?? track.group;
  return new Set(tracks.filter(Boolean).map(owner)).size < 2 ? () => null : owner;
}
