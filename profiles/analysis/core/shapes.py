"""The launches of each kernel by what they worked on: grid and block, and what the framework operator around them says.

Two launches of one kernel are the same work where grid and block are, and the operator with its input shapes where the trace
states it: a persistent kernel has one grid for every problem. A shape bucket is the nearest power of two of all
threads, so that it outlives a change of the block (the rule of `tuner.cache.rules.bucket`: each dimension to its nearest power
of two). Everything here is grouped in numpy: a profile of a million launches has some hundred shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from profiles.analysis.core import tunable
from profiles.analysis.core.frame import Frame
from profiles.base.words import dims_text
from profiles.ingest.arrays import Bools, Floats, Ints, Rows, stable_order
from profiles.ingest.naming.names import clip_name, fold_templates, strip_parameters
from profiles.ingest.trace import Category

SHAPES_PER_KERNEL = 32          # those of most time; the others are one row
SHAPES_PER_PROFILE = 4_000
DESCRIBED = 300                 # shapes of most time for which a tune form is filled in
MOST_ARGUMENTS = 50_000         # distinct arguments of operators that are read; of more, operators do not tell launches apart
SEARCHED_CHARS = 4_000_000_000  # of names that are searched for the launches to skip: some seconds
_FEW = 1_000                    # names that are looked at one by one
_SEPARATOR = "\n"
_GEOMETRY = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


@dataclass(frozen=True)
class Shape:
    """Launches of one kernel with one grid and block. `grid` "" and `shapes` > 1: all further shapes of the kernel."""

    kernel: str
    grid: str
    block: str
    bucket: int | None
    launches: int
    total_ns: int
    min_ns: int
    max_ns: int
    p50_ns: float                           # exact quantiles of all launches, linear between neighbours
    p95_ns: float
    shapes: int = 1
    index: int | None = None                # of the longest launch, among all kernels by start
    slice_id: int | None = None             # of the longest launch, in the timeline
    skip: int | None = None                 # launches before it that the function's bare name matches too
    operator: str = ""                      # framework operator around the longest launch, its shapes and types
    dims: str = ""
    dtype: str = ""
    tune: Mapping[str, Any] = field(default_factory=dict)
    floor_ns: float | None = None           # mean over its launches of the least time of each; None where one is not known
    flop: float | None = None               # mean over its launches, of products alone; None where one is not known


@dataclass(frozen=True)
class Problem:
    """What the framework operator around a launch says; empty where the trace says nothing."""

    operator: str = ""
    dims: str = ""
    dtype: str = ""


@dataclass(frozen=True)
class Launches:
    """Every kernel of a trace in order of start: what tells the work of one from another's."""

    rows: Rows              # of the frame
    names: Ints                             # numbers into the frame's names
    geometry: Ints                          # six columns, unknown ones negative
    problem: Ints                           # numbers into `problems`
    problems: list[Problem]

    def of(self, name: int, grid: str, block: str, problem: Problem) -> Bools:
        """Return a mask of the launches of one shape."""
        mask: Bools = self.names == name
        for columns, text in ((self.geometry[:, :3], grid), (self.geometry[:, 3:], block)):
            has_size = (columns > 0).all(axis=1)
            mask &= has_size & (columns == np.array([int(part) for part in text.split("×")])).all(axis=1) if text else ~has_size
        numbers = [number for number, entry in enumerate(self.problems) if entry == problem]
        return mask & np.isin(self.problem, numbers)


def launches_of(frame: Frame) -> Launches:
    rows = frame.kernels
    geometry = np.stack([frame[name][rows].astype(np.int64) for name in _GEOMETRY], axis=1)
    problem, problems = _problems(frame, rows)
    return Launches(rows, frame["name"][rows].astype(np.int64), geometry, problem, problems)


def _problems(frame: Frame, rows: Rows) -> tuple[Ints, list[Problem]]:
    """The operator of every kernel with its input shapes: each distinct (name, arguments) is read once."""
    operator = frame.operator[rows]
    positions = np.flatnonzero(operator >= 0)
    codes = np.zeros(rows.size, np.int64)
    first, kind = frame.number_calls(operator[positions])
    if first.size > MOST_ARGUMENTS:
        return codes, [Problem()]
    numbers = {Problem(): 0}
    mine = np.zeros(first.size, np.int64)
    for index, row in enumerate(operator[positions[first]].tolist()):
        arguments = frame.arguments(row)
        dims = _text(arguments.get("Input Dims"), 300)
        name = clip_name(frame.text(row), 120)
        entry = Problem(name, dims, _text(arguments.get("Input type"), 60)) if dims else Problem(name)
        mine[index] = numbers.setdefault(entry, len(numbers))
    codes[positions] = mine[kind]
    return codes, list(numbers)


