// Which tracks stand where: the filter, what is hidden, what was moved. Knows no DOM.

const TEXT_CHARS = 400;             // of a track's name that a pattern is tried on
const MAX_MOVES = 300;
const SLOW = /[+*}][^()]*\)\s*[+*{]/;       // a repeated group that repeats inside may take for ever

/** What a filter means: words that must all occur, or a pattern where it looks like one (or stands in slashes). @returns {{test: (text: string) => boolean, error: string, isAny: boolean}} */
export function trackFilter(text) {
  const trimmed = text.trim(), slashed = /^\/(.+)\/$/.exec(trimmed);
  if (!trimmed) return { test: () => true, error: "", isAny: true };
  if (slashed || /[\\^$*+?|[\]]|\.[*+]/.test(trimmed)) return pattern(slashed?.[1] ?? trimmed);
  const words = trimmed.toLowerCase().split(/\s+/);
  return { test: (name) => words.every((word) => name.toLowerCase().includes(word)), error: "", isAny: false };
}

function pattern(source) {
  const refused = (error) => ({ test: () => true, error, isAny: true });
  if (SLOW.test(source)) return refused("a repeated group inside a repeated group would take too long");
  try {
    const found = new RegExp(source, "i");
    const plain = source.toLowerCase();     // a name with brackets is found as it is written, too
    return { test: (name) => found.test(name.slice(0, TEXT_CHARS)) || name.toLowerCase().includes(plain), error: "", isAny: false };
  } catch (error) {
    return refused(error.message.replace(/^Invalid regular expression: /, ""));
  }
}

/** @typedef {{filter: string, hidden: Set<number>, moves: [string, string][], pinned: Set<number>}} View moves: [what, before what], "" = to the end */

/**
 * Groups with the tracks to show, in order; pinned tracks in the order in which they were pinned.
 * @param {import("./model.js").Timeline} timeline @param {View} view
 * @returns {{groups: {group: object, shown: object[]}[], pinned: {group: object, track: object}[], byHand: number, byFilter: number, error: string, isFiltered: boolean}}
 */
export function arrange(timeline, view) {
  const filter = trackFilter(view.filter ?? ""), hidden = view.hidden ?? new Set();
  const { groups, tracks } = order(timeline, view.moves ?? []);
  const pinnedAt = new Map([...view.pinned].map((id, i) => [id, i])), pinned = [];
  let byHand = 0, byFilter = 0;
  const arranged = [];
  for (const group of groups) {
    const shown = [];
    for (const track of tracks.get(group)) {
      if (pinnedAt.has(track.id)) pinned.push({ group, track });
      if (!hasContent(track)) continue;
      if (hidden.has(track.id)) byHand++;
      else if (!filter.test(`${track.name} ${track.group} ${track.kind}`)) byFilter++;
      else shown.push(track);
    }
    if (shown.length) arranged.push({ group, shown });
  }
  pinned.sort((a, b) => pinnedAt.get(a.track.id) - pinnedAt.get(b.track.id));
  return { groups: arranged, pinned, byHand, byFilter, error: filter.error, isFiltered: !filter.isAny };
}

export const hasContent = (track) => track.slices > 0 || track.kind === "counter";

/** Key of a group or track in moves and URLs: "g2" is the third group of the file, "t5" the track 5. */
export const moveKey = (thing) => (thing.tracks ? `g${thing.number}` : `t${thing.id}`);

function order(timeline, moves) {
  const groups = [...timeline.groups], tracks = new Map(groups.map((group) => [group, group.tracks]));
  if (!moves.length) return { groups, tracks };
  const groupOf = new Map(groups.flatMap((group) => group.tracks.map((track) => [track.id, group])));
  const find = (key) => (key[0] === "g" ? groups.find((group) => group.number === Number(key.slice(1))) : timeline.tracks.get(Number(key.slice(1))));
  for (const [what, before] of moves) {
    const thing = find(what), other = before ? find(before) : null;
    if (!thing || (before && (!other || what[0] !== before[0]))) continue;
    if (what[0] === "g") put(groups, thing, other);
    else {
      const group = groupOf.get(thing.id);
      if (other && groupOf.get(other.id) !== group) continue;
      tracks.set(group, put([...tracks.get(group)], thing, other));
    }
  }
  return { groups, tracks };
}

function put(list, thing, before) {
  list.splice(list.indexOf(thing), 1);
  list.splice(before ? list.indexOf(before) : list.length, 0, thing);
  return list;
}

/** The moves with one more: what was moved again directly before needs its last place only. */
export function withMove(moves, what, before) {
  if (what === before) return moves;
  const kept = moves.at(-1)?.[0] === what ? moves.slice(0, -1) : moves;
  return [...kept, [what, before]].slice(-MAX_MOVES);
}
