"""What the API answers of a comparison."""

from __future__ import annotations

from typing import TypedDict

from profiles.analysis.compare.comparison import Side
from profiles.analysis.compare.operations import Work
from profiles.analysis.compare.step import Foretold
from profiles.analysis.compare.why import CounterChange, Why


class ComparedProfileJson(TypedDict):
    id: int
    name: str
    build: str


class ComparedSideJson(TypedDict):
    """One side of a comparison: what was asked for, and the profiles it stands for."""

    label: str
    build: str
    gpus: list[str]
    steps: int | None
    profiles: list[ComparedProfileJson]


class StepPartJson(TypedDict):
    name: str
    title: str
    old_ns: float
    new_ns: float
    delta_ns: float


class StepChangeJson(TypedDict):
    """How much longer a step takes, in parts that add up to it, and its causes, largest first; `_tail_ns`: behind its end."""

    old_ns: float
    new_ns: float
    old_range_ns: tuple[float, float]
    new_range_ns: tuple[float, float]
    old_steps: int
    new_steps: int
    old_tail_ns: float
    new_tail_ns: float
    parts: list[StepPartJson]
    causes: list[StepPartJson]
    foretold: list[Foretold]
    delta_ns: float
    change_pct: float | None
    answer: str
    foretold_least_ns: float | None
    foretold_most_ns: float | None
    outcome: str


class OperationJson(TypedDict):
    """An operation of the model on both sides."""

    kind: str
    phase: str
    what: str
    modules: list[str]
    old: Work
    new: Work
    verdict: str
    says: str
    parts: list[OperationJson]
    delta_ns: float
    change_pct: float | None


class ComparedKernelJson(TypedDict):
    """A kernel over all its shapes; `rows`: positions in `rows`, largest change first."""

    kernel: str
    rows: list[int]
    verdict: str
    says: str
    old_total_ns: float
    new_total_ns: float
    old_launches: int
    new_launches: int
    change_pct: float | None
    old_mean_ns: float | None
    new_mean_ns: float | None
    delta_ns: float


class ComparedRowJson(TypedDict):
    """A kernel's shape on both sides (`comparison.Row`), its counters, and why it takes another time where they tell."""

    kernel: str
    shape: str
    problem: str
    old: Side | None
    new: Side | None
    matched: str
    confidence: str
    old_total_ns: float
    new_total_ns: float
    delta_ns: float
    from_launches_ns: float
    from_duration_ns: float
    change_pct: float | None
    noise_pct: float | None
    verdict: str
    work_change_pct: float | None
    counters: list[CounterChange]
    why: Why | None


class ComparisonJson(TypedDict):
    """Two profiles or builds, kernel by kernel; `b` is the new one. Counts of verdicts are of `rows` and of `kernels`."""

    answer: str
    a: ComparedSideJson
    b: ComparedSideJson
    kind: str
    kinds: list[str]
    per: str
    comparable: bool
    notes: list[str]
    old_total_ns: float
    new_total_ns: float
    delta_ns: float
    verdicts: dict[str, int]
    kernel_verdicts: dict[str, int]
    step: StepChangeJson | None
    operations: list[OperationJson]
    kernels: list[ComparedKernelJson]
    rows: list[ComparedRowJson]
