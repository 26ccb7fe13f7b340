"""A trace as the analyses of a whole profile read it: columns in order of start, each loaded when it is first asked for.

One `Frame` serves a fresh `Trace` (`frame_of`) and a stored one (`profiles.store.frame`): what an analysis finds does not
depend on where its columns come from. Rows are in order of start, whatever contains a slice before the slice itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa

from profiles.analysis.core.columns import NONE, match, pack_pairs
from profiles.ingest.arrays import Array, Bools, Ints, Rows, stable_order
from profiles.ingest.trace import GPU_WORK, KERNELS, Category, Device, Trace, Track
from profiles.ingest.windows import MISSING

_WALL = [*(int(kind) for kind in GPU_WORK), int(Category.RUNTIME), int(Category.CPU_OP), int(Category.PYTHON),
         int(Category.ANNOTATION)]
_SKIPPED = 64                       # depths between a slice and the one around it, where those between have ended
_BELOW = 64                 # lanes below a mark's own that may hold the slice around it, where slices overflow


class Samples(NamedTuple):
    """What counters said, by track and time. NaN: from here on nothing is known."""

    track: Array
    time_ns: Ints
    value: Array

    def of(self, track: int) -> tuple[Ints, Array]:
        """Times and values of one counter."""
        lo, hi = np.searchsorted(self.track, [track, track + 1])
        return self.time_ns[lo:hi], self.value[lo:hi]


class Flows(NamedTuple):
    """Ends of arrows that correlation ids do not say: `kind` is a number into `kinds` ("fwdbwd", …)."""

    flow: Ints
    kind: Array
    track: Array
    time_ns: Ints
    is_end: Bools
    kinds: list[str]
ASKED_NAMES, ASKED_CHARS = 200_000, 500           # names, and characters of each, that a pattern is tried on


@dataclass(eq=False)
class Frame:
    """`frame["start_ns"]` is a column of SLICES (`name` and `detail` are numbers into `names` and `details`, -1: none; unknown
    numbers are MISSING, MISSING32 or NaN), `frame["id"]` the slice's id in the timeline. Never write into a column."""

    rows: int
    names: Sequence[str]
    details: Sequence[str]                    # read when first asked for
    tracks: list[Track]
    devices: list[Device]
    load: Callable[[str], Array]              # a column in the frame's order
    metadata: Mapping[str, Any] = field(default_factory=dict)
    left_out: str = ""                        # a sentence: what a trace of this size does without
    tables: Callable[[str], pa.Table | None] = lambda name: None      # "samples" and "flows" as stored; None: there are none
    results: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False)       # of `once_a_frame`
    _columns: dict[str, Array] = field(default_factory=dict, repr=False)
    _of_track: dict[int, Rows] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> Array:
        if name not in self._columns:
            self._columns[name] = self.load(name)
        return self._columns[name]

    @cached_property
    def end_ns(self) -> Ints:
        """End of every slice."""
        return self["start_ns"] + self["dur_ns"]

    def of(self, *kinds: Category) -> Rows:
        """Return the rows of some categories, marks aside, in order of start."""
        return np.flatnonzero(self._is(kinds) & ~self["instant"])

    def _is(self, kinds: Sequence[int]) -> Bools:
        """For every row whether its category is one of `kinds`."""
        return _among(kinds)[self["category"]]

    def rows_by_name(self, fits: Callable[[str], bool], *kinds: Category) -> Rows:
        """Return the rows of some categories whose name fits, in order of start.

        `fits` is asked once per distinct name, with its first characters; of a file with more names than any program has, the first
        are asked.
        """
        rows = self.of(*kinds)
        codes = self["name"][rows]
        good = np.zeros(len(self.names) + 1, np.bool_)              # the last stands for no name: -1
        good[codes] = True
        good[-1] = False
        used = np.flatnonzero(good[:-1])[:ASKED_NAMES]
        good[:] = False
        good[used] = [fits(self.names[code][:ASKED_CHARS]) for code in used.tolist()]
        return rows[good[codes]]

    def rows_of_track(self, track: int) -> Rows:
        """Return the rows of one track, in order of start."""
        if track not in self._of_track and len(self.tracks) > 64:           # one sort instead of a pass for each
            order = stable_order(self["track"])
            numbers, first = np.unique(self["track"][order], return_index=True)
            self._of_track.update(zip(numbers.tolist(), np.split(order, first[1:]), strict=True))
        if track not in self._of_track:
            self._of_track[track] = np.flatnonzero(self["track"] == track)
        return self._of_track[track]

    def nearest(self, rows: Rows) -> Ints:
        """Return, for each row, the innermost of `rows` that is it or contains it, else -1."""
        out = np.full(self.rows, NONE, np.int64)
        out[rows] = rows
        for mine in self._by_depth[1:]:
            above = self.parent[mine]
            nearest = np.where(above >= 0, out[above], NONE)
            out[mine] = np.where(out[mine] >= 0, out[mine], nearest)
        return out

    @cached_property
    def _by_depth(self) -> list[Rows]:
        """Rows of each depth, those of the GPU's tracks aside."""
        thread = np.array([track.kind != "stream" for track in self.tracks] or [True], np.bool_)
        rows = np.flatnonzero(thread[self["track"]]) if self.rows else np.empty(0, np.intp)
        order = rows[stable_order(self["depth"][rows])]
        depths = self["depth"][order]
        return np.split(order, np.flatnonzero(np.diff(depths)) + 1) if order.size else []

    @cached_property
    def work(self) -> Rows:
        """Return the rows of all GPU work (kernels, copies, sets)."""
        return self.of(*GPU_WORK)

    @cached_property
    def kernels(self) -> Rows:
        """Return the rows of all kernels, collectives among them."""
        return self.of(*KERNELS)

    @cached_property
    def wall(self) -> tuple[int, int]:
        """Return first start and last end of all but marks and the profiler's own work.

        As `analysis.breakdown` has it.
        """
        real = ~self["instant"]
        for mask in (real & self._is(_WALL), real):
            if mask.any():
                return int(self["start_ns"][mask].min()), int(self.end_ns[mask].max())
        return 0, 0

    @cached_property
    def call(self) -> Ints:
        """Return, for each row, the row of the runtime call that launched it.

        -1 for CPU slices and where no call is known. A graph launch owns every kernel of its graph.
        """
        return self._giver_rows(Category.RUNTIME, "correlation")

    @cached_property
    def operator(self) -> Ints:
        """Return, for each row of GPU work, the row of the framework operator it belongs to.

        The innermost around its launch call, else, where no call is known, the one whose external id it has; -1 otherwise. The
        call counts first: some versions of PyTorch write the correlation id as external id, which an operator may have too.
        """
        out = self._giver_rows(Category.CPU_OP, "external_id")
        called = self.work[self.call[self.work] >= 0]
        out[called] = self.enclosing(self.call[called], Category.CPU_OP)
        return out

    def _giver_rows(self, giver: Category, by: str) -> Ints:
        out = np.full(self.rows, NONE, np.int64)
        givers = np.flatnonzero((self["category"] == giver) & (self[by] != MISSING))
        matched = match(self[by][self.work], self[by][givers])
        out[self.work[matched >= 0]] = givers[matched[matched >= 0]]
        return out

    @cached_property
    def parent(self) -> Ints:
        """Return, for each row, the innermost slice around it on its track, else -1.

        Marks contain nothing.
        """
        out = np.full(self.rows, NONE, np.int64)
        lane = self["track"].astype(np.int64) << 16 | self["depth"].astype(np.int64)
        order = _by_lane(self["track"], self["depth"])              # by lane, then by start
        sorted_lanes = lane[order]
        first = np.flatnonzero(np.diff(sorted_lanes, prepend=-1))
        lanes = sorted_lanes[first]
        rows_of = dict(zip(lanes.tolist(), np.split(order, first[1:]), strict=True))
        long = {lane_key: rows[~self["instant"][rows]] for lane_key, rows in rows_of.items()}
        for lane_key, rows in rows_of.items():
            marks = rows[self["instant"][rows]]         # lie at the depth of the innermost slice around them, or just above it
            for own in range(lane_key + _BELOW, lane_key - 1, -1) if marks.size else ():
                marks = self._inside(marks, long.get(own), out)
            left = np.concatenate([rows[~self["instant"][rows]], marks])
            for above in range(lane_key - 1, max(lane_key >> 16 << 16, lane_key - _SKIPPED) - 1, -1):       # depths may be skipped
                if not left.size:
                    break
                left = self._inside(left, long.get(above), out)
        return out

    def _inside(self, rows: Rows, around: Rows | None, out: Ints) -> Rows:
        """Write whose slice of `around` contains each of `rows`; those that none contains."""
        if around is None or not around.size:
            return rows
        position = np.searchsorted(self["start_ns"][around], self["start_ns"][rows], side="right") - 1
        candidates = around[np.maximum(position, 0)]
        inside = (position >= 0) & (self.end_ns[candidates] >= self.end_ns[rows])
        out[rows[inside]] = candidates[inside]
        return rows[~inside]

    def enclosing(self, rows: Ints, *kinds: Category) -> Ints:
        """Return, for each of `rows`, the innermost slice of some categories around or at it.

        -1 stays -1, and stands where there is none.
        """
        is_kind, category = _among(kinds), self["category"]          # looked up where it is asked, not for every row
        current = np.asarray(rows, np.int64).copy()
        left = np.flatnonzero(current >= 0)
        while left.size:
            left = left[~is_kind[category[current[left]]]]
            current[left] = self.parent[current[left]]
            left = left[current[left] >= 0]
        return current

    def path(self, row: int) -> list[int]:
        """Return the rows from `row` outwards: itself, then what contains it."""
        out = []
        while row >= 0:
            out.append(int(row))
            row = int(self.parent[row])
        return out

    def text(self, row: int) -> str:
        """Return a slice's name."""
        code = int(self["name"][row])
        return self.names[code] if code >= 0 else ""

    def arguments(self, row: int) -> dict[str, Any]:
        """Return what else the file says of a slice (shapes, types, collective), else {}."""
        return self.detail_arguments(int(self["detail"][row]))

    def number_calls(self, rows: Ints) -> tuple[Ints, Ints]:
        """Tell slices apart by name and arguments: return the first place in `rows` of each kind, and each row's kind.

        Of a slice without arguments the name alone counts.
        """
        keys = pack_pairs(self["name"][rows], self["detail"][rows])
        _, first, kind = np.unique(keys, return_index=True, return_inverse=True)
        return first.astype(np.int64), kind.reshape(-1).astype(np.int64)

    def detail_arguments(self, detail: int) -> dict[str, Any]:
        """Return the arguments of a number into `details`.

        {} where it is none, or what cannot be read.
        """
        try:
            arguments = json.loads(self.details[detail]) if detail >= 0 else {}
        except (ValueError, RecursionError):
            return {}
        return arguments if isinstance(arguments, dict) else {}

    @cached_property
    def samples(self) -> Samples:
        """Return all counter samples, ordered by track, then by time."""
        table = self.tables("samples")
        if table is None or not table.num_rows:
            return Samples(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0))
        track, time_ns, value = (table[name].to_numpy() for name in ("track", "time_ns", "value"))
        order = np.lexsort((time_ns, track))
        return Samples(track[order], time_ns[order], value[order])

    @cached_property
    def flows(self) -> Flows:
        """Return all flow ends, in order of time."""
        table = self.tables("flows")
        if table is None or not table.num_rows:
            none = np.empty(0, np.int64)
            return Flows(none, none, none, none, np.empty(0, np.bool_), [])
        kind = table["kind"].cast(pa.string()).combine_chunks().dictionary_encode()
        kind = kind.chunk(0) if isinstance(kind, pa.ChunkedArray) else kind
        order = stable_order(table["time_ns"].to_numpy())
        flow, track, time_ns, is_end = (table[name].to_numpy(zero_copy_only=False)[order]
                                        for name in ("flow", "track", "time_ns", "is_end"))
        return Flows(flow, kind.indices.to_numpy()[order], track, time_ns, is_end, kind.dictionary.to_pylist())

    def device_label(self, index: int) -> str:
        """Return what a GPU is called: "GPU 0", of merged ranks "rank 1 · GPU 0 of its host"."""
        stated = self.metadata.get("devices") if self.metadata.get("ranks") else None
        if isinstance(stated, list) and 0 <= index < len(stated):
            return str(stated[index])
        return f"GPU {index}" if index >= 0 else "unknown GPU"

    @cached_property
    def rank_of_track(self) -> list[str]:
        """Return the rank of each track.

        "rank 3" of a job of several ranks, "" of a trace of one.
        """
        labels = list(self.metadata.get("ranks") or ())
        of_group = {group: next((label for label in labels if group.startswith(f"{label}: ")), "")
                    for group in {track.group for track in self.tracks}}
        return [of_group[track.group] for track in self.tracks]

    @cached_property
    def rank_numbers(self) -> tuple[list[str], Ints]:
        """Return the ranks in order of first sight, and for each track the number of its rank among them; [0] without tracks."""
        labels = list(dict.fromkeys(self.rank_of_track))
        number = {label: index for index, label in enumerate(labels)}
        return labels, np.array([number[label] for label in self.rank_of_track] or [0], np.int64)


