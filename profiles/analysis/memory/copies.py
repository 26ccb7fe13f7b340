"""Copies and sets by kind: bytes, time, rate. Names as CUPTI and rocprof write them ("Memcpy HtoD (Pageable -> Device)")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis import intervals
from profiles.analysis.frame import Frame
from profiles.trace import Category
from profiles.windows import MISSING

MOST = 50


@dataclass(frozen=True)
class Copies:
    """All copies or sets of one name. `bytes` and rate are of those whose size is known."""

    name: str
    count: int
    total_ns: int
    bytes: int | None
    bytes_s: float | None
    covered_ns: int              # wall time in which at least one runs on some GPU
    longest: int                 # row

    @property
    def pageable(self) -> bool:
        return "pageable" in self.name.lower()


def copies_of(frame: Frame) -> list[Copies]:
    """By name, most time first."""
    rows = frame.of(Category.MEMCPY, Category.MEMSET)
    out = []
    name = frame["name"][rows]
    order = np.argsort(name, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(name[order])) + 1) if rows.size else ():
        mine = rows[part]
        size, dur = frame["bytes"][mine], frame["dur_ns"][mine]
        known = (size != MISSING) & (size >= 0)
        moved, spent = int(size[known].sum()), int(dur[known].sum())
        out.append(Copies(frame.text(int(mine[0])), int(mine.size), int(dur.sum()), moved if known.any() else None,
                          moved / spent * 1e9 if moved and spent else None,
                          intervals.union(frame["start_ns"][mine], frame.end_ns[mine]).length_ns, int(mine[np.argmax(dur)])))
    return sorted(out, key=lambda each: -each.total_ns)
