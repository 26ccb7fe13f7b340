"""What a comparison says: its dataclasses, the same as JSON (what the command prints and gates keep), its numbers in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.distributions import ROUNDING, Bounds, ratio_bounds
from tuner.gate.stats.metrics import JudgedMetricJson
from tuner.gate.stats.noise import resampled_ratios, residuals
from tuner.gate.stats.rule import Verdict
from tuner.gate.stats.sides import TimerSteps


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


Config = dict[str, int | float | str | bool | None]


class KernelClocksJson(TypedDict, total=False):
    """SM clocks of both sides and what they say of the times; empty where they were not sampled in each run."""

    baseline_mhz: float
    candidate_mhz: float
    ratio: float
    cycles_ratio: float
    says: str


class KernelVerdictJson(TypedDict):
    """One kernel of a suite, judged. Ratios are candidate / baseline (1.08: 8 % slower), times µs, shares 0 to 1; null: unknown."""

    op: str
    shape: Config
    config: Config | None
    key: str
    name: str
    verdict: str
    reason: str
    ratio_p50: float | None
    ci: list[float] | None              # [low, high] of ratio_p50
    p_value: float | None
    ratio_p95: float | None
    ci_p95: list[float] | None
    p_value_p95: float | None
    ratio_mean: float | None
    ci_mean: list[float] | None
    verdict_mean: str | None
    confidence: float | None
    believed: bool
    speeds: str
    verdict_p50: str | None
    verdict_p95: str | None
    change: str
    baseline_us: float | None
    candidate_us: float | None
    baseline_runs: int
    candidate_runs: int
    detectable: float | None
    false_alarms: float | None
    more_runs: int | None
    metrics: list[JudgedMetricJson]
    clocks: KernelClocksJson
    excluded: list[str]
    baseline_config: Config | None


class PlanJson(TypedDict, total=False):
    """Whether these runs can call a kernel SLOWER, and how many fresh runs would; null: no number would do."""

    enough: bool
    enough_p95: bool
    smallest_p: float
    needed_p: float
    needed_candidate: int | None
    needed_baseline: int | None
    needed_each: int
    says: str


class SuiteVerdictJson(TypedDict):
    """All kernels of a suite, worst first; `alpha`: the stated risk of a false SLOWER."""

    verdict: str
    reason: str
    alpha: float
    plan: PlanJson
    kernels: list[KernelVerdictJson]


def suite_json(suite: SuiteVerdict) -> SuiteVerdictJson:
    """Return a suite's verdict as JSON.

    Ratios are candidate / baseline (1.08: 8 % slower), times µs, shares 0 to 1; null is unknown.
    """
    return {"verdict": suite.verdict.value, "reason": suite.reason, "alpha": suite.alpha, "plan": json_plain(dict(suite.plan)),
            "kernels": [kernel_json(kernel) for kernel in suite.kernels]}


def kernel_json(kernel: KernelVerdict) -> KernelVerdictJson:
    p50, p95, mean = kernel.p50, kernel.p95, kernel.mean
    fields = {
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
    return cast(KernelVerdictJson, {name: json_plain(value) for name, value in fields.items()})


def interval_json(interval: Interval | None) -> dict[str, Any] | None:
    return None if interval is None else {name: json_plain(value) for name, value in asdict(interval).items()}


def json_plain(value: Any) -> Any:
    """Return a value with only what JSON has; a number that is none is null."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): json_plain(element) for name, element in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [json_plain(element) for element in value]
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
    roundings = ((_rounded(change, digits), [_rounded((limit - 1) * 100, digits) for limit in limits if limit != ratio])
                 for digits in range(fewest, fewest + 3))
    return next((text for text, limit_texts in roundings if text not in limit_texts), _rounded(change, fewest))


def _rounded(change: float, digits: int) -> str:
    text = f"{change:+.{digits}f} %".replace("-", "−")
    return text if text.strip("+−0. %") else "0.0 %"


def interval_text(low: float, high: float, *limits: float) -> str:
    return f"{percent_text(low, *limits)} to {percent_text(high, *limits)}"


