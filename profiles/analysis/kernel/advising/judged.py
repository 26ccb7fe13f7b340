"""Measures of a launch beside the values that people judge them by, each with its source.

MEASURES is the table: thresholds are data, shown on the page with where they come from. What NVIDIA states is named with the
place; what is only common practice says "rule of thumb", and a low value alone is never advice: a kernel that reads each byte
once has nothing to hit in a cache. Shares of a unit's peak take theirs from `ingest.naming.bands`, as the texts beside them do:
poor is the lowest band, good what lies above the second. Metrics: Kernel Profiling Guide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from profiles.analysis.kernel.facts import LaunchFacts
from profiles.ingest.naming.bands import BANDS

_THUMB = "rule of thumb"


@dataclass(frozen=True)
class Measure:
    """`good_pct` and `poor_pct`: at or above, below; both in 0-100 of what `metric` says."""

    key: str
    label: str
    metric: str
    good_pct: float
    poor_pct: float
    source: str
    read: Callable[[LaunchFacts], float | None]
    note: str = ""                   # what the value does not say


@dataclass(frozen=True)
class Judged:
    measure: Measure
    value: float | None
    verdict: str                     # "good" | "fair" | "poor" | "" unknown


MEASURES: tuple[Measure, ...] = (
    Measure("sm_busy", "SM busy", "sm__instruction_throughput", BANDS["sm"].limits[1], BANDS["sm"].limits[0], BANDS["sm"].source,
            lambda facts: facts.signals.get("sm_busy_pct"), "A memory-bound kernel needs no busy SMs."),
    Measure("dram", "DRAM bandwidth", "gpu__dram_throughput", BANDS["dram"].limits[1], BANDS["dram"].limits[0],
            BANDS["dram"].source,
            lambda facts: facts.sol.dram_pct, "Low is no fault where data stays in the caches."),
    Measure("l1_hit", "L1 hit rate, all accesses of the launch", "l1tex__t_sector_hit_rate", 80.0, 50.0, _THUMB,
            lambda facts: facts.caches.l1_hit_pct, "Of what is read once nothing can hit; TMA and cp.async.bulk pass by the L1."),
    Measure("l2_hit", "L2 hit rate, all accesses of the launch", "lts__t_sector_hit_rate", 70.0, 40.0, _THUMB,
            lambda facts: facts.caches.l2_hit_pct, "Half of a copy's accesses are writes, which count as hits."),
    Measure("occupancy", "Occupancy, achieved", "sm__warps_active", 75.0, 50.0, _THUMB,
            lambda facts: facts.occupancy.achieved_pct, "Tensor-core kernels are often best at one or two blocks per SM."),
)


def judge(facts: LaunchFacts) -> list[Judged]:
    """Return every measure with its verdict, in the order of the table."""
    return [Judged(each, value, _verdict(value, each)) for each in MEASURES for value in (each.read(facts),)]


def _verdict(value: float | None, measure: Measure) -> str:
    if value is None:
        return ""
    return "good" if value >= measure.good_pct else "poor" if value < measure.poor_pct else "fair"


def limit(key: str) -> float:
    """Return the value from which on a measure is good."""
    return next(each.good_pct for each in MEASURES if each.key == key)
