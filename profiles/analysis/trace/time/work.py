"""The work of each GPU as sets of intervals, and how they split wall time.

The order is Holistic Trace Analysis' (*temporal breakdown*) carried on to communication and copies: at each instant a
GPU computes if a computing kernel runs, else communicates if a collective runs, else moves memory if a copy or set runs,
else is idle. So the four parts add up to wall time exactly, and what runs behind a part before it is *overlapped*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame, Ints, Rows
from profiles.analysis.core.intervals import Intervals
from profiles.analysis.trace.time.tiling import in_turn
from profiles.ingest.trace import Category
from profiles.ingest.windows import MISSING32

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
    names = {each.index: each.name for each in frame.devices}
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
