"""One launch that stands for all of a kernel: which of them to capture counters of, and which problem to tune."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis.core.frame import Frame, Ints
from profiles.ingest.trace import Category

COLD = 1            # launches left aside where there are more: the first one loads code and warms caches


@dataclass(frozen=True)
class Launch:
    """`skip` launches whose name `matches` came before it on its process, as ncu counts them (`--launch-skip`)."""

    row: int                        # of the frame
    skip: int
    matching: int                   # launches that match, on that process
    launches: int                   # of the kernel itself, in the whole trace


def launch_rows(frame: Frame, kernel: str) -> Ints:
    """Return the rows of the launches of a kernel by its full name, in order of start."""
    codes = [code for code, name in enumerate(frame.names) if name == kernel]
    return frame.kernels[np.isin(frame["name"][frame.kernels], codes)]


def representative_launch(frame: Frame, kernel: str, matches: set[int]) -> Launch | None:
    """Return the launch of the median duration, the first one aside.

    `matches`: names (numbers) that ncu's expression finds.

    Launches count in the order in which the host made them where the trace says so, else in the order in which they began.
    """
    rows = launch_rows(frame, kernel)
    if not rows.size:
        return None
    warm = rows[COLD:] if rows.size > COLD else rows
    order = np.argsort(frame["dur_ns"][warm], kind="stable")
    chosen = int(warm[order[(warm.size - 1) // 2]])
    where = np.array([track.device if track.device is not None else -1 for track in frame.tracks], np.int64)
    same_process = where[frame["track"][frame.kernels]] == where[frame["track"][chosen]]
    others = frame.kernels[same_process & np.isin(frame["name"][frame.kernels], list(matches))]
    made = _launch_times_ns(frame, others)
    at = int(np.flatnonzero(others == chosen)[0])
    earlier = (made < made[at]) | ((made == made[at]) & (others < chosen))
    return Launch(chosen, int(np.count_nonzero(earlier)), int(others.size), int(rows.size))


def _launch_times_ns(frame: Frame, rows: Ints) -> Ints:
    """When the host launched each, or when it began."""
    call = frame.call[rows]
    if (call < 0).any():
        return frame["start_ns"][rows]
    return frame["start_ns"][call]


def operators_around(frame: Frame, kernel: str) -> tuple[list[tuple[str, dict[str, Any]]], int, int]:
    """Return the operators around the launches that own most of the kernel's time.

    (operators innermost first: name and arguments; their launches; their time in ns).
    """
    rows = launch_rows(frame, kernel)
    owner = frame.operator[rows] if rows.size else np.empty(0, np.int64)
    known = owner >= 0
    if not known.any():
        return [], 0, 0
    rows, owner = rows[known], owner[known]
    keys = np.stack([frame["name"][owner], frame["detail"][owner]], 1)
    groups, index = np.unique(keys, axis=0, return_inverse=True)
    index = index.reshape(-1)
    total = np.zeros(len(groups), np.int64)
    np.add.at(total, index, frame["dur_ns"][rows])
    best = int(np.argmax(total))
    first = int(owner[np.flatnonzero(index == best)[0]])
    around = [row for row in frame.path(first) if frame["category"][row] == Category.CPU_OP]
    return ([(frame.text(row), frame.arguments(row)) for row in around], int(np.count_nonzero(index == best)), int(total[best]))
