"""Which process of a file that several ranks share each launch call and each piece of GPU work belongs to.

By name, where processes say their rank ("[TP00-DP00] 83", "rank0-83", "Rank 0: python"); else by correlation ids, which hold
within a process: GPU work belongs to the process that alone has a call with its id; where several have one, the n-th piece of
work of an id, by start, belongs to its n-th call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.ingest.arrays import Bools, Ints, stable_order
from profiles.ingest.trace import Category, Trace, Track
from profiles.ingest.windows import MISSING

MOST_RANKS = 4_096                  # of one file; more are a hostile file's
MOST_ROWS = 20_000_000              # calls and GPU work of a file in which ids repeat: 1 GB
LANE_SHARE = 0.9                    # of a lane's work that one process launched: then all of it is that process's
NOBODY = -1
_CHARS = 200
_BRACKETS = re.compile(r"\s*((?:\[[^\[\]]{1,100}\]\s*)+)")
_RANK = re.compile(r"(?i)(?<![a-z])(?:global[-_ ]?)?rank[-_ :#=]{0,2}(\d{1,6})(?!\d)")
_NUMBERED = re.compile(r"(.*?\D)\d+\s*")
_DIGITS = re.compile(r"(\d+)")


# ---- by name ----

def label_of(pid: str, title: str = "") -> str:
    """Return the rank that a process's name or number states, "" where neither does: "TP00-DP00" of "[TP00-DP00] 83"."""
    for text in (title[:_CHARS], pid[:_CHARS]):
        if brackets := _BRACKETS.match(text):
            inside = " ".join(re.findall(r"\[([^\[\]]+)\]", brackets[1]))
            stated = _RANK.fullmatch(inside.strip())
            return f"rank {int(stated[1])}" if stated else inside.strip()
        if stated := _RANK.search(text):
            return f"rank {int(stated[1])}"
    return ""


def prefix(pid: str) -> str:
    """Return what stands before a process's number: "node1" of "node1-83"; "" of a plain number."""
    numbered = _NUMBERED.fullmatch(pid[:_CHARS])
    return numbered[1].strip(" -_:./|#") if numbered else ""


def labelled(tracks: Sequence[Track], labels: Sequence[str], call_ids: Mapping[int, Any], is_strong: bool) -> list[str]:
    """Return the labels that are ranks, in natural order: those of GPU lanes, of weak ones those with launch calls as well."""
    of_gpus = {label for label, track in zip(labels, tracks, strict=True) if label and track.kind == "stream"}
    of_calls = {labels[number] for number in call_ids}
    ranks = of_gpus if is_strong and (of_gpus & of_calls or not call_ids) else of_gpus & of_calls
    return sorted(ranks, key=_natural) if 1 < len(ranks) <= MOST_RANKS else []


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part[:18]), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(text) if part]


# ---- by ids ----

def overlapping(call_ids: Mapping[int, tuple[int, int]], names: Sequence[str]) -> list[str]:
    """Return the processes whose ranges of ids overlap with another's, in natural order."""
    ranges: dict[str, tuple[int, int]] = {}
    for number, (least, most) in call_ids.items():
        id_range = ranges.get(names[number], (least, most))
        ranges[names[number]] = min(id_range[0], least), max(id_range[1], most)
    ordered = sorted(ranges, key=lambda name: ranges[name])
    out: set[str] = set()
    widest = ordered[0] if ordered else ""
    for name in ordered[1:]:
        if ranges[name][0] <= ranges[widest][1]:
            out |= {name, widest}
        widest = max(widest, name, key=lambda each: ranges[each][1])
    return sorted(out, key=_natural) if len(out) <= MOST_RANKS else []


