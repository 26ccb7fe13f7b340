"""A stretch of time cut into pieces that touch and do not overlap, each with a label: sums of any window are exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import Intervals
from profiles.ingest.arrays import Ints, Rows, stable_order
from profiles.ingest.trace import Category
from profiles.ingest.windows import MISSING32


@dataclass(frozen=True)
class Tiling:
    """Pieces in order of time. `label` numbers them; what no piece covers has no label."""

    labels: Sequence[str]
    start_ns: Ints
    end_ns: Ints
    label: Ints

    @cached_property
    def _before(self) -> Ints:
        """Of every label the ns before each piece: (labels, pieces + 1)."""
        out = np.zeros((len(self.labels), self.start_ns.size + 1), np.int64)
        out[self.label, np.arange(1, self.start_ns.size + 1)] = self.end_ns - self.start_ns
        return np.cumsum(out, axis=1)

    def _before_some(self, began: Ints) -> Ints:
        """The same for a few numbers of pieces: (labels, numbers)."""
        cuts, indexes = np.unique(began, return_inverse=True)
        span = np.searchsorted(cuts, np.arange(self.start_ns.size), side="right")        # the first cut after each piece
        sums = np.bincount(self.label * (cuts.size + 1) + span, self.end_ns - self.start_ns, len(self.labels) * (cuts.size + 1))
        out: Ints = np.cumsum(sums.reshape(len(self.labels), -1), axis=1)[:, :-1][:, indexes].astype(np.int64)
        return out

    def within(self, start_ns: Ints, end_ns: Ints) -> Ints:
        """Return the ns of every label within each window: (labels, windows)."""
        out = np.zeros((len(self.labels), start_ns.size), np.int64)
        if not self.start_ns.size:
            return out
        first, last = (np.searchsorted(self.start_ns, time, side="right") for time in (start_ns, end_ns))
        touched = np.flatnonzero((first != last) | ((first > 0) & (start_ns < self.end_ns[np.maximum(first - 1, 0)])))
        out[:, touched] = (self._until(end_ns[touched], last[touched]) - self._until(start_ns[touched], first[touched]))
        return out

    def _until(self, time_ns: Ints, began: Ints) -> Ints:
        """Of every label the ns before each time, given how many pieces have begun by then."""
        out: Ints = self._before[:, began] if 4 * began.size > self.start_ns.size else self._before_some(began)
        last = np.maximum(began - 1, 0)
        unused = np.where(began > 0, np.maximum(self.end_ns[last] - time_ns, 0), 0)     # of the piece that a time lies in
        out[self.label[last], np.arange(time_ns.size)] -= unused
        return out

    def sums(self) -> dict[str, int]:
        """ns of every label."""
        total = np.zeros(len(self.labels), np.int64)
        np.add.at(total, self.label, self.end_ns - self.start_ns)
        return dict(zip(self.labels, total.tolist(), strict=True))

    def of(self, *names: str) -> Intervals:
        """The pieces of some labels, touching ones joined."""
        mine = np.isin(self.label, [self.labels.index(name) for name in names])
        return intervals.union(self.start_ns[mine], self.end_ns[mine])

    def across(self, other: Tiling) -> Ints:
        """Return the ns that each label of this shares with each of the other.

        (labels of this, labels of the other).
        """
        out = np.zeros((len(self.labels), len(other.labels)), np.int64)
        if not self.start_ns.size or not other.start_ns.size:
            return out
        cuts = np.sort(np.concatenate((self.start_ns, self.end_ns, other.start_ns, other.end_ns)))
        cuts = cuts[np.r_[True, cuts[1:] > cuts[:-1]]]
        length, middle = np.diff(cuts), cuts[:-1]
        mine, theirs = self.at(middle), other.at(middle)
        both = (mine >= 0) & (theirs >= 0)
        np.add.at(out, (mine[both], theirs[both]), length[both])
        return out

    def at(self, time_ns: Ints) -> Ints:
        """The label at each time, -1 where there is none."""
        piece = np.searchsorted(self.start_ns, time_ns, side="right") - 1
        last = np.maximum(piece, 0)
        inside = (piece >= 0) & (time_ns < self.end_ns[last]) if self.start_ns.size else np.zeros(time_ns.size, np.bool_)
        return np.where(inside, self.label[last] if self.start_ns.size else -1, -1)


def tiling(pieces: Mapping[str, Intervals]) -> Tiling:
    """Return the tiling of disjoint sets of intervals."""
    start = np.concatenate([piece.start_ns for piece in pieces.values()])
    end = np.concatenate([piece.end_ns for piece in pieces.values()])
    label = np.repeat(np.arange(len(pieces)), [piece.start_ns.size for piece in pieces.values()])
    keep = np.flatnonzero(end > start)
    order = keep[stable_order(start[keep])]
    return Tiling(tuple(pieces), start[order], end[order], label[order])


def in_turn(sets: Mapping[str, Intervals]) -> dict[str, Intervals]:
    """Each set less those before it: disjoint, together they cover what all cover."""
    cover, out = intervals.EMPTY, {}
    for name, piece in sets.items():
        out[name] = intervals.without(piece, cover)
        cover = intervals.join(cover, piece)
    return out


# The work of each GPU as sets of intervals, and how they split wall time.
#
# The order is Holistic Trace Analysis' (*temporal breakdown*) carried on to communication and copies: at each instant a
# GPU computes if a computing kernel runs, else communicates if a collective runs, else moves memory if a copy or set runs,
# else is idle. So the four parts add up to wall time exactly, and what runs behind a part before it is *overlapped*.

MAX_DEVICES = 64                # of a trace, by index; a node has 8 or 16


@dataclass(frozen=True)
class DeviceWork:
    """One GPU. `rows` are its work in order of start; `exposed[part]` are disjoint and add up to `busy`."""

    index: int
    label: str                          # "GPU 0", of merged ranks "rank 1 · GPU 0 of its host"
    name: str                           # "NVIDIA H200"
    rank: str                           # "rank 1" of a job of several, else ""
    rows: Rows
    busy: Intervals
    exposed: dict[str, Intervals]       # compute, communication, memory
    whole: dict[str, Intervals]         # the same with what is hidden behind another

    def overlapped_ns(self, part: str) -> int:
        return self.whole[part].length_ns - self.exposed[part].length_ns

    @property
    def span(self) -> tuple[int, int]:
        """First start and last end of its work."""
        return (int(self.busy.start_ns[0]), int(self.busy.end_ns[-1])) if self.busy.start_ns.size else (0, 0)


PARTS = {"compute": (Category.COMPUTE,), "communication": (Category.COMMUNICATION,),
         "memory": (Category.MEMCPY, Category.MEMSET)}


def gpu_numbers(frame: Frame) -> Ints:
    """The GPU of each piece of work; that of no known GPU is GPU -1's."""
    return np.where(frame["device"][frame.work] == MISSING32, -1, frame["device"][frame.work]).astype(np.int64)


def devices(frame: Frame) -> list[DeviceWork]:
    """Every GPU that worked, by index, the first MAX_DEVICES."""
    work = []
    device = gpu_numbers(frame)
    names = {gpu.index: gpu.name for gpu in frame.devices}
    for index in np.unique(device).tolist()[:MAX_DEVICES]:
        rows = frame.work[device == index]
        whole = {}
        for part, kinds in PARTS.items():
            mine = rows[np.isin(frame["category"][rows], [int(kind) for kind in kinds])]
            whole[part] = intervals.union(frame["start_ns"][mine], frame.end_ns[mine])
        work.append(DeviceWork(index, frame.device_label(index), names.get(index, ""), rank_of(frame, rows), rows,
                                intervals.join(*whole.values()), in_turn(whole), whole))
    return work


def rank_of(frame: Frame, rows: Rows) -> str:
    """The rank that most of some rows belong to."""
    if not any(frame.rank_of_track) or not rows.size:
        return ""
    tracks, count = np.unique(frame["track"][rows], return_counts=True)
    return frame.rank_of_track[int(tracks[np.argmax(count)])]