def shapes_of(frame: Frame, floor_ns: Floats | None = None, flop: Floats | None = None) -> list[Shape]:
    """Return the shapes of a trace's kernels, most time first.

    `floor_ns`: the least time of every launch by its work and the GPU's roofs; `flop`: of every launch of a product. Both
    as long as `frame.kernels`, NaN where unknown.
    """
    every = launches_of(frame)
    if not every.rows.size:
        return []
    dur_ns = frame["dur_ns"][every.rows].astype(np.float64)
    shapes = group_shapes(every.names, every.geometry, dur_ns, lambda code: frame.names[code], every.problem, floor_ns, flop)
    skips = _skips(every.names, frame.names, shapes)
    out = []
    for index, shape in enumerate(shapes):
        if shape.index is None:
            out.append(shape)
            continue
        row, problem = int(every.rows[shape.index]), every.problems[every.problem[shape.index]]
        out.append(Shape(**{
            **shape.__dict__, **problem.__dict__, "slice_id": int(frame["id"][row]), "skip": skips[index],
            "tune": tune_fields(frame, row, shape.kernel) if index < DESCRIBED else {}}))
    return out


def group_shapes(names: Ints, geometry: Ints, dur_ns: Floats, text: Callable[[int], str],
            problem: Ints | None = None, floor_ns: Floats | None = None, flop: Floats | None = None) -> list[Shape]:
    """Group launches by (name, grid, block, problem), most time first.

    The last group is what is beyond the bounds above. A grid or block that is not known whole is not known.
    """
    has_size = np.repeat((geometry.reshape(-1, 2, 3) > 0).all(axis=2), 3, axis=1)
    geometry = np.where(has_size, geometry, -1)
    table = np.column_stack([names, geometry, np.zeros_like(names) if problem is None else problem])
    codes = _codes(table)           # `np.unique(axis=0)` compares rows as bytes, 20 times slower
    order = np.lexsort((dur_ns, codes))
    starts = np.flatnonzero(np.concatenate(([True], np.diff(codes[order]) != 0)))
    ends = np.append(starts[1:], order.size)
    totals = np.add.reduceat(dur_ns[order], starts)
    def whole(at: int) -> Shape:
        longest = int(order[ends[at] - 1])
        grid, block = geometry[longest, :3].tolist(), geometry[longest, 3:].tolist()
        return Shape(
            text(int(names[longest])), sized_text(grid), sized_text(block), bucket(grid, block), int(ends[at] - starts[at]),
            round(float(totals[at])), round(float(dur_ns[order[starts[at]]])), round(float(dur_ns[longest])),
            *_quantiles(dur_ns[order[starts[at]:ends[at]]]), index=longest,
            floor_ns=None if floor_ns is None else _mean_known(floor_ns[order[starts[at]:ends[at]]]),
            flop=None if flop is None else _mean_known(flop[order[starts[at]:ends[at]]]))

    out: list[Shape] = []
    rest: dict[int, list[int]] = {}
    counts: dict[int, int] = {}
    for group in stable_order(-totals).tolist():
        name = int(names[order[ends[group] - 1]])
        if counts.get(name, 0) >= SHAPES_PER_KERNEL or len(out) >= SHAPES_PER_PROFILE:
            rest.setdefault(name, []).append(group)
            continue
        counts[name] = counts.get(name, 0) + 1
        out.append(whole(group))
    out += [whole(groups[0]) for groups in rest.values() if len(groups) == 1]       # one alone is no "others"
    for name, groups in rest.items():
        if len(groups) == 1:
            continue
        ordered = np.sort(np.concatenate([dur_ns[order[starts[group]:ends[group]]] for group in groups]))
        out.append(Shape(
            text(name), "", "", None, sum(int(ends[group] - starts[group]) for group in groups), round(float(totals[groups].sum())),
            min(round(float(dur_ns[order[starts[group]]])) for group in groups),
            max(round(float(dur_ns[order[ends[group] - 1]])) for group in groups), *_quantiles(ordered), shapes=len(groups)))
    return out


def _mean_known(values: Floats) -> float | None:
    mean = float(values.mean())
    return mean if np.isfinite(mean) and mean > 0 else None


def _quantiles(ordered: Floats) -> tuple[float, float]:
    """p50 and p95 of ascending durations, linear between neighbours: as `analysis.kernels` has them of a whole kernel."""
    place = np.array([0.5, 0.95]) * (ordered.size - 1)
    low = np.floor(place).astype(np.int64)
    above = ordered[np.minimum(low + 1, ordered.size - 1)]
    p50, p95 = (ordered[low] + (above - ordered[low]) * (place - low)).tolist()
    return p50, p95


