"""Copies and sets by kind: bytes, time, rate. Names as CUPTI and rocprof write them ("Memcpy HtoD (Pageable -> Device)")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame, Rows
from profiles.ingest.trace import Category
from profiles.ingest.windows import MISSING

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


def copies_of(frame: Frame) -> list[Copies]:
    """Return copies and sets by name, most time first, the rest together."""
    rows = frame.of(Category.MEMCPY, Category.MEMSET)
    if not rows.size:
        return []
    codes, kind = np.unique(frame["name"][rows], return_inverse=True)
    order = np.argsort(kind, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(kind[order])) + 1)
    by_time = np.argsort(-np.bincount(kind, weights=frame["dur_ns"][rows]), kind="stable")
    out = [_copies(frame, frame.names[codes[each]], rows[parts[each]]) for each in by_time[:MOST].tolist()]
    if by_time.size > MOST:
        rest = np.concatenate([rows[parts[each]] for each in by_time[MOST:].tolist()])
        out.append(_copies(frame, f"{by_time.size - MOST:,} further kinds", rest))
    return out


def _copies(frame: Frame, name: str, mine: Rows) -> Copies:
    size, dur = frame["bytes"][mine], frame["dur_ns"][mine]
    known = (size != MISSING) & (size >= 0)
    moved, spent = int(size[known].sum()), int(dur[known].sum())
    rate = moved / spent * 1e9 if moved and spent else None
    return Copies(name, int(mine.size), int(dur.sum()), moved if known.any() else None, rate,
                  intervals.union(frame["start_ns"][mine], frame.end_ns[mine]).length_ns, int(mine[np.argmax(dur)]))
