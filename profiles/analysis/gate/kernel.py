"""One kernel of a suite, in two steps: what its runs say by themselves, and the verdict once the suite's levels are known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from profiles.analysis.gate.calibration import of_comparison
from profiles.analysis.gate.clocks import judge_clocks
from profiles.analysis.gate.decide import Decision, Levels, decide
from profiles.analysis.gate.exact import joint_p, rank_sum_p
from profiles.analysis.gate.metrics import changed, judge_metrics, verdict_of
from profiles.analysis.gate.pairs import Pair
from profiles.analysis.gate.plan import plan
from profiles.analysis.gate.results import KernelVerdict
from profiles.analysis.gate.rule import Rule, Verdict, worst
from profiles.analysis.gate.sentences import runs
from profiles.analysis.gate.sides import Side, mixed, side

MOST_MORE = 60          # further runs that an AMBIGUOUS kernel may ask for


@dataclass(frozen=True)
class Looked:
    """First step: the runs that count, and a one-sided p for each number in each direction."""

    pair: Pair
    baseline: Side
    candidate: Side
    problem: str                            # why there can be no verdict; "": there can
    slower: tuple[float, ...] = ()          # p of p50, and of p95 where both sides have one
    faster: tuple[float, ...] = ()


def look(pair: Pair, alpha: float) -> Looked:
    baseline, candidate = side(pair.baseline), side(pair.candidate)
    problem = _problem(pair, baseline, candidate)
    if problem:
        return Looked(pair, baseline, candidate, problem)
    c, b = [candidate.p50], [baseline.p50]
    if candidate.p95 is not None and baseline.p95 is not None:
        c.append(candidate.p95)
        b.append(baseline.p95)
    ways = []
    for first, second in ((c, b), (b, c)):
        alone = [rank_sum_p(x, y) for x, y in zip(first, second, strict=True)]
        # what is far from significance alone needs no joint counting
        ways.append(tuple(joint_p(first, second) if min(alone) <= alpha else [min(1.0, p * len(alone)) for p in alone]))
    return Looked(pair, baseline, candidate, "", ways[0], ways[1])


def verdict(seen: Looked, rule: Rule, levels: Levels, limits: Mapping[str, Any], kernels: int,
            calibrated: bool) -> KernelVerdict:
    pair = seen.pair
    empty = KernelVerdict(pair.op, pair.shape, pair.config, pair.key, Verdict.NO_DATA, seen.problem,
                          baseline_us=_middle(seen.baseline), candidate_us=_middle(seen.candidate),
                          baseline_runs=len(seen.baseline.runs), candidate_runs=len(seen.candidate.runs),
                          excluded=_excluded(seen), baseline_config=pair.baseline_config)
    if seen.problem:
        return empty
    p50 = decide(seen.candidate.p50, seen.baseline.p50, seen.slower[0], seen.faster[0], levels,
                 floor=rule.floor, target=rule.target, beta=rule.beta)
    p95 = None
    if len(seen.slower) > 1 and seen.candidate.p95 is not None and seen.baseline.p95 is not None:
        p95 = decide(seen.candidate.p95, seen.baseline.p95, seen.slower[1], seen.faster[1], levels,
                     floor=rule.floor_p95, target=rule.target_p95, beta=rule.beta)
    called, reason = _by_time(seen, p50, p95, kernels, rule)
    clocks = judge_clocks(seen.baseline, seen.candidate, p50, levels, rule)
    if clocks.doubt and called != Verdict.AMBIGUOUS:
        called = Verdict.AMBIGUOUS
        reason = f"{clocks.doubt}; measure both builds again, interleaved, with locked clocks where allowed"
    if called in (Verdict.PASS, Verdict.FASTER) and (hurt := [*seen.candidate.damaged, *seen.baseline.damaged]):
        called, reason = Verdict.AMBIGUOUS, f"{runs(len(hurt))} damaged ({hurt[0]}); by the others: {reason}"
    metrics = judge_metrics(seen.baseline.runs, seen.candidate.runs, limits, rule, levels.slower)
    if (beside := verdict_of(metrics)) != Verdict.PASS and worst([called, beside]) == beside and beside != called:
        called, reason = beside, _metric_says(metrics, beside, reason)
    alarms, detectable = of_comparison(seen.baseline.p50, seen.candidate.p50, rule, levels.slower) if calibrated else (None, None)
    more = _more(seen, p50, rule) if called == Verdict.AMBIGUOUS else 0
    beside_limits = changed(seen.baseline.runs, seen.candidate.runs, list(limits))
    return replace(empty, verdict=called, reason=reason, p50=p50.interval, p95=p95.interval if p95 else None,
                   detectable=detectable, false_alarms=alarms, more_runs=more, clocks=clocks.facts,
                   metrics=[*metrics, *beside_limits])


def _problem(pair: Pair, baseline: Side, candidate: Side) -> str:
    for name, ready, given, what in (("baseline", baseline, pair.baseline, "it is new, or named otherwise"),
                                     ("candidate", candidate, pair.candidate, "it was not measured, or is named otherwise")):
        if not any(kernel.runs for kernel in given):
            return f"the {name} has no runs of this kernel: {what}"
        if not ready.runs:
            return f"none of the {name}'s {runs(len(ready.damaged))} can be used: {ready.damaged[0]}"
    return mixed(baseline.runs, candidate.runs)


def _by_time(seen: Looked, p50: Decision, p95: Decision | None, kernels: int, rule: Rule) -> tuple[Verdict, str]:
    """Worst of p50 and p95; the sentence is of the number that decides."""
    n_c, n_b = len(seen.candidate.runs), len(seen.baseline.runs)
    have = f"{n_c} against {runs(n_b)}"
    called = worst([p50.verdict, p95.verdict] if p95 else [p50.verdict])
    decides, name = (p50, "p50") if p50.verdict == called or p95 is None else (p95, "p95")
    if called == Verdict.AMBIGUOUS:
        if min(n_c, n_b) == 1:
            return called, f"{name} {decides.says}: one run does not say how far runs of the same build differ ({have})"
        enough = plan(kernels, n_b, n_c, rule)
        if not enough.enough:
            return called, f"{name} {decides.says}. {enough.says}"
    both = f"; p95 {p95.says}" if called == Verdict.SLOWER and p95 and name == "p50" and p95.verdict == called else ""
    return called, f"{name} {decides.says}{both}; {have}"


def _metric_says(metrics: list[dict[str, Any]], called: Verdict, time_reason: str) -> str:
    said = "; ".join(f"{row['metric']} {row['reason']}" for row in metrics if row["verdict"] == called)
    return f"{said}. Time: {time_reason}"


def _excluded(seen: Looked) -> list[str]:
    return [f"{name}: {note}" for name, ready in (("baseline", seen.baseline), ("candidate", seen.candidate))
            for note in (*ready.damaged, *ready.notes)]


def _middle(ready: Side) -> float | None:
    return float(np.median(ready.p50)) if len(ready.p50) else None


def _more(seen: Looked, p50: Decision, rule: Rule) -> int:
    """Fresh runs of each build, interleaved, that should decide this kernel: a normal approximation of its noise.

    Half the distance between "equal" and the target has to be seen with 95 % power at the risk `beta`.
    """
    spread = np.concatenate([np.log(side.p50 / np.median(side.p50)) for side in (seen.baseline, seen.candidate)])
    noise = float(np.std(spread)) * (len(spread) / max(1, len(spread) - 2)) ** 0.5
    gap = max(p50.bounds.ratio - 1, rule.target - (p50.bounds.ratio - 1), rule.target / 2)
    z = NormalDist().inv_cdf(1 - rule.beta) + NormalDist().inv_cdf(0.95)
    by_noise: int = math.ceil(2 * (z * noise / gap) ** 2)
    return min(MOST_MORE, max(by_noise, plan(1, 0, 0, rule).needed_each))
