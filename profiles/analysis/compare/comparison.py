"""What a comparison of two sets of kernel launches says: kernels, their launch shapes, both sides of each.

It is made from kernel launches one by one, as columns. They are kept beside the profile (a few bytes per launch), so that comparing
reads nothing else.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from profiles.analysis.core.digest import SHAPE, digest_of
from profiles.analysis.core.kernels import dictionary, numbers
from profiles.analysis.kernel.counters import MOST_NS, block_number
from profiles.base.words import dims_text
from profiles.ingest.trace import KERNELS, Report, Trace
from profiles.ingest.windows import MISSING, MISSING32

__all__ = ["LAUNCHES", "launches_of_report", "launches_of_trace"]
_name = pa.dictionary(pa.int32(), pa.string())
# Ordered by kernel, within a kernel by start: the order is the only trace of which problem a launch worked on.
LAUNCHES = pa.schema([
    ("name", _name),                    # demangled, full
    ("grid_x", pa.int32()), ("grid_y", pa.int32()), ("grid_z", pa.int32()),
    ("block_x", pa.int32()), ("block_y", pa.int32()), ("block_z", pa.int32()),
    ("registers_per_thread", pa.int32()),
    ("smem_bytes", pa.int64()),
    ("dur_ns", pa.float64()),           # null: not measured (counters alone)
    ("index", pa.int64()),              # position among the kernels of the profile, by start
])


def launches_of_trace(trace: Trace) -> pa.Table:
    """LAUNCHES of every kernel of the trace (annotations, copies and instants are no launches)."""
    work, names = digest_of(trace).work, trace.parts.names
    rows = np.flatnonzero(np.isin(work["category"], [int(category) for category in KERNELS]) & ~work["instant"])
    used, code = np.unique(work["name"][rows], return_inverse=True)
    texts = pa.array([names[number] for number in used.tolist()], pa.string())
    arrays = {"name": pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), texts),
              "dur_ns": pa.array(work["dur_ns"][rows]), "index": pa.array(np.arange(rows.size))}
    for name in SHAPE:
        values = work[name][rows]
        arrays[name] = pa.array(values, mask=values == (MISSING if name == "smem_bytes" else MISSING32))
    return _sort_launches(pa.table({name: arrays[name] for name in LAUNCHES.names}))


def launches_of_report(report: Report) -> pa.Table:
    """LAUNCHES of all launches; `dur_ns` is null where the report states none, or broke off in the launch."""
    rows = []
    for launch in report.launches:
        duration = launch.metrics.get("gpu__time_duration.sum")
        if launch.incomplete or not isinstance(duration, (int, float)) or not 0 <= duration < MOST_NS:
            duration = None
        grid, block = ([block_number(side) or None for side in sides or (None,) * 3] for sides in (launch.grid, launch.block))
        rows.append({
            "name": launch.kernel, "grid_x": grid[0], "grid_y": grid[1], "grid_z": grid[2],
            "block_x": block[0], "block_y": block[1], "block_z": block[2],
            "registers_per_thread": block_number(launch.metrics.get("launch__registers_per_thread")),
            "smem_bytes": _smem_bytes(launch.metrics), "dur_ns": duration, "index": launch.index,
        })
    return _sort_launches(pa.Table.from_pylist(rows, LAUNCHES))


def _sort_launches(table: pa.Table) -> pa.Table:
    """By name, then by position; one chunk, and a dictionary of the names that occur."""
    codes, names = dictionary(table, "name")
    used, ranks = np.unique(codes, return_inverse=True)
    order = np.lexsort((numbers(table, "index"), ranks))
    name = pa.DictionaryArray.from_arrays(pa.array(ranks[order], pa.int32()),
                                          pa.array([names[code] for code in used.tolist()], pa.string()))
    return table.take(pa.array(order)).set_column(0, "name", name).cast(LAUNCHES).combine_chunks()


def _smem_bytes(metrics: dict[str, float | str]) -> int | None:
    """Static and dynamic shared memory of a block, without what the driver adds."""
    parts = [block_number(metrics.get(f"launch__shared_mem_per_block_{kind}")) for kind in ("static", "dynamic")]
    sizes = [part for part in parts if part is not None]
    return sum(sizes) if sizes else None


SIGNS = {"slower": "▲", "faster": "▼", "unchanged": "=", "unknown": "?", "other_work": "≠", "new": "+", "gone": "−"}
VERDICTS = tuple(SIGNS)
_WORDS = {"unknown": "cannot tell", "other_work": "another amount of work"}


def verdict_text(verdict: str) -> str:
    """Return a verdict as people read it."""
    return _WORDS.get(verdict, verdict)


@dataclass(frozen=True)
class Side:
    """The launches of one kernel (and shape) on one side. Durations in ns; sd_ns is None with one launch."""

    name: str
    launches: int
    total_ns: float
    mean_ns: float
    p50_ns: float
    min_ns: float
    max_ns: float
    sd_ns: float | None
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    registers_per_thread: int | None
    smem_bytes: int | None
    indexes: tuple[int, ...] = field(default=(), repr=False)      # positions of the launches in their profile


@dataclass(frozen=True)
class Row:
    """One kernel (and shape) on both sides. Totals are per run or per step when the comparison is."""

    kernel: str                 # short name
    shape: str                  # "1 of 2" where one kernel has several rows
    problem: str                # operator and input shapes, "aten::mm 4096×4096, 4096×1024"; "" where not known on both sides
    old: Side | None
    new: Side | None
    matched: str                # how the launches found each other
    confidence: str             # that both sides are the same kernel: "certain" | "high" | "medium" | "low" | "" = one side only
    old_total_ns: float
    new_total_ns: float
    delta_ns: float
    from_launches_ns: float     # delta_ns == from_launches_ns + from_duration_ns
    from_duration_ns: float
    change_pct: float | None    # of the mean duration
    noise_pct: float | None     # a change of the mean below this is noise
    verdict: str                # "slower" | "faster" | "unchanged" | "unknown" | "other_work" (a launch) | "new" | "gone"
    work_change_pct: float | None = None        # of the mean work of a launch (FLOP, or bytes); None where it is not known

    def as_json(self) -> dict[str, Any]:
        row = asdict(self)
        for side in (row["old"], row["new"]):
            if side:
                del side["indexes"]
        return row


@dataclass(frozen=True)
class KernelChange:
    """One kernel with all of its shapes. Totals are sums of its rows; `verdict` is that of the shape that is worst off."""

    kernel: str                 # short name
    rows: tuple[int, ...]       # positions in Comparison.rows, largest change first
    verdict: str                # as Row's
    says: str                   # "1 of 3 shapes slower: 4096×4096, 4096×1024 +5.1 %"; "" where it has one shape
    old_total_ns: float
    new_total_ns: float
    old_launches: int
    new_launches: int
    change_pct: float | None    # of the mean duration over all shapes
    old_mean_ns: float | None = None        # of a launch over all shapes; None where that side has none
    new_mean_ns: float | None = None

    @property
    def delta_ns(self) -> float:
        return self.new_total_ns - self.old_total_ns

    @property
    def is_other_mix(self) -> bool:
        """Return whether the mean changed because the shapes are launched in another proportion: none of them changed."""
        return len(self.rows) > 1 and self.verdict == "unchanged" and bool(self.change_pct)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "rows": list(self.rows), "delta_ns": self.delta_ns}


@dataclass(frozen=True)
class Comparison:
    rows: list[Row]             # one per kernel and shape, largest change first
    old_total_ns: float
    new_total_ns: float
    kernels: list[KernelChange] = field(default_factory=list)       # largest change first

    def kernel_verdicts(self) -> dict[str, int]:
        """Return how many kernels have each verdict, a kernel of several shapes once."""
        return {verdict: sum(kernel.verdict == verdict for kernel in self.kernels) for verdict in VERDICTS}

    @property
    def delta_ns(self) -> float:
        return self.new_total_ns - self.old_total_ns

    def verdicts(self) -> dict[str, int]:
        return {verdict: sum(row.verdict == verdict for row in self.rows) for verdict in VERDICTS}


def name_shape(row: Row) -> str:
    """Return what tells a row's shape from the others of its kernel: the problem's sizes, else its grid and block."""
    if row.problem:
        return row.problem.split(" ", 1)[-1]
    side = row.new or row.old
    if side is None or side.grid is None:
        return f"shape {row.shape}" if row.shape else ""
    grid, block = (dims_text(dims) if dims else "" for dims in (side.grid, side.block))
    return f"grid {grid}" + (f", block {block}" if block else "")
