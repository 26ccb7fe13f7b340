"""Who launched what, found by ids in the stored columns: only row groups whose statistics admit an id are decoded.

The framework operator of GPU work in a stored trace: the innermost around its launch call, as `analysis.core.frame` has it.

Where no call is known, the one whose External id it has: traces without launch calls, and versions of PyTorch that write no ids.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiles.ingest.arrays import Array, Ints, stable_order
from profiles.ingest.trace import GPU_WORK, Category
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
    has_operator = out >= 0
    if has_operator.any():
        operators, place = np.unique(out[has_operator], return_inverse=True)
        out[has_operator] = timeline.slices.take(operators, ("name_id",))["name_id"].astype(np.int64)[place]
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
    begin, keys = (np.searchsorted(times, rows["start_ns"]) + rows["track"].astype(np.int64) * (times.size + 1)
                   for rows in (operators, calls))
    end, needed = (rows["start_ns"] + rows["dur_ns"] for rows in (operators, calls))
    for depth in np.unique(operators["depth"])[::-1].tolist():
        lane = np.flatnonzero(operators["depth"] == depth)
        lane = lane[stable_order(begin[lane])]
        left = np.flatnonzero((out < 0) & (calls["depth"] > depth))
        if not left.size:
            continue
        index = np.searchsorted(begin[lane], keys[left], side="right") - 1
        candidate = lane[np.maximum(index, 0)]
        inside = (index >= 0) & (operators["track"][candidate] == calls["track"][left]) & (end[candidate] >= needed[left])
        out[left[inside]] = operators["slice"][candidate[inside]]
    return out


NULL = -(2**63)
_GROUPS = 32                    # row groups decoded at a time


def givers(timeline: Timeline, column: str, wanted: Ints, kinds: Iterable[Category], every: bool = False) -> tuple[Ints, Ints]:
    """Return slices of some categories that carry one of the ids, or all of them; 0 is no id.

    (ids ascending, row of each id's last slice).
    """
    ids = np.unique(wanted[(wanted != NULL) & (wanted != 0)])
    kinds_of = [int(kind) for kind in kinds]
    carried, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    arguments = timeline.arguments
    groups = arguments.groups_between(column, int(ids[0]), int(ids[-1])) if ids.size else []
    for first_group in range(0, len(groups), _GROUPS):
        for first, last in _runs(groups[first_group:first_group + _GROUPS]):
            lo, hi = int(arguments.bounds[first]), int(arguments.bounds[last + 1])
            values = arguments.read_uncached(lo, hi, (column,))[column]
            near = np.flatnonzero((values >= ids[0]) & (values <= ids[-1]))
            if not near.size:
                continue
            place = np.minimum(np.searchsorted(ids, values[near]), ids.size - 1)
            near = near[ids[place] == values[near]]
            if near.size:
                category = timeline.slices.read_uncached(lo, hi, ("category",))["category"]
                near = near[np.isin(category[near], kinds_of)]
                carried.append(values[near])
                rows.append(near + lo)
    all_ids, all_rows = np.concatenate(carried), np.concatenate(rows)
    order = np.lexsort((all_rows, all_ids))
    all_ids, all_rows = all_ids[order], all_rows[order]
    if every:
        return all_ids, all_rows
    last_of = np.append(all_ids[1:] != all_ids[:-1], True) if all_ids.size else np.empty(0, np.bool_)
    return all_ids[last_of], all_rows[last_of]


def match(wanted: Ints, ids: Ints, rows: Ints) -> Ints:
    """Return the row of every wanted id, -1 where there is none.

    `ids` ascending and unique.
    """
    if not ids.size:
        return np.full(wanted.size, -1, np.int64)
    place = np.minimum(np.searchsorted(ids, wanted), ids.size - 1)
    return np.where(ids[place] == wanted, rows[place], -1)


def _runs(groups: list[int]) -> list[tuple[int, int]]:
    """Neighbouring numbers as (first, last)."""
    out: list[tuple[int, int]] = []
    for number in groups:
        if out and number == out[-1][1] + 1:
            out[-1] = (out[-1][0], number)
        else:
            out.append((number, number))
    return out


# The marked step of slices of a stored trace, in both senses: that of the launch call, and that in which the slice began.

LAUNCHED_NEEDS = ("track", "start_ns", "category", "correlation")
RAN_NEEDS = ("track", "start_ns")


def step_name(timeline: Timeline, step: int) -> str | None:
    return timeline.document["steps"][step]["name"] if step >= 0 else None


def steps_launched(timeline: Timeline, rows: Rows) -> Ints:
    """Return the step in which each slice was launched, of what is no GPU work the one in which it began.

    -1: outside every step, or of GPU work whose call is not known. Steps of one name (of several ranks) are the first of them.
    """
    out = steps_ran(timeline, rows)
    work = np.flatnonzero(np.isin(rows["category"], _WORK))
    if not work.size or not timeline.document["steps"]:
        return out
    correlation = rows["correlation"][work].astype(np.int64)
    call = match(correlation, *givers(timeline, "correlation", correlation, (Category.RUNTIME,)))
    out[work] = -1
    has_call = call >= 0
    calls, place = np.unique(call[has_call], return_inverse=True)
    out[work[has_call]] = steps_ran(timeline, timeline.slices.take(calls, RAN_NEEDS))[place]
    return out


def steps_ran(timeline: Timeline, rows: Rows) -> Ints:
    """Return the step in which each slice began, -1 outside every step; each among those of its own rank."""
    steps = timeline.document["steps"]
    out = np.full(rows["start_ns"].size, -1, np.int64)
    groups = [str(track["group"]).partition(": ")[0] for track in timeline.tracks]      # of several ranks: "rank 1: GPU 0"
    owners = [groups[track] for track in timeline.document.get("step_tracks") or []]
    several = len(set(owners)) > 1
    first: dict[str, int] = {}
    names = np.array([first.setdefault(step["name"], number) for number, step in enumerate(steps)], np.int64)
    owner_of_track = np.array(groups)[rows["track"]] if several else None
    for owner in dict.fromkeys(owners) if several else [""]:
        mine = np.array([number for number in range(len(steps)) if not several or owners[number] == owner], np.int64)
        start, end = (np.array([steps[number][key] for number in mine.tolist()], np.int64) for key in ("start_ns", "end_ns"))
        order = stable_order(start)
        index = np.searchsorted(start[order], rows["start_ns"], side="right") - 1
        inside = (index >= 0) & (owner_of_track == owner if owner_of_track is not None else True)
        if not mine.size:
            continue
        step = order[np.maximum(index, 0)]
        inside &= rows["start_ns"] < end[step]
        out[inside] = names[mine[step[inside]]]
    return out
