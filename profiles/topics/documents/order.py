"""Documents of the topics about when what ran: "time", "launches", "sequences", "critical-path", "gpu-metrics"."""

from __future__ import annotations

from typing import Literal, TypedDict

from profiles.analysis.trace.breakdown import NamedTime
from profiles.base.answers import Scalar
from profiles.topics.table import Times, TopicDocument


class TimeClasses(TypedDict):
    """GPU time in classes and parts; `bound`: the class that holds it back."""

    bound: str
    total_ns: float
    of_classes_ns: float
    classes_ns: Times
    parts_ns: Times


class TimePhase(TimeClasses):
    phase: str
    label: str
    host_ns: float | None


class LongKernel(NamedTime):
    full: str


class TimeEvidence(TypedDict):
    kernels: dict[str, list[LongKernel]]        # by class
    small_kernels: int
    small_kernel_ns: int
    host: dict[str, list[NamedTime]]            # by cause of idle time


class TimeGpu(TypedDict):
    index: int
    label: str
    name: str
    rank: str
    wall_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    communication_ns: int
    memory_ns: int
    communication_overlapped_ns: int
    memory_overlapped_ns: int
    span_ns: int
    idle_in_span_ns: int
    idle_causes_ns: Times
    parts_ns: Times


class KernelsOf(TypedDict):
    kernels: int
    ns: int


class OutsideSteps(TypedDict):
    launched: KernelsOf | None
    ran: KernelsOf


class TimeStep(TypedDict):
    """One step; `counts` false: it is left out of the means, and `why`."""

    name: str
    rank: str
    start_ns: int
    end_ns: int
    dur_ns: int
    counts: bool
    why: str
    bound: str
    busy_ns: float
    parts_ns: Times
    launched: KernelsOf | None
    ran: KernelsOf


class TimeSteps(TypedDict):
    source: str
    how: str
    total: int
    counted: int
    mean_ns: float | None
    min_ns: float | None
    max_ns: float | None
    mean_parts_ns: dict[str, float | None]
    kernels: int
    kernels_elsewhere: int
    outside: OutsideSteps | None
    rows: list[TimeStep]


class TimePart(TypedDict):
    label: str
    of: str
    meaning: str


class TimeNumbers(TypedDict, total=False):
    start_ns: int
    wall_ns: int
    of: str
    classes: TimeClasses
    evidence: TimeEvidence
    devices: list[TimeGpu]
    steps: TimeSteps
    phases: list[TimePhase]
    limits: dict[str, float]
    parts: dict[str, TimePart]


class TimeDocument(TopicDocument):
    topic: Literal["time"]
    numbers: TimeNumbers


class DelayBin(TypedDict):
    """Launches whose kernel began so long after their call, by what the time was."""

    from_ns: float
    to_ns: float | None
    in_call: int
    queued: int
    ready: int


class StreamQueue(TypedDict):
    stream: str
    mean: float
    most: int
    blocked_ns: int
    time_ns: list[int]
    depth: list[int]


class LaunchesNumbers(TypedDict, total=False):
    gpus: int
    wall_ns: int
    start_ns: int
    end_ns: int
    launches: int
    delay_p50_ns: float | None
    delay_p95_ns: float | None
    delay_max_ns: float | None
    in_call_p50_ns: float | None
    queued_p50_ns: float | None
    ready_p50_ns: float | None
    behind_pct: float | None
    delay_bins: list[DelayBin]
    queue_blocked_ns: int
    queue_most: int
    queues: list[StreamQueue]
    queue_limit: int
    queue_full_from: int
    kernels: int
    kernel_ns: int
    short_kernels: int
    short_ns: int
    short_pct: float | None
    short_limit_ns: float
    gap_limit_ns: float
    graph_won_ns: float
    graph_won_launches: int
    graph_launches: int
    graph_nodes_run: int
    kept_gap_ns: float | None
    late_ns: int
    idle_ns: int
    runtime_calls: int
    runtime_ns: int
    outliers: int
    outlier_ns: int
    outlier_excess_ns: float
    outlier_idle_ns: int
    outlier_longest: str | None
    copy_exposed_ns: int
    copy_total_ns: int
    serial_saved_ns: float
    unsteady_launches: int
    unsteady_ns: float
    unsteady_limit_ns: float
    floor_ns: float | None
    thresholds_pct_of_wall: dict[str, float]


class LaunchesDocument(TopicDocument):
    topic: Literal["launches"]
    numbers: LaunchesNumbers


class DrawnSequence(TypedDict):
    """Kernels that come one after the other again and again: what one kernel in their place would save."""

    label: str
    runs: int
    saved_ns: float
    gaps_ns: int
    total_ns: int
    launches_saved: int
    saved_bytes: int | None
    bound: str
    slice: int
    window: str


class SequencesNumbers(TypedDict, total=False):
    kernels: int
    kernel_ns: int
    candidates: int
    runs: int
    launches_saved: int
    saved_ns: float
    gaps_ns: int
    wall_ns: int
    gpus: int
    saved_bytes: int | None
    without_shapes: int
    patterns: int
    drawn: list[DrawnSequence]


class SequencesDocument(TopicDocument):
    topic: Literal["sequences"]
    numbers: SequencesNumbers


class PathKind(TypedDict):
    key: str
    label: str
    side: str
    means: str


class CriticalNumbers(TypedDict, total=False):
    """`paths`: of each its window and the time of every kind, as `{kind}_ns`."""

    paths: list[dict[str, Scalar]]
    main: str
    kinds: list[PathKind]
    inferred: int
    segments: int
    cpu_pct: float
    gpu_pct: float
    wait_pct: float
    wall_ns: int
    off_path_ns: int
    gpu_busy_ns: int
    kernel_ns: int


class CriticalDocument(TopicDocument):
    topic: Literal["critical-path"]
    numbers: CriticalNumbers


class SampledNumbers(TypedDict, total=False):
    """`gpus`: of each its period, busy time and the mean of every metric while kernels ran, as `{metric}_pct`."""

    limits: dict[str, float]
    dense_periods: float
    gpus: list[dict[str, Scalar]]


class SampledDocument(TopicDocument):
    topic: Literal["gpu-metrics"]
    numbers: SampledNumbers
