"""The framework operator of GPU work in a stored trace: the innermost around its launch call, as `analysis.core.frame` has it.

Where no call is known, the one whose External id it has: traces without launch calls, and versions of PyTorch that write no ids.
"""

from __future__ import annotations

import numpy as np

from profiles.ingest.arrays import Array, Ints, stable_order
from profiles.ingest.trace import GPU_WORK, Category
from profiles.store.related import givers, match
from profiles.store.timeline import Timeline

Rows = dict[str, Array]
WINDOW_ROWS = 400_000           # slices that begin in a window in which operators around calls are looked for
_PLACE = ("track", "depth", "start_ns", "dur_ns")
_WORK = [int(kind) for kind in GPU_WORK]


def operators_of_work(timeline: Timeline, correlation: Ints, external: Ints) -> Ints:
    """Return the row of each piece of GPU work's operator, -1 where it has none."""
    ids, calls = givers(timeline, "correlation", correlation, (Category.RUNTIME,))
    call = match(correlation, ids, calls)
    by_call = operators_around(timeline, np.unique(call[call >= 0]))
    out = match(call, *by_call)
    lost = np.flatnonzero(call < 0)
    if lost.size:
        out[lost] = match(external[lost], *givers(timeline, "external_id", external[lost], (Category.CPU_OP,)))
    return out


def operator_names(timeline: Timeline, rows: Rows) -> Ints:
    """Return, for slices of any kind, the name id of the operator that they belong to, else -1.

    `rows` has correlation, external_id and category.
    """
    correlation, external = rows["correlation"].astype(np.int64), rows["external_id"].astype(np.int64)
    out = np.full(external.size, -1, np.int64)
    is_work = np.isin(rows["category"], _WORK)
    out[is_work] = operators_of_work(timeline, correlation[is_work], external[is_work])
    out[~is_work] = match(external[~is_work], *givers(timeline, "external_id", external[~is_work], (Category.CPU_OP,)))
    known = out >= 0
    if known.any():
        operators, place = np.unique(out[known], return_inverse=True)
        out[known] = timeline.slices.take(operators, ("name_id",))["name_id"].astype(np.int64)[place]
    return out


def operators_around(timeline: Timeline, calls: Ints) -> tuple[Ints, Ints]:
    """Return `calls` (rows, ascending) and the innermost operator around each, -1 where there is none."""
    out = np.full(calls.size, -1, np.int64)
    if not calls.size:
        return calls, out
    place = {name: values.astype(np.int64) for name, values in timeline.slices.take(calls, _PLACE).items() if name in _PLACE}
    mask = np.zeros(len(timeline.tracks), np.bool_)
    mask[np.unique(place["track"])] = True
    for start, end in timeline.cuts(int(place["start_ns"].min()), int(place["start_ns"].max()) + 1, WINDOW_ROWS):
        mine = np.flatnonzero((place["start_ns"] >= start) & (place["start_ns"] < end))
        if not mine.size:
            continue
        around = timeline.window(start, end, 0, mask, (*_PLACE, "category", "instant"))
        is_operator = (around["category"] == Category.CPU_OP) & ~around["instant"]
        out[mine] = _innermost({name: values[is_operator] for name, values in around.items()},
                               {name: values[mine] for name, values in place.items()})
    return calls, out


def _innermost(operators: Rows, calls: Rows) -> Ints:
    """Return the row of the deepest of `operators` around each of `calls`, -1 where there is none."""
    out = np.full(calls["start_ns"].size, -1, np.int64)
    times = np.unique(np.concatenate((operators["start_ns"], calls["start_ns"])))       # ranks: track and time fit one number
    begin, asked = (np.searchsorted(times, rows["start_ns"]) + rows["track"].astype(np.int64) * (times.size + 1)
                    for rows in (operators, calls))
    end, needed = (rows["start_ns"] + rows["dur_ns"] for rows in (operators, calls))
    for depth in np.unique(operators["depth"])[::-1].tolist():
        lane = np.flatnonzero(operators["depth"] == depth)
        lane = lane[stable_order(begin[lane])]
        left = np.flatnonzero((out < 0) & (calls["depth"] > depth))
        if not left.size:
            continue
        at = np.searchsorted(begin[lane], asked[left], side="right") - 1
        candidate = lane[np.maximum(at, 0)]
        inside = (at >= 0) & (operators["track"][candidate] == calls["track"][left]) & (end[candidate] >= needed[left])
        out[left[inside]] = operators["slice"][candidate[inside]]
    return out
