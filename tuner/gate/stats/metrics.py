"""What is gated beside time: registers, spills, shared memory, DRAM bytes, tensor-core use, any number that runs carry.

A limit is {"max_increase": 0.1} or {"max_decrease": 0.05} (fractions of the baseline's median; from zero, any increase is
beyond every fraction), {"max": 0} or {"min": 40} (in the metric's own unit), or several of them. What the compiler decides
is the same in each run and needs no statistics: one number against one. What varies is judged by its interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.distributions import rank_sum_p, ratio_bounds
from tuner.gate.stats.rule import Rule, Verdict, finite_number, worst_verdict
from tuner.gate.stats.runs import Run

# What is not taken for a change of the code: a slip of units. And what a mean alone hides: launches of two speeds.
#
# A file in ms that is read as µs makes every kernel a thousand times as fast, and no test of ranks minds. A p50 that changes by
# more than the rule's `believable` (5 times) is not called FASTER and, where the factor is near a power of 1,000, not SLOWER
# either.

Floats = NDArray[np.float64]

UNITS = 1000.0              # s, ms, µs, ns
NEAR = 2.0                  # times: the code may have changed too


def why_not_believed(ratio: float, believable: float) -> str:
    """Return why a ratio of candidate to baseline is not believed; "" where it is."""
    times = max(ratio, 1 / ratio)
    if times <= believable:
        return ""
    way = "slower" if ratio > 1 else "faster"
    if is_unit_slip(ratio):
        return f"not believed: units? ({unit_power(times):.0f} times {way}), of this build or of its baseline"
    return f"not believed: {times:.3g} times {way}, where the rule believes {believable:g}: units, or other work?"


def is_unit_slip(ratio: float) -> bool:
    """Return whether a ratio is near 1,000, a million, … or one of their inverses."""
    power = abs(math.log(ratio)) / math.log(UNITS)
    return round(power) >= 1 and abs(power - round(power)) * math.log(UNITS) <= math.log(NEAR)


def unit_power(ratio: float) -> float:
    """Return the power of 1,000 that a ratio, or its inverse, is near."""
    return float(UNITS ** round(abs(math.log(ratio)) / math.log(UNITS)))


def mixed_units(us: Sequence[float] | Floats) -> str:
    """Return why the samples of one run are not of one unit; "" where they may be: launches that wait for a busy host are few."""
    lowest, highest = float(min(us)), float(max(us))
    if lowest <= 0 or highest / lowest < UNITS / NEAR:
        return ""
    ordered = np.sort(np.asarray(us, dtype=np.float64))
    cut = int(np.argmax(ordered[1:] / ordered[:-1])) + 1
    times = float(np.median(ordered[cut:]) / np.median(ordered[:cut]))
    if min(cut, len(ordered) - cut) < max(2, FEWEST_SHARE * len(ordered)) or not is_unit_slip(times):
        return ""
    return f"{len(ordered) - cut} of {len(ordered)} samples are about {unit_power(times):.0f} times the others: units?"


# ---- two speeds ----

FEWEST_SAMPLES = 40         # of a side
FEWEST_SHARE = 0.08         # of the samples at either speed
APART = 1.10                # times
EXPLAINED = 0.85            # of the variance: two groups of a normal distribution explain 0.64, of a uniform one 0.75


@dataclass(frozen=True)
class Speeds:
    """Samples of one side in two groups."""

    slow_share: float               # 0 to 1
    fast_us: float                  # medians
    slow_us: float


def two_speeds(us: Floats) -> Speeds | None:
    """Return the two speeds of all samples of a side; None where they have one.

    The best cut by variance (Otsu, 1979), of logarithms.
    """
    if len(us) < FEWEST_SAMPLES:
        return None
    ordered = np.sort(np.log(us))
    n = len(ordered)
    total = float(np.var(ordered))
    if total <= 0:
        return None
    sums = np.cumsum(ordered)
    left = np.arange(1, n)
    gap = sums[:-1] / left - (sums[-1] - sums[:-1]) / (n - left)
    between = left * (n - left) / n**2 * gap**2
    fewest = max(1, math.ceil(FEWEST_SHARE * n))
    between[:fewest - 1] = 0
    between[n - fewest:] = 0
    split = int(np.argmax(between)) + 1
    fast, slow = float(np.exp(np.median(ordered[:split]))), float(np.exp(np.median(ordered[split:])))
    if between[split - 1] < EXPLAINED * total or slow < fast * APART:
        return None
    return Speeds((n - split) / n, fast, slow)


def speeds_text(baseline: Floats, candidate: Floats) -> str:
    """Return what is said of launches at two speeds, with the share of slow ones on both sides; "" where neither side has them."""
    before, after = two_speeds(baseline), two_speeds(candidate)
    shown = after or before
    if shown is None:
        return ""
    cut = math.sqrt(shown.fast_us * shown.slow_us)
    shares = [float(np.mean(side > cut)) for side in (baseline, candidate)]
    return (f"launches have two speeds, {shown.fast_us:.4g} and {shown.slow_us:.4g} µs: {shares[0] * 100:.0f} % are slow in the "
            f"baseline, {shares[1] * 100:.0f} % in the candidate")


ROUNDING = 1e-12
LIMITS = ("max_increase", "max_decrease", "max", "min")


def check_limits(limits: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with a suite's limits, by field ("registers.max"); {} where they can be used."""
    problems: dict[str, str] = {}
    for metric, limit in limits.items():
        if not isinstance(limit, Mapping):
            problems[str(metric)] = f"expected one or more of {', '.join(LIMITS)}"
            continue
        if not any(name in limit for name in LIMITS):
            problems[str(metric)] = f"no limit: name one or more of {', '.join(LIMITS)}"
        for name, value in limit.items():
            where = f"{metric}.{name}"
            if name == "optional":
                if not isinstance(value, bool):
                    problems[where] = "expected true or false"
            elif name not in LIMITS:
                problems[where] = f"unknown: expected {', '.join(LIMITS)} or optional"
            elif finite_number(value) is None:
                problems[where] = "expected a number"
            elif name.endswith("crease") and float(value) < 0:
                problems[where] = "expected a fraction of zero or more: 0.1 is 10 %"
    return problems


