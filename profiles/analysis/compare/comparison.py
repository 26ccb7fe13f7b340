"""What a comparison of two sets of kernel launches says: kernels, their launch shapes, both sides of each."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from profiles.base.words import dims_text

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
