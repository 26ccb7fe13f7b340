"""Documents of the topics about what ran: "operators", "layer", "communication", "memory"."""

from __future__ import annotations

from typing import Literal, TypedDict

from profiles.analysis.trace.breakdown import NamedTime
from profiles.topics.table import Times, TopicDocument


class Products(TypedDict):
    """Time of matrix products that ran on tensor cores, that did not and could, beside them, and of which it is not known."""

    yes_ns: int
    no_ns: int
    beside_ns: int
    unknown_ns: int


class OperatorBar(Products):
    name: str
    total_ns: int
    other_ns: int


class OperatorNode(TypedDict):
    """A node of a tree, parents before children; `parent` -1: a root."""

    name: str
    parent: int
    total_ns: int
    own_ns: int
    count: int


class OperatorsNumbers(TypedDict, total=False):
    gpu_ns: int
    known_pct: float
    kind: str
    products: Products
    bars: list[OperatorBar]
    stacks: list[OperatorNode]
    module_kind: str
    modules: list[OperatorNode]


class OperatorsDocument(TopicDocument):
    topic: Literal["operators"]
    numbers: OperatorsNumbers


class Rated(TypedDict):
    """Work beside the GPU's ceilings: rates, the roof above it, the least time, and what the numbers are."""

    operator: str
    kind: str
    dtype: str
    precision: str
    gpu: str
    launches: int
    total_ns: int
    flop: float | None
    bytes: float | None
    note: str
    kernel: str
    longest: int
    flop_s: float | None
    bytes_s: float | None
    intensity: float | None
    ridge: float | None
    side: str
    floor_ns: float | None
    roof_pct: float | None
    ceiling: str
    limit: str
    mark: str
    why: str


class LayerRow(Rated):
    part: str
    is_named: bool
    sizes: str
    calls: int
    per_layer_ns: float | None
    flop_per_layer: float | None
    bytes_per_layer: float | None
    verdict: str


class WorkRow(Rated):
    dims: str
    text: str
    min_ns: int
    max_ns: int
    basis: str
    part_of: bool


class CollectiveRow(TypedDict):
    kernel: str
    operation: str
    ranks: int | None
    dtype: str
    launches: int
    total_ns: int
    message_bytes: float | None
    bus_bytes: float | None
    longest: int
    bus_bytes_s: float | None
    algorithm_bytes_s: float | None


class LayerGaps(TypedDict):
    passes: int
    span_ns: int
    idle_ns: int
    longest_ns: int
    idle_pct: float


class LayerGpu(TypedDict):
    """Ceilings of a model by name: of its data sheet, and as they were measured."""

    sheet: dict[str, float]
    measured: dict[str, float]
    label: str
    l2_bytes: float | None


class LayerNumbers(TypedDict, total=False):
    compute_ns: int
    kernels_ns: int
    known_pct: float
    layers: int
    steps: int
    sized_layers: int
    gaps: LayerGaps | None
    layer: list[LayerRow]
    work: list[WorkRow]
    collectives: list[CollectiveRow]
    gpus: dict[str, LayerGpu]


class LayerDocument(TopicDocument):
    topic: Literal["layer"]
    numbers: LayerNumbers


class RankNumbers(TypedDict):
    label: str
    launches: int
    busy_ns: int
    exposed_ns: int
    kernel_ns: int
    wait_ns: int | None
    still_ns: int | None
    matched_ns: int
    late: int
    start_wait_ns: int
    hidden_pct: float | None


class LateRank(TypedDict):
    """A rank that others waited for: how long, why, and what its host and GPU did meanwhile ([name, ns] each)."""

    label: str
    meetings: int
    waited_ns: int
    still_ns: int
    cost_ns: int
    causes_ns: Times
    cause: str
    host: list[tuple[str, int]]
    kernels: list[tuple[str, int]]
    window: str


class RankPairs(TypedDict, total=False):
    """Who (row) waited for whom (column); nothing where no collective met."""

    labels: list[str]
    wait_ns: list[list[int]]
    still_ns: list[list[int]]
    collectives: list[list[int]]


class WaitPoint(TypedDict):
    start_ns: int
    collectives: int
    late: str
    wait_ns: int
    transfer_ns: int


class CollectiveSize(TypedDict):
    """Collectives of one size; `at_least`: without the time of the transfer the rates are bounds."""

    operation: str
    bytes: int | None
    ranks: int | None
    launches: int
    bus_bytes_s: float | None
    best_bus_bytes_s: float | None
    algorithm_bytes_s: float | None
    one_ns: float
    at_least: bool


class CommunicationNumbers(TypedDict, total=False):
    wall_ns: int
    start_ns: int
    launches: int
    meetings: int
    unmatched: int
    complete: int
    ranks_of_job: int | None
    start_wait_ns: int
    on_host: bool
    clock: str
    clock_residual_ns: float | None
    skew_p50_ns: float | None
    ranks: list[RankNumbers]
    late: list[LateRank]
    pairs: RankPairs
    series: list[WaitPoint]
    sizes: list[CollectiveSize]
    left_out: int


class CommunicationDocument(TopicDocument):
    topic: Literal["communication"]
    numbers: CommunicationNumbers


class MemorySeries(TypedDict):
    """What a GPU holds over time, bytes, by category."""

    time_ns: list[int]
    total_bytes: list[int]
    reserved_bytes: list[float | None] | None
    parts: dict[str, list[int]]


class MemoryGpu(TypedDict):
    label: str
    device: int
    peak_bytes: int
    peak_ns: int
    capacity_bytes: int | None
    parts_bytes: dict[str, int]
    baseline_bytes: int | None
    baseline_known: bool
    series: MemorySeries


class MemoryState(TypedDict):
    """What an allocator held at the end of the trace."""

    device: int
    allocated_bytes: int
    active_bytes: int
    reserved_bytes: int
    unused_bytes: int
    stuck_bytes: int
    largest_unused_bytes: int
    unused_blocks: int
    used_blocks: int
    segments: int


class CallSum(NamedTime):
    count: int


class CopySum(TypedDict):
    name: str
    count: int
    total_ns: int
    bytes: int | None
    bytes_s: float | None


class MemoryNumbers(TypedDict, total=False):
    wall_ns: int
    start_ns: int
    devices: list[MemoryGpu]
    state: list[MemoryState]
    failures: int
    limits: dict[str, float]
    calls: list[CallSum]
    copies: list[CopySum]


class MemoryDocument(TopicDocument):
    topic: Literal["memory"]
    numbers: MemoryNumbers
