"""What the counters of one launch come to, before anything is said of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from profiles.analysis.kernel import stalls
from profiles.analysis.kernel.roofline import Level, Point, Roofs


@dataclass(frozen=True)
class SpeedOfLight:
    """Share of peak, 0-100, while the kernel ran."""

    sm_pct: float | None
    memory_pct: float | None
    dram_pct: float | None
    l2_pct: float | None
    l1_pct: float | None


@dataclass(frozen=True)
class OccupancyFacts:
    theoretical_pct: float | None
    achieved_pct: float | None
    blocks_per_sm: int | None
    warps_per_sm: int | None
    limits: dict[str, int]                   # limiter -> blocks per SM
    limiters: list[str]
    waves: float | None
    tail_pct: float | None                   # how full the last wave is
    tail_loss_pct: float | None              # of all block slots, left empty by the last wave
    source: str                              # "report" | "computed" | ""


@dataclass(frozen=True)
class Scheduler:
    """Per scheduler and active cycle."""

    active_warps: float | None
    eligible_warps: float | None
    issued: float | None                     # 0-1
    ipc: float | None                        # instructions per SM cycle


@dataclass(frozen=True)
class Caches:
    l1_hit_pct: float | None
    l2_hit_pct: float | None
    dram_read_bytes: float | None
    dram_write_bytes: float | None


@dataclass(frozen=True)
class LaunchFacts:
    """One launch, as pages read it. Units are in the names."""

    index: int
    kernel: str
    device: str
    compute_capability: str | None
    duration_ns: float | None
    sm_clock_hz: float | None
    dram_clock_hz: float | None
    grid: list[int] | None
    block: list[int] | None
    sol: SpeedOfLight
    occupancy: OccupancyFacts
    launch: dict[str, float | str]           # launch parameters the report states
    stalls: list[stalls.Stall]
    samples: dict[str, int]
    scheduler: Scheduler
    caches: Caches
    roofs: Roofs
    point: Point
    tensor_instructions: dict[str, float]    # operations by instruction: "hgmma", "hmma", …
    bound: str                               # "memory" | "compute" | "latency" | "launch" | ""
    bound_reason: str
    incomplete: str | None = None
    bounded: Bound | None = None             # the same with its ceiling, how far, and what moves it
    levels: dict[str, Level] = field(default_factory=dict)    # "l1", "l2", "dram" -> traffic there
    signals: dict[str, float] = field(default_factory=dict)   # of `counters.signals`; a profile of an older version has none

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Bound:
    """`kind` with the sentence it rests on, the ceiling it stands under, and what moves it."""

    kind: str                    # "memory" | "compute" | "latency" | "launch" | "" unknown
    reason: str                  # the numbers
    ceiling: str = ""            # "DRAM", "L2", "BF16 tensor", "issue slots or a pipe without FLOPs"
    reached_pct: float | None = None     # of that ceiling
    left_pct: float | None = None        # of its time that the ceiling would give back: 100 − reached
    helps: tuple[str, ...] = ()
    useless: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
