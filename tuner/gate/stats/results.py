"""What a comparison says: its dataclasses, the same as JSON (what the command prints and gates keep), its numbers in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from tuner.gate.stats.rank_test import Bounds
from tuner.gate.stats.rule import Verdict


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
    mean: Interval | None = None                # of the winsorised mean: GPU time a launch
    believed: bool = True                       # false: so large a change is looked at as a slip of units
    speeds: str = ""                            # where launches have two speeds: which, and how many
    back_at: str = ""                           # build whose speed, from before the kernel became faster, it has again


@dataclass(frozen=True)
class SuiteVerdict:
    """All kernels, worst first."""

    verdict: Verdict
    reason: str
    kernels: Sequence[KernelVerdict]
    alpha: float                                # stated risk of a false SLOWER for the suite
    plan: Mapping[str, Any] = field(default_factory=dict)       # are the runs enough for so many kernels, and how many would be


def suite_json(suite: SuiteVerdict) -> dict[str, Any]:
    """Return a suite's verdict as JSON.

    Ratios are candidate / baseline (1.08: 8 % slower), times µs, shares 0 to 1; null is unknown.
    """
    return {"verdict": suite.verdict.value, "reason": suite.reason, "alpha": suite.alpha, "plan": json_plain(dict(suite.plan)),
            "kernels": [kernel_json(kernel) for kernel in suite.kernels]}


def kernel_json(kernel: KernelVerdict) -> dict[str, Any]:
    p50, p95, mean = kernel.p50, kernel.p95, kernel.mean
    found = {
        "op": kernel.op, "shape": kernel.shape, "config": kernel.config, "key": kernel.key, "name": kernel.name,
        "verdict": kernel.verdict.value, "reason": kernel.reason,
        "ratio_p50": p50.ratio if p50 else None, "ci": _interval_ends(p50), "p_value": p50.p_value if p50 else None,
        "ratio_p95": p95.ratio if p95 else None, "ci_p95": _interval_ends(p95), "p_value_p95": p95.p_value if p95 else None,
        "ratio_mean": mean.ratio if mean else None, "ci_mean": _interval_ends(mean), "verdict_mean": mean.verdict if mean else None,
        "confidence": p50.confidence if p50 else None, "believed": kernel.believed, "speeds": kernel.speeds,
        "verdict_p50": p50.verdict if p50 else None, "verdict_p95": p95.verdict if p95 else None,
        "change": kernel.change, "baseline_us": kernel.baseline_us, "candidate_us": kernel.candidate_us,
        "baseline_runs": kernel.baseline_runs, "candidate_runs": kernel.candidate_runs,
        "detectable": kernel.detectable, "false_alarms": kernel.false_alarms, "more_runs": kernel.more_runs,
        "metrics": [dict(row) for row in kernel.metrics], "clocks": dict(kernel.clocks), "excluded": list(kernel.excluded),
        "baseline_config": kernel.baseline_config,
    }
    return {name: json_plain(value) for name, value in found.items()}


def interval_json(interval: Interval | None) -> dict[str, Any] | None:
    return None if interval is None else {name: json_plain(value) for name, value in asdict(interval).items()}


def json_plain(value: Any) -> Any:
    """Return a value with only what JSON has; a number that is none is null."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): json_plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [json_plain(each) for each in value]
    return value


def _interval_ends(interval: Interval | None) -> list[float] | None:
    """None too where so few runs hold the true ratio less often than a coin says."""
    return None if interval is None or (interval.confidence or 0) < 0.5 else [interval.low, interval.high]


def percent_text(ratio: float | None, *limits: float) -> str:
    """1.081 is "+8.1 %", everywhere. More digits where it would read as one of the `limits` and is not: 1.0497 beside 1.05 is
    "+4.97 %"; None is a dash."""
    if ratio is None:
        return "—"
    change = (ratio - 1) * 100
    fewest = 1 if abs(change) < 99.95 else 0
    told = ((_rounded(change, digits), [_rounded((limit - 1) * 100, digits) for limit in limits if limit != ratio])
            for digits in range(fewest, fewest + 3))
    return next((text for text, taken in told if text not in taken), _rounded(change, fewest))


def _rounded(change: float, digits: int) -> str:
    text = f"{change:+.{digits}f} %".replace("-", "−")
    return text if text.strip("+−0. %") else "0.0 %"


def interval_text(low: float, high: float, *limits: float) -> str:
    return f"{percent_text(low, *limits)} to {percent_text(high, *limits)}"


def change_text(bounds: Bounds, before: float, after: float, *limits: float) -> str:
    """"+8.1 % (41.2 → 44.5 µs, interval +7.5 % to +8.8 %)"; without the interval where so few runs have none worth the name."""
    held = f", interval {interval_text(bounds.low, bounds.high, *limits)}" if bounds.confidence >= 0.5 else ""
    return f"{percent_text(bounds.ratio, *limits)} ({us_text(before)} → {us_text(after)} µs{held})"


def p_text(p: float) -> str:
    return f"p = {p:.2g}" if p >= 1e-6 else "p < 0.000001"


def runs_text(number: int) -> str:
    return "1 run" if number == 1 else f"{number:,} runs"


def us_text(value: float) -> str:
    """Four digits and no exponent: "41.17", "19,320"."""
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}"
