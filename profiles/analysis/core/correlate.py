"""Who launched what: runtime call ↔ GPU work by correlation id."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.columns import numbers
from profiles.ingest.trace import GPU_WORK, Category, Trace

Int64 = npt.NDArray[np.int64]
NONE = -1
_MISSING = -(2**63)


def match(wanted: Int64, ids: Int64) -> Int64:
    """Return, for each of `wanted`, the position of its last occurrence in `ids`, else -1. 0 is no id: CUPTI and rocprofiler
    count from 1, and write 0 where they know none."""
    if not ids.size:
        return np.full(wanted.size, NONE, np.int64)
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids[order], wanted, side="right") - 1
    rows = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (ids[rows] == wanted) & (wanted != _MISSING) & (wanted != 0), rows, NONE)


def launch_calls(trace: Trace) -> Int64:
    """Return, for each slice, the row of the runtime call that launched it.

    -1 for CPU slices and where no call is known.

    One call may own many: a graph launch owns every kernel of its graph.
    """
    category, correlation = numbers(trace.slices, "category"), numbers(trace.slices, "correlation", _MISSING)
    return _rows_by_id(np.isin(category, [int(kind) for kind in GPU_WORK]), category == Category.RUNTIME, correlation)


def _rows_by_id(wants: npt.NDArray[np.bool_], gives: npt.NDArray[np.bool_], ids: Int64) -> Int64:
    out = np.full(ids.size, NONE, np.int64)
    rows, givers = np.flatnonzero(wants), np.flatnonzero(gives)
    matched = match(ids[rows], ids[givers])
    out[rows[matched >= 0]] = givers[matched[matched >= 0]]
    return out


def launch_delay_ns(trace: Trace, calls: Int64) -> Int64:
    """Return the ns from the begin of the launch call to that of the GPU work, per slice.

    -1 for slices without a call.

    Negative delays are the file's clocks disagreeing (kineto #1380): they are 0 here.
    """
    start = numbers(trace.slices, "start_ns")
    known = calls >= 0
    return np.where(known, np.maximum(start - start[np.maximum(calls, 0)], 0), NONE)
