"""Which launches on different ranks are one and the same collective, and how long each rank waited in it for the others.

A collective's kernel runs on a rank from when the rank comes until the data is there, and the data is there only after the
last rank has come. So of one collective the shortest kernel is the transfer (it belongs to the rank that came last), and what
any other rank's kernel is longer than that is the time it waited, but no longer than until the last one came: where clocks
can be compared, what a kernel is longer without having come earlier is no waiting (an all-to-all of uneven parts). TraceLens
(nccl_analyser.py) takes the shortest kernel for the transfer as well, HTA's straggler analysis the latest start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.communication.collectives import Collectives
from profiles.ingest.arrays import Array, Ints, stable_order
from profiles.ingest.windows import MISSING

MAX_OFFSET = 512             # collectives by which one recording of a group may begin before the other
LOOKED_AT = 4096             # of a group on one rank, the first: enough to find the offset
AGREEMENT = 0.9              # of the best agreement of kind and size: offsets that are considered
SLACK_NS = 50_000            # two kernels of one collective overlap in time, clocks granted
LEAST_MEETINGS = 3           # before the first may be left out
MOST_GROUPS = 256            # process groups that are matched, those with the most launches
_PAIRED_ONLY = "send/recv"   # its partners are not stated: matched in groups of two only


@dataclass(frozen=True)
class Meetings:
    """`of[i]` is the number of the meeting that launch i of the `Collectives` took part in, -1: not matched. The other columns
    are per meeting, in order of the first launch."""

    of: Ints
    present: Ints                # ranks whose launch is known
    transfer_ns: Ints
    first_ns: Ints               # first and last start; last is of whoever came last by its own kernel's length
    last_ns: Ints
    late: Ints                   # launch of the rank that came last
    complete: Array              # every rank of the group is in the trace

    @property
    def skew_ns(self) -> Ints:
        return self.last_ns - self.first_ns


def meetings_of(collectives: Collectives, aligned: bool = True) -> Meetings:
    """Match launches of the same process group in their order.

    `aligned`: the participants' clocks can be compared.
    """
    of = np.full(collectives.rows.size, -1, np.int64)
    if not collectives.rows.size:
        return _measure_meetings(collectives, of, 0)
    names = {group: number for number, group in enumerate(dict.fromkeys(kind.group for kind in collectives.kinds))}
    group_of = np.array([names[kind.group] for kind in collectives.kinds], np.int64)[collectives.kind]
    order = stable_order(group_of)
    launches = np.split(order, np.flatnonzero(np.diff(group_of[order])) + 1)
    count = 0
    for mine in sorted(launches, key=lambda each: -each.size)[:MOST_GROUPS]:
        count = _match(collectives, mine, of, count, aligned)
    return _measure_meetings(collectives, of, count)


def _match(launches: Collectives, mine: Ints, of: Ints, count: int, aligned: bool) -> int:
    """Number the meetings of one group into `of`; returns the next free number."""
    # A member of the group on one GPU may use several streams; order of start is the order of the group's sequence.
    sequences = [mine[launches.participant[mine] == participant] for participant in np.unique(launches.participant[mine]).tolist()]
    if len(sequences) < 2:
        return count
    signature = _signatures(launches, mine)
    longest = max(range(len(sequences)), key=lambda i: sequences[i].size)
    first = sequences[longest]
    met = np.full(first.size, False)
    for number, other in enumerate(sequences):
        if number == longest:
            continue
        offset = _offset(launches, signature, first, other, aligned)
        if offset is None:
            continue
        a, b = max(offset, 0), max(-offset, 0)
        n = min(first.size - a, other.size - b)
        left, right = first[a:a + n], other[b:b + n]
        same = signature[left] == signature[right]
        if len(sequences) > 2:
            same &= ~np.array([kind.operation == _PAIRED_ONLY for kind in launches.kinds])[launches.kind[left]]
        if aligned:
            begin = np.maximum(launches.start_ns[left], launches.start_ns[right])
            same &= begin <= np.minimum(launches.end_ns[left], launches.end_ns[right]) + SLACK_NS
        of[right[same]] = count + a + np.flatnonzero(same)
        met[a:a + n] |= same
    of[first[met]] = count + np.flatnonzero(met)
    return count + int(first.size)


def _signatures(launches: Collectives, mine: Ints) -> Ints:
    """A number per launch: equal for the same operation, type and size. Indexed by launch."""
    operations = [(kind.operation, kind.dtype) for kind in launches.kinds]
    ids = {signature: number for number, signature in enumerate(dict.fromkeys(operations))}
    code = np.array([ids[signature] for signature in operations], np.int64)[launches.kind[mine]]
    # Of a broadcast or a scatter sizes may differ by rank; of all others they may not.
    loose = np.array([signature[0] in ("gather", "scatter", _PAIRED_ONLY, "other") for signature in ids], np.bool_)[code]
    size = np.where(loose, MISSING, launches.bytes[mine])
    _, number = np.unique(np.stack([code, size]), axis=1, return_inverse=True)
    out = np.full(launches.rows.size, -1, np.int64)
    out[mine] = number.reshape(-1)
    return out


def _offset(launches: Collectives, signature: Ints, first: Ints, other: Ints, aligned: bool) -> int | None:
    """By how many collectives `first` begins before `other`: of the offsets with the best agreement the one at which ends
    agree best (clocks aligned), else the one nearest to 0. None where nothing agrees."""
    mine, theirs = signature[first[:LOOKED_AT]], signature[other[:LOOKED_AT]]
    candidates: list[tuple[float, int]] = []
    for offset in sorted(range(-min(MAX_OFFSET, theirs.size), min(MAX_OFFSET, mine.size) + 1), key=abs):
        a, b = max(offset, 0), max(-offset, 0)
        n = min(mine.size - a, theirs.size - b)
        if n > 0 and n * 3 >= min(mine.size, theirs.size):
            candidates.append((float(np.mean(mine[a:a + n] == theirs[b:b + n])), offset))
    best = max((share for share, _ in candidates), default=0.0)
    fitting = [offset for share, offset in candidates if best > 0 and share >= AGREEMENT * best]
    if not fitting:
        return None
    if not aligned:
        return fitting[0]
    ends = [launches.end_ns[rows[:LOOKED_AT]] for rows in (first, other)]

    def apart(offset: int) -> float:
        a, b = max(offset, 0), max(-offset, 0)
        n = min(mine.size - a, theirs.size - b)
        return float(np.median(np.abs(ends[0][a:a + n] - ends[1][b:b + n])))

    return min(fitting, key=apart)


def _measure_meetings(collectives: Collectives, of: Ints, count: int) -> Meetings:
    launches = np.flatnonzero(of >= 0)
    order = launches[np.lexsort((collectives.start_ns[launches], of[launches]))]
    numbers, begin, present = np.unique(of[order], return_index=True, return_counts=True)
    place = np.full(max(count, 1), -1, np.int64)
    place[numbers] = np.arange(numbers.size)
    renumbered = np.where(of >= 0, place[np.maximum(of, 0)], -1)
    if not numbers.size:
        none = np.empty(0, np.int64)
        return Meetings(renumbered, none, none, none, none, none, np.empty(0, np.bool_))
    first = collectives.start_ns[order[begin]]
    by_length = launches[np.lexsort((-collectives.start_ns[launches], collectives.dur_ns[launches],
                                     of[launches]))]     # ties: the later start
    late = by_length[begin]
    ranks = np.array([kind.ranks or 0 for kind in collectives.kinds], np.int64)[collectives.kind[late]]
    everybody = np.where(ranks > 0, ranks, collectives.world or len(collectives.labels))
    by_time = stable_order(first)
    back = np.empty(by_time.size, np.int64)
    back[by_time] = np.arange(by_time.size)
    return Meetings(np.where(renumbered >= 0, back[np.maximum(renumbered, 0)], -1), present[by_time],
                    collectives.dur_ns[late][by_time],
                    first[by_time], collectives.start_ns[late][by_time], late[by_time], (present >= everybody)[by_time])


def without_start(frame: Frame, launches: Collectives, met: Meetings, wait_ns: Ints, aligned: bool) -> tuple[Meetings, Ints]:
    """Leave out the first meeting where its waits exceed those of all others together, and were for a recording to begin.

    That says when the ranks' recordings began, not who is slow; where the last rank's had begun before the first one came, it was
    late all the same. Also returned: how long each launch waited there.
    """
    waits = np.bincount(met.of[met.of >= 0], weights=wait_ns[met.of >= 0], minlength=met.present.size)
    if waits.size < LEAST_MEETINGS or waits[0] <= waits[1:].sum() or (aligned and _had_begun(frame, launches, met)):
        return met, np.zeros(launches.rows.size, np.int64)
    return Meetings(np.where(met.of >= 0, met.of - 1, -1), *(column[1:] for column in (
        met.present, met.transfer_ns, met.first_ns, met.last_ns, met.late, met.complete))), \
        np.where(met.of == 0, wait_ns, 0)


def _had_begun(frame: Frame, launches: Collectives, met: Meetings) -> bool:
    """Whether the rank that came last to the first meeting was recorded already when the first one came; of several ranks alone."""
    track = int(frame["track"][launches.rows[met.late[0]]])
    mine = np.array([rank == frame.rank_of_track[track] for rank in frame.rank_of_track], np.bool_)
    if mine.all():
        return False
    rows = np.flatnonzero(mine[frame["track"]] & ~frame["instant"])
    return int(frame["start_ns"][rows].min()) <= int(met.first_ns[0])


def wait_ns_of(launches: Collectives, met: Meetings, slack_ns: float | None) -> Ints:
    """Return how long each launch's rank waited for the last one, 0 where it met nobody.

    `slack_ns`: by how much the clocks may differ, None where they cannot be compared.
    """
    out = np.zeros(launches.rows.size, np.int64)
    members = np.flatnonzero(met.of >= 0)
    out[members] = launches.dur_ns[members] - met.transfer_ns[met.of[members]]
    if slack_ns is not None and members.size:
        came = np.zeros(met.present.size, np.int64)
        np.maximum.at(came, met.of[members], launches.start_ns[members])
        out[members] = np.minimum(out[members], came[met.of[members]] - launches.start_ns[members] + round(slack_ns))
    return np.maximum(out, 0)