def change_text(bounds: Bounds, before: float, after: float, *limits: float) -> str:
    """"+8.1 % (41.2 → 44.5 µs, interval +7.5 % to +8.8 %)"; without the interval where so few runs have none worth the name."""
    interval = f", interval {interval_text(bounds.low, bounds.high, *limits)}" if bounds.confidence >= 0.5 else ""
    return f"{percent_text(bounds.ratio, *limits)} ({us_text(before)} → {us_text(after)} µs{interval})"


def p_text(p: float) -> str:
    return f"p = {p:.2g}" if p >= 1e-6 else "p < 0.000001"


def runs_text(number: int) -> str:
    return "1 run" if number == 1 else f"{number:,} runs"


def us_text(value: float) -> str:
    """Four digits and no exponent: "41.17", "19,320"."""
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}"


# One number of one kernel (its p50, its p95, its cycles) between two builds: PASS, SLOWER, FASTER or AMBIGUOUS.
#
# Two risks, kept apart. Calling identical builds SLOWER: `rule.alpha` for the whole suite, so `level` (Holm's share of it) for
# this kernel; the interval's low end has it. Passing a build that is slower by the target: `rule.beta` for each kernel; the
# interval's high end has it. One interval so carries both decisions:
#
# SLOWER significant at `level`, estimate above the floor, high end at the target or beyond PASS high end below the target: a
# slowdown of the target is ruled out FASTER significant the other way, estimate below the floor AMBIGUOUS neither: the target
# is not ruled out, and no slowdown is proven
#
# A slowdown that is proven passes only where its size is just as surely below the target: its high end has the risk `level`
# too, unless it is no larger than the floor.
#
# Where few runs of a noisy kernel reach no exact bound below the target and yet nothing above the floor is seen, its own noise
# says what that is worth: resampled comparisons of the kernel with itself give the estimate's spread, and the high end is then
# the estimate over its lower quantile at twice `beta`. On suites of 16 recorded kernels of 5 to 22 µs, 5 against 10 runs, 43 %
# were AMBIGUOUS without it and 15 % are with it; how many slowdowns of the target pass stands in docs/gate-bench.md.

Floats = NDArray[np.float64]

FEWEST_EACH, FEWEST_RUNS = 3, 8         # of a side, in all: fewer say nothing of a kernel's noise
MOST_RUNS = 120                         # in all; with more the exact bound is as near
LENIENCE = 2.0                          # times beta, for the bound by the kernel's own noise
NO_STEPS = TimerSteps()


@dataclass(frozen=True)
class Limits:
    """Fractions, as in `Rule`; of the number that is judged."""

    floor: float
    target: float
    beta: float


@dataclass(frozen=True)
class Levels:
    """What a p may be at most, this kernel's turn in Holm's order: to be SLOWER, to be FASTER."""

    slower: float
    faster: float


@dataclass(frozen=True)
class Decision:
    verdict: Verdict
    says: str
    bounds: Bounds
    p_slower: float
    change: str                         # "slower", "faster": surely different at all, whatever the target; "none"; "unknown"

    @property
    def interval(self) -> Interval:
        return Interval(self.bounds.ratio, self.bounds.low, self.bounds.high, self.p_slower, self.bounds.confidence, self.verdict)