class JudgedMetricJson(TypedDict):
    """A metric of a kernel judged beside its time: medians over the runs of both sides, null where not known."""

    metric: str
    baseline: float | None
    candidate: float | None
    ratio: float | None
    verdict: str
    reason: str


def judge_metrics(baseline: Sequence[Run], candidate: Sequence[Run], limits: Mapping[str, Any], rule: Rule,
                  level: float) -> list[dict[str, Any]]:
    """Judge the metrics that have limits: {"metric", "baseline", "candidate", "ratio", "verdict", "reason"} each.

    Values are medians over runs; None: not known.
    """
    return [_judge(metric, limit, metric_values(baseline, metric), metric_values(candidate, metric), rule, level)
            for metric, limit in limits.items() if isinstance(limit, Mapping)]


def compiler_changes(baseline: Sequence[Run], candidate: Sequence[Run], beside: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the compiler decided otherwise and no limit is set on: shown, never judged."""
    rows = []
    for metric in ("registers", "spills", "smem_bytes"):
        b, c = metric_values(baseline, metric), metric_values(candidate, metric)
        if metric not in beside and b is not None and c is not None and np.median(b) != np.median(c):
            rows.append(_row(metric, float(np.median(b)), float(np.median(c)), Verdict.PASS, "no limit is set on it"))
    return rows


def metrics_verdict(judged: Sequence[Mapping[str, Any]]) -> Verdict:
    return worst_verdict([Verdict(row["verdict"]) for row in judged if row["verdict"] != Verdict.FASTER] or [Verdict.PASS])


def metric_values(runs: Sequence[Run], metric: str) -> Floats | None:
    """Return a metric of the runs that say it; None where none does."""
    values = [value for run in runs if (value := finite_number(run.facts.get(metric))) is not None]
    return np.asarray(values, dtype=np.float64) if values else None


def _judge(metric: str, limit: Mapping[str, Any], baseline: Floats | None, candidate: Floats | None, rule: Rule,
           level: float) -> dict[str, Any]:
    limits = {name: value for name in LIMITS if (value := finite_number(limit.get(name))) is not None}
    b, c = (None if side is None else float(np.median(side)) for side in (baseline, candidate))
    if not limits:
        return _row(metric, b, c, Verdict.NO_DATA, f"its limit names none of {', '.join(LIMITS)}")
    relative = any(name in limits for name in ("max_increase", "max_decrease"))
    if candidate is None or (baseline is None and relative):
        says = f"not known for the {'candidate' if candidate is None else 'baseline'}"
        if limit.get("optional") is True:
            return _row(metric, b, c, Verdict.PASS, f"{says}: the suite lets it be unknown")
        return _row(metric, b, c, Verdict.NO_DATA, says)
    judgements = [_absolute(name, value, float(np.median(candidate))) if baseline is None or name in ("max", "min")
                  else _relative(name, value, baseline, candidate, rule, level) for name, value in limits.items()]
    verdict = worst_verdict([limit_verdict for limit_verdict, _ in judgements])
    return _row(metric, b, c, verdict, "; ".join(says for limit_verdict, says in judgements if limit_verdict == verdict))


def _absolute(name: str, limit: float, candidate: float) -> tuple[Verdict, str]:
    beyond = candidate > limit if name == "max" else candidate < limit
    return Verdict.SLOWER if beyond else Verdict.PASS, f"{candidate:g}, at {'most' if name == 'max' else 'least'} {limit:g} allowed"


def _relative(name: str, fraction: float, baseline: Floats, candidate: Floats, rule: Rule, level: float) -> tuple[Verdict, str]:
    up = name == "max_increase"
    b, c = float(np.median(baseline)), float(np.median(candidate))
    change = f" ({(c - b) / abs(b) * 100:+.1f} %)" if b else ""
    says = f"{b:g} → {c:g}{change}, at most {'+' if up else '−'}{fraction * 100:g} % allowed"
    beyond = (c - b if up else b - c) > (fraction + ROUNDING) * abs(b)
    if np.ptp(baseline) == 0 and np.ptp(candidate) == 0:
        return Verdict.SLOWER if beyond else Verdict.PASS, says
    if min(baseline.min(), candidate.min()) <= 0:                           # no ratio to zero
        p = rank_sum_p(candidate, baseline) if up else rank_sum_p(baseline, candidate)
        called = Verdict.PASS if not beyond else Verdict.SLOWER if p <= level * (1 + ROUNDING) else Verdict.AMBIGUOUS
        return called, says if called != Verdict.AMBIGUOUS else f"{says}: the runs differ too much to tell"
    # turned round for a decrease, so that the same interval asks the same question
    ratio = ratio_bounds(candidate, baseline, level, rule.beta) if up else ratio_bounds(baseline, candidate, level, rule.beta)
    allowed = 1 + fraction if up else 1 / (1 - fraction) if fraction < 1 else math.inf
    if ratio.low_kept and ratio.low > 1 and ratio.ratio > allowed:
        return Verdict.SLOWER, says
    if ratio.high_kept and ratio.high <= allowed:
        return Verdict.PASS, says
    return Verdict.AMBIGUOUS, f"{says}: the runs differ too much to tell"


def _row(metric: str, baseline: float | None, candidate: float | None, verdict: Verdict, reason: str) -> dict[str, Any]:
    ratio = candidate / baseline if baseline and candidate is not None else None
    return {"metric": metric, "baseline": baseline, "candidate": candidate, "ratio": ratio, "verdict": verdict, "reason": reason}
