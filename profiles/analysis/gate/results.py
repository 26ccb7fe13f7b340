"""What a comparison says: shapes that reports, rows and pages share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from profiles.analysis.gate.rule import Verdict


@dataclass(frozen=True)
class Interval:
    """A ratio of candidate to baseline with its interval; 1.08 is 8 % slower."""

    ratio: float
    low: float
    high: float
    p_value: float | None = None                # one-sided: of so large a slowdown among identical builds
    confidence: float | None = None             # that the true ratio lies in the interval; low end at the suite's corrected risk
    verdict: Verdict | None = None              # by this number alone


@dataclass(frozen=True)
class KernelVerdict:
    """One kernel of a suite, judged."""

    op: str
    shape: Any                                  # as the runs say it: a mapping, in files also a list, a text, a number
    config: Any
    key: str
    verdict: Verdict
    reason: str                                 # one sentence with numbers, for a person
    p50: Interval | None = None
    p95: Interval | None = None
    baseline_us: float | None = None            # median of run medians
    candidate_us: float | None = None
    baseline_runs: int = 0
    candidate_runs: int = 0
    detectable: float | None = None             # smallest slowdown that so many runs of this noise would show: 0.034 is 3.4 %
    false_alarms: float | None = None           # share of A/A comparisons of the baseline's own runs that end SLOWER
    more_runs: int = 0                          # AMBIGUOUS: further fresh runs of each build that should decide
    metrics: Sequence[Mapping[str, Any]] = ()   # judged beside time: {"metric", "baseline", "candidate", "verdict", "reason"}
    clocks: Mapping[str, Any] = field(default_factory=dict)     # {"baseline_mhz", "candidate_mhz", "cycles_ratio", "says"}
    excluded: Sequence[str] = ()                # runs that were left out, and why
    change: str = "unknown"                     # "slower", "faster": surely another p50, whatever the target; "none"; "unknown"
    baseline_config: Any = None                 # where a kernel is one (op, shape) and its configuration changed
    name: str = ""                              # for people, unlike any other of the suite's


@dataclass(frozen=True)
class SuiteVerdict:
    """All kernels, worst first."""

    verdict: Verdict
    reason: str
    kernels: Sequence[KernelVerdict]
    alpha: float                                # stated risk of a false SLOWER for the suite
    plan: Mapping[str, Any] = field(default_factory=dict)       # are the runs enough for so many kernels, and how many would be