def decide(candidate: Floats, baseline: Floats, p_slower: float, p_faster: float, levels: Levels, limits: Limits,
           steps: TimerSteps = NO_STEPS) -> Decision:
    """Return the decision on one number of one kernel between two builds.

    `candidate`, `baseline`: a number a run; p values corrected for looking at several numbers of the kernel.

    `steps`: what a coarse timer may hide or make up (`sides.hidden_by_timer`), however well the runs agree.
    """
    slower = p_slower <= levels.slower * (1 + ROUNDING)
    bounds = ratio_bounds(candidate, baseline, levels.slower, levels.slower if slower else limits.beta)
    exact = bounds
    if bounds.ratio <= 1 + limits.floor and not _is_ruled_out(bounds, limits):
        bounds = _tighten_by_noise(bounds, candidate, baseline, limits)
    lenient = bounds is not exact
    # Where runs tie, the p counts them exactly and the interval with more care: neither may contradict the other.
    is_ruled_out, raw_bounds = _is_ruled_out(bounds, limits), bounds
    bounds = replace(bounds, low=min(bounds.low, bounds.ratio * (1 - steps.below)),
                     high=max(bounds.high, bounds.ratio * (1 + steps.above)))
    slower = slower and bounds.low > 1 + ROUNDING
    faster = p_faster <= levels.faster * (1 + ROUNDING) and bounds.high < 1 - ROUNDING
    lines = (1 - limits.floor, 1.0, 1 + limits.floor, 1 + limits.target) if slower or faster else (1 + limits.target,)
    moved = change_text(bounds, float(np.median(baseline)), float(np.median(candidate)), *lines)
    limit = f"{limits.target * 100:g} %"
    if slower and bounds.ratio > 1 + limits.floor and bounds.high >= 1 + limits.target:
        return Decision(Verdict.SLOWER, f"{moved}, {p_text(p_slower)}", bounds, p_slower, "slower")
    if faster and bounds.ratio < 1 - limits.floor:
        return Decision(Verdict.FASTER, f"{moved}, {p_text(p_faster)}", bounds, p_slower, "faster")
    surely = "slower" if slower else "faster" if faster else "none"
    if _is_ruled_out(bounds, limits):
        how = f"unlikely by what its runs differ by (at {LENIENCE * limits.beta * 100:.0f} % risk)" if lenient else "ruled out"
        says = f"surely slower, {moved}, but by less than the {limit} that the gate stops" if slower else \
            f"{percent_text(bounds.ratio)} (interval {interval_text(bounds.low, bounds.high, *lines)}): {limit} slower is {how}"
        return Decision(Verdict.PASS, says, bounds, p_slower, surely)
    made_up = raw_bounds.low > 1 + ROUNDING >= bounds.low and raw_bounds.ratio > 1 + limits.floor
    why = _why_made_up(steps) if made_up else _why_hidden(steps, limit) if is_ruled_out else \
        _why_unsure(slower, bounds, p_slower, levels, limits)
    return Decision(Verdict.AMBIGUOUS, f"{moved}: {why}", bounds, p_slower, surely if slower or faster else "unknown")


def _why_hidden(steps: TimerSteps, limit: str) -> str:
    return (f"the timer counts in steps that can hide {steps.above * 100:.2g} %, so {limit} slower cannot be ruled out, by any "
            "number of runs: time several launches as one sample")


def _why_made_up(steps: TimerSteps) -> str:
    return (f"the timer counts in steps that can make up {steps.below * 100:.2g} % where next to nothing changed, by any number of "
            "runs: time several launches as one sample")


def _why_unsure(slower: bool, bounds: Bounds, p_slower: float, levels: Levels, limits: Limits) -> str:
    limit = f"{limits.target * 100:g} %"
    if slower:
        return f"surely slower, but whether by {limit} cannot be told"
    if bounds.ratio <= 1 + limits.floor:
        return f"the runs differ too far to rule {limit} slower out" if bounds.high_kept else \
            f"so few runs cannot rule {limit} slower out"
    if p_slower <= levels.slower * (1 + ROUNDING):
        return f"it looks slower ({p_text(p_slower)}), but so many runs of both took the same time that the interval holds 0 %"
    digits = 2 if f"{p_slower:.2g}" != f"{levels.slower:.2g}" else 4
    needed = f" (p = {p_slower:.{digits}g}, {levels.slower:.{digits}g} is needed)" if p_slower < 1 else ""
    return f"it looks slower, but so few runs do not prove it{needed}"


def _is_ruled_out(bounds: Bounds, limits: Limits) -> bool:
    return bounds.high_kept and bounds.high < 1 + limits.target


def _tighten_by_noise(bounds: Bounds, candidate: Floats, baseline: Floats, limits: Limits) -> Bounds:
    """The high end from resampled comparisons of the kernel with itself, where they put it lower."""
    runs = len(candidate) + len(baseline)
    if min(len(candidate), len(baseline)) < FEWEST_EACH or not FEWEST_RUNS <= runs <= MOST_RUNS:
        return bounds
    estimates = np.median(resampled_ratios(residuals(candidate, baseline), len(candidate), len(baseline)), axis=1)
    high = bounds.ratio / float(np.quantile(estimates, LENIENCE * limits.beta))
    if high >= bounds.high:
        return bounds
    return replace(bounds, high=high, high_kept=True, confidence=max(0.0, bounds.low_confidence - LENIENCE * limits.beta))
