"""What a slice has to do with others: who launched it, what it launched, flows; as roles, and as arrows to be drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from profiles.ingest.arrays import Ints, stable_order
from profiles.ingest.trace import GPU_WORK, Category
from profiles.store import trace as store
from profiles.store.related import givers, match, operators_around, operators_of_work
from profiles.store.timeline import Timeline

NULL = -(2**63)
LINKS = 100                     # of one role: a graph launch owns hundreds of kernels
_SAME_ID = 100_000
_NESTED_ROWS = 300_000          # stored slices looked through for the calls within an operator
_FLOWS = 1_000
_CPU = (Category.CPU_OP, Category.ANNOTATION, Category.PYTHON)


@dataclass(frozen=True)
class Slice:
    """A slice whose relations are asked for."""

    row: int
    track: int
    start_ns: int
    dur_ns: int
    category: Category
    correlation: int | None
    external: int | None


@dataclass
class Relations:
    """Slices by role and arrows (kind, from row, to row), each at most LINKS, and how many there are."""

    roles: dict[str, list[int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    arrows: list[tuple[str, int, int]] = field(default_factory=list)

    def add(self, timeline: Timeline, role: str, rows: Ints, middle_ns: int) -> list[int]:
        """Keep the nearest to a moment, in order of time."""
        rows = np.unique(rows)
        if not rows.size:
            return []
        start = timeline.slices.take(rows, ("start_ns",))["start_ns"]
        near = stable_order(np.abs(start - middle_ns))[:LINKS]
        nearest: list[int] = rows[near][stable_order(start[near])].tolist()
        self.roles[role] = [*self.roles.get(role, ()), *nearest]
        self.counts[role] = self.counts.get(role, 0) + int(rows.size)
        return nearest


def relations_of(timeline: Timeline, span: Slice, middle_ns: int) -> Relations:
    """Return everything linked with a slice.

    Of many, those nearest to a moment (the middle of what is on screen).
    """
    out = Relations()
    if span.category in GPU_WORK:
        _of_gpu(timeline, span, out, middle_ns)
    elif span.category == Category.RUNTIME:
        _of_call(timeline, span, out, middle_ns)
    elif span.category in _CPU:
        _of_host(timeline, span, out, middle_ns)
    if span.category not in GPU_WORK:
        _flows(timeline, span, out)
    return out


def _of_gpu(timeline: Timeline, span: Slice, out: Relations, middle_ns: int) -> None:
    call = out.add(timeline, "launched by", _with(timeline, "correlation", span.correlation, (Category.RUNTIME,))[-1:], middle_ns)
    ids = (np.array([NULL if value is None else value], np.int64) for value in (span.correlation, span.external))
    around = operators_of_work(timeline, *ids)
    operator = out.add(timeline, "operator", around[around >= 0], middle_ns)
    out.arrows += [("launch", row, span.row) for row in call]
    out.arrows += [("operator", row, call[0]) if call else ("launch", row, span.row) for row in operator]


def _of_call(timeline: Timeline, span: Slice, out: Relations, middle_ns: int) -> None:
    launched = out.add(timeline, "launches", _with(timeline, "correlation", span.correlation, GPU_WORK), middle_ns)
    around = operators_around(timeline, np.array([span.row], np.int64))[1]
    around = around[around >= 0] if (around >= 0).any() else _with(timeline, "external_id", span.external, (Category.CPU_OP,))[:1]
    operator = out.add(timeline, "operator", around, middle_ns)
    out.arrows += [("operator", row, span.row) for row in operator] + [("launch", span.row, row) for row in launched]


def _of_host(timeline: Timeline, span: Slice, out: Relations, middle_ns: int) -> None:
    """An operator's launches by its external id; those of the operators and calls within it where it has none itself."""
    own = span.external if span.category == Category.CPU_OP else None
    launches = _with(timeline, "external_id", own, GPU_WORK)
    ids = timeline.arguments.take(launches, ("correlation", "external_id"))
    launches = launches[operators_of_work(timeline, *(values.astype(np.int64) for values in ids.values())) == span.row]
    calls = _with(timeline, "external_id", own, (Category.RUNTIME,))
    calls = calls[operators_around(timeline, calls)[1] == span.row]
    if not launches.size and not calls.size:
        calls, launches = _within(timeline, span)
    launch_rows = out.add(timeline, "launches", launches, middle_ns)
    correlations = timeline.arguments.take(np.array(launch_rows, np.intp), ("correlation",))["correlation"].astype(np.int64)
    call_ids = timeline.arguments.take(calls, ("correlation",))["correlation"].astype(np.int64)
    order = stable_order(call_ids)
    of = match(correlations, call_ids[order], calls[order])
    shown = out.add(timeline, "calls", calls if len(calls) <= LINKS else np.unique(of[of >= 0]), middle_ns)
    out.counts |= {"calls": int(calls.size)} if calls.size else {}
    out.arrows += [("operator", span.row, row) for row in shown]
    out.arrows += [("launch", call if call >= 0 else span.row, row) for call, row in zip(of.tolist(), launch_rows, strict=True)]