@dataclass(frozen=True)
class Ids:
    """Launch calls by (id, start), and everything on GPU lanes in the order of the windows."""

    call_id: Ints
    call_start_ns: Ints
    call_owner: Ints
    work_id: Ints
    work_start_ns: Ints
    work_track: Ints

    @classmethod
    def read(cls, trace: Trace, of_track: Ints) -> Ids | None:
        """None where the file holds too many."""
        on_gpu = np.array([track.kind == "stream" for track in trace.tracks], np.bool_)
        calls, work, rows = [], [], 0
        for window in trace.windows():
            columns = window.columns
            owner = of_track[columns["track"]]
            called = (columns["category"] == Category.RUNTIME) & (columns["correlation"] != MISSING) & (owner >= 0)
            lying = on_gpu[columns["track"]]
            calls.append(np.stack([columns["correlation"][called], columns["start_ns"][called], owner[called]]))
            work.append(np.stack([columns["correlation"][lying], columns["start_ns"][lying],
                                  columns["track"][lying].astype(np.int64)]))
            rows += int(np.count_nonzero(called | lying))
            if rows > MOST_ROWS:
                return None
        both = [np.concatenate(parts, axis=1) if parts else np.empty((3, 0), np.int64) for parts in (calls, work)]
        ordered = both[0][:, np.lexsort((both[0][1], both[0][0]))]
        return cls(*ordered, *both[1])

    def do_repeat(self) -> bool:
        """Tell whether launch calls of several processes share an id that GPU work has."""
        same = (self.call_id[1:] == self.call_id[:-1]) & (self.call_owner[1:] != self.call_owner[:-1])
        return bool(np.isin(np.unique(self.call_id[1:][same]), self.work_id).any())

    def owners_of_work(self, tracks: Sequence[Track]) -> Ints:
        """Return the process of everything on GPU lanes, NOBODY where nothing says."""
        owner, is_certain = self._by_call()
        pids = list(dict.fromkeys(tracks[track].pid for track in np.unique(self.work_track).tolist()))
        if len(pids) >= np.unique(self.call_owner).size:
            number_of = {pid: index for index, pid in enumerate(pids)}
            number = np.array([number_of.get(track.pid, 0) for track in tracks], np.int64)
            whole = self._by_lane(owner, is_certain, number[self.work_track])
            if whole is not None:
                return whole
        return self._filled(owner)

    def _by_call(self) -> tuple[Ints, Bools]:
        """Return the process whose call launched each piece of work, NOBODY where none did, and where only one can have."""
        low, high = (np.searchsorted(self.call_id, self.work_id, side=side) for side in ("left", "right"))
        has_call = (high > low) & (self.work_id != MISSING)
        order = np.lexsort((self.work_start_ns, self.work_id))
        ids = self.work_id[order]
        first = np.searchsorted(ids, ids, side="left")
        nth, pieces = np.empty(order.size, np.int64), np.empty(order.size, np.int64)
        nth[order] = np.arange(order.size) - first
        pieces[order] = np.searchsorted(ids, ids, side="right") - first
        index = np.where(pieces == high - low, low + nth, last_before(self.call_start_ns, self.work_start_ns, low, high))
        index = np.minimum(index, max(self.call_id.size - 1, 0))
        changes = np.concatenate(([0], np.cumsum(self.call_owner[1:] != self.call_owner[:-1])))
        is_certain = has_call & (changes[np.maximum(high - 1, 0)] == changes[np.minimum(low, changes.size - 1)])
        return np.where(has_call, self.call_owner[index], NOBODY), is_certain

    def _by_lane(self, owner: Ints, is_certain: Bools, lane: Ints) -> Ints | None:
        """Return the process of all work, lane by lane; None where a lane's work is of several, or all lanes' of one.

        Lanes with work that only one process can have launched come first; the others are of the processes that are left.
        """
        order = stable_order(lane)
        numbers, first = np.unique(lane[order], return_index=True)
        lanes = dict(zip(numbers.tolist(), np.split(order, first[1:]), strict=True))
        certain = {number: owner[rows[is_certain[rows]]] for number, rows in lanes.items()}
        chosen: dict[int, int] = {}
        owners, taken_owners = np.unique(self.call_owner).tolist(), set[int]()
        for number in sorted(lanes, key=lambda each: not certain[each].size):
            rows = lanes[number]
            votes = certain[number]
            if not votes.size:
                left = [candidate for candidate in owners if candidate not in taken_owners]
                votes = owner[rows][owner[rows] >= 0]
                if len(left) == 1 and votes.size:
                    votes = np.where(np.isin(self.work_id[rows][owner[rows] >= 0], self.call_id[self.call_owner == left[0]]),
                                     left[0], votes)
            if votes.size:
                counts = np.bincount(votes)
                if counts.max() < LANE_SHARE * votes.size:
                    return None
                chosen[number] = int(counts.argmax())
                taken_owners.add(chosen[number])
        out = np.full(owner.size, NOBODY, np.int64)
        for number, whose in chosen.items():
            out[lanes[number]] = whose
        return out if len(set(chosen.values())) > 1 else None

    def _filled(self, owner: Ints) -> Ints:
        """Ranges and what no call launched belong to whom the next work of their lane does, the last ones to the one before."""
        out = owner.copy()
        order = np.lexsort((np.arange(owner.size), self.work_start_ns, self.work_track))
        track, mine = self.work_track[order], owner[order]
        for step in (1, -1):                                    # from behind, then from the front
            rows, lane = mine[::-step].copy(), track[::-step]
            last = np.maximum.accumulate(np.where(rows >= 0, np.arange(rows.size), -1))
            same = (last >= 0) & (lane[np.maximum(last, 0)] == lane)
            rows[same] = rows[last[same]]
            mine = rows[::-step]
        out[order] = mine
        return out


def last_before(times: Ints, moments: Ints, low: Ints, high: Ints) -> Ints:
    """Return, for each moment, the place of the last of `times[low:high]` (ascending) that is not after it, else `low`."""
    first, last = low.astype(np.int64), np.maximum(high, low + 1).astype(np.int64)
    while (open_ := last - first > 1).any():
        middle = np.where(open_, (first + last) // 2, first)
        is_before = times[np.minimum(middle, max(times.size - 1, 0))] <= moments
        first, last = np.where(open_ & is_before, middle, first), np.where(open_ & ~is_before, middle, last)
    return first