def _among(kinds: Sequence[int]) -> Bools:
    """For every category whether it is one of `kinds`."""
    mask = np.zeros(256, np.bool_)
    mask[[int(kind) for kind in kinds]] = True
    return mask


def _by_lane(track: Array, depth: Array) -> Rows:
    """Order by track, then depth, else as it was. In 16 bits, where the lanes fit, numpy sorts by radix: ten times as fast."""
    depths = int(depth.max(initial=0)) + 1
    if (int(track.max(initial=0)) + 1) * depths < 1 << 16:
        return stable_order((track.astype(np.uint32) * np.uint32(depths) + depth.astype(np.uint32)).astype(np.uint16))
    return stable_order(track.astype(np.int64) << 16 | depth.astype(np.int64))


def order_of(start_ns: Ints, depth: Array) -> Rows:
    """Order by start, then by depth: what contains a slice comes before it."""
    if start_ns.size and int(start_ns.max(initial=0)) < 1 << 54:
        return stable_order(start_ns << 8 | np.minimum(depth, 255))
    return np.lexsort((depth, start_ns))


def frame_of(trace: Trace) -> Frame:
    """The frame of a trace that was just read. Ids are row numbers of `trace.slices`."""
    parts = [window.columns for window in trace.windows()]

    def column(name: str) -> Array:
        return np.concatenate([part[name] for part in parts]) if parts else np.empty(0, np.int64)

    order = order_of(column("start_ns").astype(np.int64), column("depth").astype(np.int64))

    def load(name: str) -> Array:
        return order.astype(np.int64) if name == "id" else column(name)[order]

    return Frame(order.size, trace.parts.names, trace.parts.details, trace.tracks, trace.devices, load, trace.metadata,
                 tables=lambda name: trace.samples if name == "samples" else trace.flows)


# Results that several analyses of one frame share: made once, kept with the frame.

T = TypeVar("T")


def once_a_frame(make: Callable[[Frame], T]) -> Callable[[Frame], T]:
    """Return `make`, which is called once for each frame; what it returned may hold the frame, and goes with it."""
    @wraps(make)
    def of(frame: Frame) -> T:
        if of not in frame.results:
            frame.results[of] = make(frame)
        return cast(T, frame.results[of])

    return of
