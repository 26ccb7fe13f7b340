"""Flame graphs of an area: nested slices of threads, or GPU work under the stack that launched it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Generator
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.analysis.trace import flame
from profiles.analysis.trace.flame import TRACK, UNLINKED, Tree
from profiles.ingest.arrays import Bools, Ints, stable_order
from profiles.ingest.trace import GPU_WORK, Category
from profiles.store.area import Area, windows
from profiles.store.related import givers, match
from profiles.store.timeline import Timeline

MODES = ("cpu", "gpu")
LAUNCHES = 5_000_000            # GPU slices of an area whose launches are looked for: 160 MB
KEPT = 4                        # trees held, for the next question about the same area
_NAMED = ("track", "depth", "start_ns", "dur_ns", "name_id", "instant", "category")
Work = Generator[float, None, dict[str, Any]]
Growing = Generator[float, None, Tree]
_kept: OrderedDict[tuple[Any, ...], Tree] = OrderedDict()
_lock = threading.Lock()


class TooMuch(ValueError):
    """The area holds more than can be attributed at once."""


def graph(timeline: Timeline, area: Area, mode: str, merged: bool, focus: int | None = None) -> Work:
    """Return the tree of an area as columns.

    With `focus` (a name id) the callers and callees of that name.
    """
    tree = yield from _tree(timeline, area, mode, merged)
    answer: dict[str, Any] = {"start_ns": area.start_ns, "end_ns": area.end_ns, "mode": mode, "merged": merged,
                              "total_ns": tree.total[0]}
    if focus is None:
        answer |= {"tree": flame.tree_columns(tree), "hot": flame.hot(tree)}
        used = {label for label in answer["tree"]["label"] if label >= 0} | {row["label"] for row in answer["hot"]}
    else:
        callers, callees = (flame.tree_columns(side) for side in flame.sandwich(tree, focus))
        answer |= {"focus": focus, "callers": callers, "callees": callees}
        used = {label for columns in (callers, callees) for label in columns["label"] if label >= 0}
    answer["names"] = {label: timeline.names[label] for label in sorted(used)}
    answer["categories"] = _categories(timeline, sorted(used))
    return answer


def _categories(timeline: Timeline, names: list[int]) -> dict[int, int]:
    """A category for each name: that of one of its slices, for its colour."""
    table = _category_of(timeline)
    return {name: int(table[name]) for name in names if name < table.size and table[name] >= 0}


_tables: OrderedDict[str, npt.NDArray[np.int16]] = OrderedDict()


def _category_of(timeline: Timeline) -> npt.NDArray[np.int16]:
    """Name id -> category, noted while trees are grown."""
    with _lock:
        if timeline.etag not in _tables:
            _tables[timeline.etag] = np.full(max(len(timeline.names), 1), -1, np.int16)
            while len(_tables) > KEPT:
                _tables.popitem(last=False)
        return _tables[timeline.etag]


def _tree(timeline: Timeline, area: Area, mode: str, merged: bool) -> Growing:
    """Grown once per question; sandwiches and searches ask the same again."""
    identity = (timeline.etag, area, mode, merged)
    with _lock:
        hit = _kept.get(identity)
    if hit is not None:
        return hit
    tree = yield from (_grow_launched if mode == "gpu" else _grow_nested)(timeline, area, merged)
    with _lock:
        _kept[identity] = tree
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return tree


def _of_kind(timeline: Timeline, kind: str) -> Bools:
    return np.array([track["kind"] == kind for track in timeline.tracks], np.bool_)


def _grow_nested(timeline: Timeline, area: Area, merged: bool) -> Growing:
    """Time of threads by call path."""
    tree = Tree()
    host = _of_kind(timeline, "thread") & area.mask(timeline)
    if not host.any():                                  # no thread among them: whatever is not a GPU stream
        host = ~_of_kind(timeline, "stream") & area.mask(timeline)
    narrowed = Area(area.start_ns, area.end_ns, tuple(np.flatnonzero(host).tolist()), area.where, area.least_ns, area.most_ns)
    for window in windows(timeline, narrowed, _NAMED):
        spans = np.flatnonzero(~window.rows["instant"])
        rows = {name: values[spans] for name, values in window.rows.items()}
        _category_of(timeline)[rows["name_id"]] = rows["category"]
        begin, end = (values[spans] for values in window.clip_times())
        node = _paths(tree, rows, merged)
        tree.add(node, np.maximum(end - begin, 0), window.first[spans], rows["start_ns"])
        yield window.done
    return tree.sum_up(leaves=False)


def _paths(tree: Tree, rows: dict[str, Any], merged: bool) -> Ints:
    """The node of every slice of a window (all that are around any of them are among its rows)."""
    above = flame.parents(rows["track"], rows["depth"], rows["start_ns"], rows["start_ns"] + rows["dur_ns"])
    roots = np.zeros(above.size, np.int64)
    if not merged:
        roots = tree.children(roots, TRACK - rows["track"].astype(np.int64))
    return tree.nest_slices(above, rows["name_id"], rows["depth"], roots)


def _grow_launched(timeline: Timeline, area: Area, merged: bool) -> Growing:
    """GPU time by the stack of operators, Python and annotations around the call that launched it. Raises TooMuch."""
    work = yield from _gpu_work(timeline, area)
    ids, rows = givers(timeline, "correlation", work["correlation"], (Category.RUNTIME,))
    work["giver"] = match(work["correlation"], ids, rows)
    lost = np.flatnonzero(work["giver"] < 0)
    ids, rows = givers(timeline, "external_id", work["external_id"][lost], (Category.CPU_OP,))
    work["giver"][lost] = match(work["external_id"][lost], ids, rows)
    tree = Tree()
    order = stable_order(work["giver"])
    work = {name: values[order] for name, values in work.items()}
    unlinked = int(np.searchsorted(work["giver"], 0))
    if unlinked:
        root = np.full(unlinked, tree.child(0, UNLINKED), np.int64)
        _hang(tree, {name: values[:unlinked] for name, values in work.items()}, root)
    yield 0.5
    yield from _hang_calls(timeline, tree, {name: values[unlinked:] for name, values in work.items()}, merged)
    return tree.sum_up(leaves=True)


def _gpu_work(timeline: Timeline, area: Area) -> Generator[float, None, dict[str, Ints]]:
    """The area's GPU slices: ids, name, clipped time."""
    names = ("correlation", "external_id", "name_id", "start_ns")
    parts: list[dict[str, Any]] = []
    count = 0
    streams = area.mask(timeline) & _of_kind(timeline, "stream")
    if not streams.any():                               # threads were chosen: what all GPUs did in that time
        streams = _of_kind(timeline, "stream")
    narrowed = Area(area.start_ns, area.end_ns, tuple(np.flatnonzero(streams).tolist()), area.where, area.least_ns, area.most_ns)
    for window in windows(timeline, narrowed, (*names, "category")):
        rows = window.counted_rows
        keep = np.isin(rows["category"], [int(kind) for kind in GPU_WORK]) & ~rows["instant"]
        _category_of(timeline)[rows["name_id"]] = rows["category"]
        parts.append({**{name: rows[name][keep].astype(np.int64) for name in names}, "time": (rows["end"] - rows["begin"])[keep]})
        count += int(np.count_nonzero(keep))
        if count > LAUNCHES:
            raise TooMuch(f"more than {LAUNCHES:,} kernels")
        yield window.done * 0.4
    return {name: np.concatenate([part[name] for part in parts]) for name in (*names, "time")}


