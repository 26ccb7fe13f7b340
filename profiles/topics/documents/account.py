"""Documents of the topics "causes" and "needed": what the time went to, and what of it need not be."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from profiles.analysis.trace.breakdown import NamedTime
from profiles.base.answers import Numbers, Scalar
from profiles.topics.table import Times, TopicDocument


class CausePart(TypedDict):
    """Time of a GPU, or of all, under one cause; `recoverable_ns` null: what it would win is not known."""

    cause: str
    where: str
    rank: int | str | None
    wall_ns: int
    share_pct: float
    recoverable_ns: float | None


class CauseRow(CausePart):
    gpu: int
    evidence: dict[str, Scalar | list[NamedTime]]


class CauseGroup(CausePart):
    label: str
    side: str
    text: str


class CauseLead(CausePart):
    text: str
    label: NotRequired[str]


class LabelledGpu(TypedDict):
    gpu: int
    label: str


class CausesNumbers(TypedDict, total=False):
    """All time of every GPU under one cause each; `lead`: what is to be mended first; `leads`: findings that say so."""

    wall_ns: int
    lead: CauseLead | None
    causes: list[CauseRow]
    groups: list[CauseGroup]
    gpus: list[LabelledGpu]
    leads: list[str]
    steps: int
    step_ns: float | None


class CausesDocument(TopicDocument):
    topic: Literal["causes"]
    numbers: CausesNumbers


class NeededGpu(LabelledGpu):
    """What a GPU's time went to: what the work needs at least, and by name what it does besides."""

    model: str
    wall_ns: int
    steps: int
    tail_ns: int
    parts: Times
    flop: float
    step_ns: list[float]
    needed_pct: float | None


class NeededKind(TypedDict):
    """Work that need not be, of one kind: what it takes, what stays of it after the change, and what that wins."""

    kind: str
    title: str
    launches: int
    takes_ns: float
    stays_least_ns: float
    stays_most_ns: float
    gone_ns: float
    gain_least_ns: float
    gain_most_ns: float
    gain_step_least_ns: float
    gain_step_most_ns: float
    certain: bool
    change: str
    not_worth: str
    source: str
    text: str
    places: list[Numbers]


class SlowKernel(TypedDict):
    """Launches that take longer than their problem needs; `tune`: the problem, where it can be tuned."""

    kernel: str
    operator: str
    sizes: str
    launches: int
    takes_ns: float
    least_ns: float
    choice: str
    tune: dict[str, Scalar] | None
    longest: int
    short_name: str
    lost_ns: float
    of_ceiling_pct: float | None


class NeededRange(TypedDict):
    """A range of the program: what its launches take and need at least, with those within it and alone."""

    name: str
    within: str
    parent: int
    launches: int
    takes_ns: float
    least_ns: float
    unknown_ns: float
    own_takes_ns: float
    own_least_ns: float


class NeededLayerPart(TypedDict):
    part: str
    launches: int
    takes_ns: float
    least_ns: float
    unknown_ns: float


class NeededNumbers(TypedDict, total=False):
    gpus: list[NeededGpu]
    needed_pct: float | None
    has_shapes: bool
    has_least: bool
    kinds: list[NeededKind]
    slow: list[SlowKernel]
    range_kind: str
    ranges: list[NeededRange]
    layers: int
    layer_parts: list[NeededLayerPart]
    ceilings: dict[str, str]


class NeededDocument(TopicDocument):
    topic: Literal["needed"]
    numbers: NeededNumbers
