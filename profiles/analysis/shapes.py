"""The launches of each kernel by what they worked on: grid and block, and what the framework operator around them says.

Two launches of one kernel are the same work where grid and block are; a shape bucket is the nearest power of two of all
threads, so that it outlives a change of the block (the rule of `tuner.cache.bucket`: each dimension to its nearest power
of two). Everything here is grouped in numpy: a profile of a million launches has some hundred shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.analysis import tunable
from profiles.analysis.frame import Frame
from profiles.analysis.names import fold_templates, strip_parameters
from profiles.trace import Category

Ints = npt.NDArray[np.int64]
SHAPES_PER_KERNEL = 24          # those of most time; the others are one row
SHAPES_PER_PROFILE = 4_000
DESCRIBED = 300                 # shapes of most time whose operator is looked up
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
    shapes: int = 1
    index: int | None = None                # of the longest launch, among all kernels by start
    slice_id: int | None = None             # of the longest launch, in the timeline
    skip: int | None = None                 # launches before it that the function's bare name matches too
    operator: str = ""                      # framework operator around the longest launch, its shapes and types
    dims: str = ""
    dtype: str = ""
    tune: Mapping[str, Any] = field(default_factory=dict)


def shapes_of(frame: Frame) -> list[Shape]:
    """Of a trace: most time first."""
    rows = frame.kernels
    if not rows.size:
        return []
    geometry = np.stack([frame[name][rows].astype(np.int64) for name in _GEOMETRY], axis=1)
    names = frame["name"][rows].astype(np.int64)
    found = grouped(names, geometry, frame["dur_ns"][rows].astype(np.float64), lambda code: frame.names[code])
    skips = _skips(names, frame.names, found)
    described = {id(each) for each in sorted(found, key=lambda each: -each.total_ns)[:DESCRIBED]}
    out = []
    for at, shape in enumerate(found):
        row = int(rows[shape.index]) if shape.index is not None else -1
        told = _operator(frame, row, shape.kernel) if row >= 0 and id(shape) in described else {}
        out.append(Shape(**{**shape.__dict__, "slice_id": int(frame["id"][row]) if row >= 0 else None,
                            "skip": skips[at], **told}))
    return out


def grouped(names: Ints, geometry: Ints, dur_ns: npt.NDArray[np.float64], text: Any) -> list[Shape]:
    """Groups of (name, grid, block), most time first; `geometry` has six columns, unknown ones negative. Bounded: see above."""
    table = np.column_stack([names, np.where(geometry < 0, -1, geometry)])
    codes = _codes(table)           # `np.unique(axis=0)` compares rows as bytes, 20 times slower
    order = np.lexsort((dur_ns, codes))
    starts = np.flatnonzero(np.concatenate(([True], np.diff(codes[order]) != 0)))
    ends = np.append(starts[1:], order.size)
    totals = np.add.reduceat(dur_ns[order], starts)
    out: list[Shape] = []
    rest: dict[int, list[int]] = {}
    taken: dict[int, int] = {}
    for at in np.argsort(-totals, kind="stable").tolist():
        longest = int(order[ends[at] - 1])
        name = int(names[longest])
        if taken.get(name, 0) >= SHAPES_PER_KERNEL or len(out) >= SHAPES_PER_PROFILE:
            rest.setdefault(name, []).append(at)
            continue
        taken[name] = taken.get(name, 0) + 1
        grid, block = geometry[longest, :3].tolist(), geometry[longest, 3:].tolist()
        out.append(Shape(
            text(name), _dims(grid), _dims(block), bucket(grid, block), int(ends[at] - starts[at]), round(float(totals[at])),
            round(float(dur_ns[order[starts[at]]])), round(float(dur_ns[longest])), index=longest))
    for name, groups in rest.items():
        out.append(Shape(
            text(name), "", "", None, sum(int(ends[at] - starts[at]) for at in groups), round(float(totals[groups].sum())),
            min(round(float(dur_ns[order[starts[at]]])) for at in groups),
            max(round(float(dur_ns[order[ends[at] - 1]])) for at in groups), shapes=len(groups)))
    return out


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


def _dims(dims: Sequence[int]) -> str:
    return "×".join(str(each) for each in dims) if all(each > 0 for each in dims) else ""


def bucket(grid: Sequence[int], block: Sequence[int]) -> int | None:
    """log2 of all threads, rounded; None where grid or block is not known."""
    if not all(each > 0 for each in (*grid, *block)):
        return None
    return round(float(np.sum(np.log2(np.array([*grid, *block], np.float64)))))


def bare(name: str) -> str:
    """The function's name alone, which is what `ncu --kernel-name` compares with (its default, `function`)."""
    plain = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    return fold_templates(strip_parameters(plain)).replace("<…>", "").strip().rsplit(" ", 1)[-1].rsplit("::", 1)[-1]


def _skips(names: Ints, texts: Sequence[str], shapes: Sequence[Shape]) -> list[int | None]:
    """For each shape how many launches before its longest one ncu's filter on the bare name matches: its --launch-skip."""
    used = np.unique(names)
    bares = {int(code): bare(texts[int(code)]) for code in used}
    before: dict[str, Ints] = {}
    out: list[int | None] = []
    for shape in shapes:
        if shape.index is None:
            out.append(None)
            continue
        wanted = bare(shape.kernel)
        if wanted not in before:
            matching = [code for code, text in bares.items() if wanted and wanted in text]
            mine = np.zeros(max(bares, default=0) + 1, np.bool_)
            mine[matching] = True
            before[wanted] = np.cumsum(mine[names])
        out.append(int(before[wanted][shape.index]) - 1)
    return out


def _operator(frame: Frame, row: int, kernel: str) -> dict[str, Any]:
    """What the operators around a launch say: the innermost with shapes, and what the tuner would be asked."""
    operator = int(frame.operator[row])
    around = [(frame.text(each), frame.arguments(each)) for each in (frame.path(operator) if operator >= 0 else [])
              if frame["category"][each] == Category.CPU_OP][:12]
    told = next(((name, given) for name, given in around if given.get("Input Dims")), around[0] if around else ("", {}))
    made = tunable.tunable(kernel, around)
    tune = {"operator": made.operator, **made.shape, **({"dtype": made.dtype} if made.dtype else {})} if made.operator else {}
    return {"operator": told[0][:120], "dims": _text(told[1].get("Input Dims"), 300), "dtype": _text(told[1].get("Input type"), 60),
            "tune": tune}


def _text(value: Any, limit: int) -> str:
    """"[[4096, 4096], [4096, 1024]]" as people read it: "4096×4096, 4096×1024"."""
    if isinstance(value, str):
        return value[:limit]
    if not isinstance(value, list):
        return ""
    parts = ["×".join(str(dim) for dim in each) if isinstance(each, list) else str(each) for each in value]
    return ", ".join(part for part in parts if part and part not in ("Scalar", "ScalarList"))[:limit]