def _hang_calls(timeline: Timeline, tree: Tree, work: dict[str, Ints], merged: bool) -> Generator[float, None, None]:
    """Find the path of every launch call, and hang what it launched below it."""
    calls, first = np.unique(work["giver"], return_index=True)
    if not calls.size:
        return
    counts = np.diff(np.append(first, work["giver"].size))
    columns = timeline.slices.take(calls, ("track", "start_ns"))
    area = Area(int(columns["start_ns"].min()), int(columns["start_ns"].max()) + 1, tuple(np.unique(columns["track"]).tolist()))
    for window in windows(timeline, area, _NAMED):
        spans = ~window.rows["instant"]
        rows = {name: values[spans] for name, values in window.rows.items()}
        _category_of(timeline)[rows["name_id"]] = rows["category"]
        rows = _around(rows, np.isin(rows["slice"], calls) & window.first[spans])
        node = _paths(tree, rows, merged)[rows["launching"]]
        place = np.searchsorted(calls, rows["slice"][rows["launching"]])
        lengths = counts[place]
        offsets = np.cumsum(lengths) - lengths
        mine = np.repeat(first[place] - offsets, lengths) + np.arange(int(lengths.sum()))
        _hang(tree, {name: values[mine] for name, values in work.items()}, np.repeat(node, lengths))
        yield 0.5 + 0.5 * window.done


def _around(rows: dict[str, Any], launching: Bools) -> dict[str, Any]:
    """Launch calls and every slice around one: other paths need no node."""
    above = flame.parents(rows["track"], rows["depth"], rows["start_ns"], rows["start_ns"] + rows["dur_ns"])
    needed, level = launching.copy(), np.flatnonzero(launching)
    while level.size:
        level = np.unique(above[level][above[level] >= 0])
        level = level[~needed[level]]
        needed[level] = True
    return {name: values[needed] for name, values in rows.items()} | {"launching": launching[needed]}


def _hang(tree: Tree, work: dict[str, Ints], below: Ints) -> None:
    if below.size:
        node = tree.children(below, work["name_id"])
        tree.add(node, work["time"], np.ones(below.size, np.int64), work["start_ns"])