def _within(timeline: Timeline, span: Slice) -> tuple[Ints, Ints]:
    """Launch calls inside a slice on its track, and the GPU work that they launched."""
    end = span.start_ns + max(span.dur_ns, 1)
    none = np.empty(0, np.int64)
    if sum(hi - lo for lo, hi in timeline.ranges(span.start_ns, end)) > _NESTED_ROWS:
        return none, none
    mask = np.zeros(len(timeline.tracks), np.bool_)
    mask[span.track] = True
    rows = timeline.window(span.start_ns, end, 0, mask, ("track", "start_ns", "dur_ns", "category"))
    inside = (rows["start_ns"] >= span.start_ns) & (rows["start_ns"] + rows["dur_ns"] <= end)
    calls = rows["slice"][inside & (rows["category"] == Category.RUNTIME)]
    ids = timeline.arguments.take(calls, ("correlation",))["correlation"].astype(np.int64) if calls.size else none
    if not (ids != NULL).any():
        return none, none
    work = _all_with(timeline, "correlation", ids[ids != NULL], GPU_WORK)
    return calls[np.isin(ids, timeline.arguments.take(work, ("correlation",))["correlation"])], work


def _with(timeline: Timeline, column: str, value: int | None, kinds: tuple[Category, ...]) -> Ints:
    """Rows of some categories that carry an id. Ids are unique in a profile, also in one of many ranks."""
    return _all_with(timeline, column, np.array([value], np.int64), kinds) if value is not None else np.empty(0, np.int64)


def _all_with(timeline: Timeline, column: str, ids: Ints, kinds: tuple[Category, ...]) -> Ints:
    _, rows = givers(timeline, column, ids, kinds, every=True)
    return rows[:_SAME_ID]


def _flows(timeline: Timeline, span: Slice, out: Relations) -> None:
    """Forward ↔ backward and the file's own flows: the other ends of those that begin or end at this slice's start."""
    try:
        path = store.local_path(store.key(timeline.profile_id, "flows.parquet"))
    except FileNotFoundError:
        return
    here = pq.read_table(path, filters=[("track", "=", span.track), ("time_ns", ">=", span.start_ns),
                                        ("time_ns", "<=", span.start_ns + span.dur_ns)]).slice(0, _FLOWS)
    mine = {(row["flow"], row["kind"]): row["is_end"] for row in here.to_pylist()
            if _slice_at(timeline, span.track, row["time_ns"]) == span.row}
    if not mine:
        return
    others = pq.read_table(path, filters=[("flow", "in", [flow for flow, _ in mine][:LINKS])])
    for other in others.to_pylist():
        is_end = mine.get((other["flow"], other["kind"]))
        if is_end is None or other["is_end"] == is_end:
            continue
        row = _slice_at(timeline, other["track"], other["time_ns"])
        if row is not None:
            _flow(out, other, span.row, row)


def _flow(out: Relations, other: dict[str, Any], mine: int, row: int) -> None:
    forward = other["kind"] == "fwdbwd"
    role = ("backward" if other["is_end"] else "forward") if forward else ("to" if other["is_end"] else "from")
    out.counts[role] = out.counts.get(role, 0) + 1
    if out.counts[role] <= LINKS:
        out.roles.setdefault(role, []).append(row)
        ends = (mine, row) if other["is_end"] else (row, mine)
        out.arrows.append(("fwdbwd" if forward else "flow", *ends))


def _slice_at(timeline: Timeline, track: int, time_ns: int) -> int | None:
    """The innermost slice around a moment, one that begins there first."""
    mask = np.zeros(len(timeline.tracks), np.bool_)
    mask[track] = True
    around = timeline.window(time_ns, time_ns + 1, 0, mask)
    spans = np.flatnonzero(~around["instant"])
    if not spans.size:
        return None
    begins = spans[around["start_ns"][spans] == time_ns]
    best = min(begins.tolist(), key=lambda i: int(around["depth"][i])) if begins.size else \
        max(spans.tolist(), key=lambda i: int(around["depth"][i]))
    return int(around["slice"][best])
