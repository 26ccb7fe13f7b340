"""Idle time that something earlier on the host is to blame for.

A wait for the GPU leaves nothing queued: had the host not waited, it would have launched for as long as it waited, so of the idle
time that nothing else explains until the next wait the first part, as long as the wait was, is its. A stall (data is loaded, code
compiled) may pass while the GPU works off what is queued. That costs nothing yet, but the host is that much later from then on:
idle time that nothing else explains belongs to the stalls since the last wait, the earliest first, as long as they were hidden.
At the next wait the host catches up: it would have waited for the GPU all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Ints
from profiles.analysis.core.intervals import EMPTY, Intervals


def delayed(generic: Intervals, waits: Mapping[str, Intervals], stalls: Mapping[str, Intervals],
            idle: Mapping[str, Intervals]) -> dict[str, Intervals]:
    """Return, by cause, what of `generic` idle time a wait or a stall of the same thread is to blame for; disjoint.

    `waits` and `stalls`: when the thread was in each, by cause. `idle`: idle time that each has already, because it lies in it.
    """
    if not generic.start_ns.size:
        return {}
    causes = [*waits, *stalls]
    sets = [*waits.values(), *stalls.values()]
    ends = np.concatenate([each.end_ns for each in sets])
    hidden = [each.end_ns - each.start_ns for each in waits.values()] + [
        each.end_ns - each.start_ns - intervals.overlap_ns(idle.get(cause, EMPTY), each.start_ns, each.end_ns)
        for cause, each in stalls.items()]
    order = np.argsort(ends, kind="stable")
    kind = np.repeat(np.arange(len(sets)), [each.start_ns.size for each in sets])[order]
    until = intervals.covered_before(generic, np.append(ends[order], generic.end_ns[-1]))       # of generic time
    taken = _taken(until.tolist(), kind.tolist(), np.concatenate(hidden)[order].tolist(), len(waits))
    return {causes[number]: stretches(generic, *(np.array(each, np.int64) for each in zip(*mine, strict=True)))
            for number, mine in taken.items()}


def _taken(until: list[int], kind: list[int], hidden: list[int], waits: int) -> dict[int, list[tuple[int, int]]]:
    """By kind the parts of generic time [from, to) that it is to blame for. `until`: generic time before the end of each, and in
    all. Kinds below `waits` are waits."""
    owed: deque[list[int]] = deque()        # [kind, ns left], the earliest first
    out: dict[int, list[tuple[int, int]]] = {}
    for number, each in enumerate(kind):
        if each < waits:
            owed.clear()
        if hidden[number] > 0:
            owed.append([each, hidden[number]])
        at, end = until[number], until[number + 1]
        while owed and at < end:
            ns = min(owed[0][1], end - at)
            out.setdefault(owed[0][0], []).append((at, at + ns))
            at += ns
            owed[0][1] -= ns
            if not owed[0][1]:
                owed.popleft()
    return out


def stretches(pieces: Intervals, first: Ints, last: Ints) -> Intervals:
    """Return the parts [first, last) of the time that `pieces` cover, counted from their begin; ascending, disjoint."""
    ends = np.cumsum(pieces.end_ns - pieces.start_ns)
    starts = ends - (pieces.end_ns - pieces.start_ns)
    a, b = np.searchsorted(ends, first, side="right"), np.searchsorted(starts, last)
    count = np.maximum(b - a, 0)
    part = np.repeat(np.arange(first.size), count)
    piece = a[part] + np.arange(part.size) - np.repeat(np.cumsum(count) - count, count)
    begin, end = np.maximum(first[part], starts[piece]), np.minimum(last[part], ends[piece])
    shift = pieces.start_ns[piece] - starts[piece]
    return intervals.union(begin + shift, end + shift)
