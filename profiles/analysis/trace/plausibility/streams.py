"""Kernels of one stream that cannot be: inside another kernel of the stream, or there twice."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.digest import Digest
from profiles.ingest.trace import KERNELS, Doubt, Trace

MOST_NAMES = 50                         # kernels that a doubt lists
_TOLERANCE_NS = 1_000                   # times of older files are rounded to microseconds
_MOST_PROGRAMMATIC = 2                  # kernels that may run within another one by programmatic launch

Array = npt.NDArray[np.int64]
_SAME = ("start_ns", "dur_ns", "name", "correlation")


def find_kernels_inside_kernel(digest: Digest, trace: Trace) -> Doubt | None:
    """Find kernels that run whole within an earlier kernel of their own stream: its duration cannot be.

    Not counted: exact duplicates, branches of a graph (they may share a stream's number), and up to two kernels of calls that can
    ask for programmatic launch (`LaunchKernelEx`).
    """
    rows = _kernels(digest)
    rows = rows[~_repeated(digest, rows)]
    by_start = np.lexsort((-digest.work["dur_ns"][rows], digest.work["start_ns"][rows], digest.work["track"][rows]))
    rows = rows[by_start]
    track, start = digest.work["track"][rows].astype(np.int64), digest.work["start_ns"][rows]
    end = start + digest.work["dur_ns"][rows]
    cover = _covering(track, start, end)
    inside = (cover >= 0) & (end <= end[cover]) & (start < end[cover] - _TOLERANCE_NS)
    for pattern, most in (("GraphLaunch", None), ("LaunchKernelEx", _MOST_PROGRAMMATIC)):
        fits = inside & _called(digest, rows, pattern)
        many = np.bincount(cover[inside], minlength=rows.size) > (most if most is not None else rows.size)
        inside &= ~fits | many[cover]
    if not inside.any():
        return None
    covers = np.unique(cover[inside])
    dur = digest.work["dur_ns"][rows]
    return Doubt("kernel_inside_kernel", int(np.count_nonzero(inside)), int(rows.size), int(start[covers].min()),
                 int(start[inside].max()), ns=int(dur[covers].sum()), of_ns=int(dur.sum()),
                 names=_names(digest, rows[covers]), by=int(covers.size))


def find_duplicates(digest: Digest, trace: Trace) -> Doubt | None:
    """Find GPU work that is in the file twice: same stream, start, duration, name and correlation id."""
    rows = np.flatnonzero((digest.work["dur_ns"] > 0) & ~digest.work["instant"])
    again = rows[_repeated(digest, rows)]
    if not again.size:
        return None
    start, dur = digest.work["start_ns"], digest.work["dur_ns"]
    return Doubt("duplicates", int(again.size), int(rows.size), int(start[again].min()), int(start[again].max()),
                 ns=int(dur[again].sum()), of_ns=int(dur[rows].sum()),
                 names=_names(digest, again[np.isin(digest.work["category"][again], [int(kind) for kind in KERNELS])]))


def _kernels(digest: Digest) -> Array:
    work = digest.work
    return np.flatnonzero(np.isin(work["category"], [int(kind) for kind in KERNELS]) & ~work["instant"] & (work["dur_ns"] > 0))


def _repeated(digest: Digest, rows: Array) -> npt.NDArray[np.bool_]:
    """For each of `rows`, which are in order of start, whether the very same is there before it."""
    out = np.zeros(rows.size, np.bool_)
    start = digest.work["start_ns"][rows]
    tied = np.concatenate((start[1:] == start[:-1], [False])) if rows.size else out
    tied[1:] |= tied[:-1].copy()
    at = np.flatnonzero(tied)
    if at.size:
        columns = [digest.work[name][rows[at]].astype(np.int64) for name in ("track", *_SAME)]
        order = np.lexsort(columns)
        same = np.ones(at.size - 1, np.bool_)
        for column in columns:
            same &= column[order][1:] == column[order][:-1]
        out[at[order[1:][same]]] = True
    return out


def _covering(track: Array, start: Array, end: Array) -> Array:
    """Of kernels by stream and start: the earlier one of the stream that ends last, -1 where there is none."""
    out = np.full(track.size, -1, np.int64)
    if not track.size:
        return out
    first = np.flatnonzero(np.concatenate(([True], track[1:] != track[:-1])))
    for low, high in zip(first.tolist(), [*first[1:].tolist(), track.size], strict=True):
        reach = np.maximum.accumulate(end[low:high])
        leads = np.concatenate(([True], end[low + 1:high] > reach[:-1]))
        longest = np.maximum.accumulate(np.where(leads, np.arange(low, high), low))
        out[low + 1:high] = longest[:-1]
    return out


def _called(digest: Digest, rows: Array, part: str) -> npt.NDArray[np.bool_]:
    """For each of `rows` whether the name of its launch call contains `part`."""
    code = digest.call_name[rows]
    used, place = np.unique(code, return_inverse=True)
    fits = np.array([name >= 0 and part in digest.names[name] for name in used.tolist()] or [False], np.bool_)
    return fits[place] if rows.size else np.empty(0, np.bool_)


def _names(digest: Digest, rows: Array) -> list[str]:
    """Return the names of kernels, the most time first."""
    used, place = np.unique(digest.work["name"][rows], return_inverse=True)
    time = np.bincount(place, weights=digest.work["dur_ns"][rows], minlength=used.size)
    return [digest.names[used[at]] for at in np.argsort(-time, kind="stable")[:MOST_NAMES].tolist() if used[at] >= 0]