def _codes(table: Ints) -> Ints:
    """One number per row, equal where the rows are. Columns that never change cost nothing."""
    code = np.zeros(len(table), np.int64)
    span = 1
    for column in table.T:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if low == high:
            continue
        if span * (high - low + 1) >= 1 << 62:          # dense numbers again: as many as there are groups so far
            code = np.unique(code, return_inverse=True)[1].astype(np.int64)
            column = np.unique(column, return_inverse=True)[1].astype(np.int64)
            low, high, span = 0, int(column.max(initial=0)), int(code.max(initial=0)) + 1
        code = code * (high - low + 1) + (column - low)
        span *= high - low + 1
    return code


def sized_text(dims: Sequence[int]) -> str:
    return dims_text(dims) if all(dim > 0 for dim in dims) else ""


def bucket(grid: Sequence[int], block: Sequence[int]) -> int | None:
    """log2 of all threads, rounded; None where grid or block is not known."""
    if not all(dim > 0 for dim in (*grid, *block)):
        return None
    return round(float(np.sum(np.log2(np.array([*grid, *block], np.float64)))))


def bare(name: str) -> str:
    """Return the function's name alone.

    That is what `ncu --kernel-name` compares with (its default, `function`).
    """
    plain = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    return fold_templates(strip_parameters(plain)).replace("<…>", "").strip().rsplit(" ", 1)[-1].rsplit("::", 1)[-1]


def _skips(names: Ints, texts: Sequence[str], shapes: Sequence[Shape]) -> list[int | None]:
    """Return, for each shape, how many launches before its longest one ncu's filter on the bare name matches: its
    --launch-skip. None for the shape of all further launches, and once SEARCHED_CHARS of names were searched.

    The counts of one name are let go before the next name's: kept for all, those of 4,000 names over 2 M launches took 64 GB."""
    order = stable_order(names)            # launches of one name stand together, in order of start
    used, starts = np.unique(names[order], return_index=True)
    launches_by_name = np.split(order, starts[1:])
    bares = [bare(texts[int(code)]) for code in used]
    whole = _SEPARATOR.join(bares)
    firsts = np.cumsum([0] + [len(bare_text) + 1 for bare_text in bares[:-1]]) if bares else np.empty(0, np.int64)
    alike: dict[str, list[int]] = {}
    for index, shape in enumerate(shapes):
        if shape.index is not None:
            alike.setdefault(bare(shape.kernel), []).append(index)
    alike.pop("", None)
    out: list[int | None] = [None] * len(shapes)
    for text, members in islice(alike.items(), SEARCHED_CHARS // max(1, len(whole))):
        matching = _containing(text, whole, firsts, bares)
        mine = np.zeros(int(used[-1]) + 1, np.bool_)
        mine[used[matching]] = True
        for member in members:
            before = shapes[member].index or 0
            if len(matching) > _FEW:                       # one pass over the launches is cheaper than one for each name
                out[member] = int(np.count_nonzero(mine[names[:before]]))
            else:
                out[member] = sum(int(np.searchsorted(launches_by_name[number], before)) for number in matching)
    return out


def _containing(wanted: str, whole: str, firsts: Ints, bares: Sequence[str]) -> list[int]:
    """Return which of `bares` contain `wanted`, ascending. `whole` is all of them joined, `firsts` where each begins in it:
    one search in a long text is ten times as fast as one in each of many short ones."""
    if not wanted or _SEPARATOR in wanted:
        return [index for index, name in enumerate(bares) if wanted and wanted in name]
    out: list[int] = []
    place = whole.find(wanted)
    while place >= 0:
        index = int(np.searchsorted(firsts, place, side="right")) - 1
        out.append(index)
        place = whole.find(wanted, int(firsts[index]) + len(bares[index]))
    return out


def tune_fields(frame: Frame, row: int, kernel: str) -> dict[str, Any]:
    """Return what the tuner would be asked, by the operators around a launch; {} where it has no such problem."""
    operator = int(frame.operator[row])
    around = [(frame.text(row_above), frame.arguments(row_above)) for row_above in (frame.path(operator) if operator >= 0 else [])
              if frame["category"][row_above] == Category.CPU_OP][:12]
    tuning = tunable.tunable(kernel, around)
    fields = {"operator": tuning.operator, **tuning.shape, "dtype": tuning.dtype}
    return fields if tunable.is_problem(fields) else {}


def _text(value: Any, limit: int) -> str:
    """"[[4096, 4096], [4096, 1024]]" as people read it: "4096×4096, 4096×1024"."""
    if isinstance(value, str):
        return clip_name(value, limit)
    if not isinstance(value, list):
        return ""
    parts = [dims_text(entry) if isinstance(entry, list) else str(entry) for entry in value]
    return clip_name(", ".join(part for part in parts if part and part not in ("Scalar", "ScalarList")), limit)
