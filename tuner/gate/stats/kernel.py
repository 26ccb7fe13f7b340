"""One kernel of a suite, in two steps: what its runs say by themselves, and the verdict once the suite's levels are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats import noise
from tuner.gate.stats.calibration import FEWEST_RUNS, comparison_power
from tuner.gate.stats.distributions import ROUNDING, joint_p, rank_sum_p, ratio_estimate, smallest_p
from tuner.gate.stats.metrics import compiler_changes, is_unit_slip, judge_metrics, metrics_verdict, speeds_text, why_not_believed
from tuner.gate.stats.plan import PRACTICAL_RUNS, plan_runs
from tuner.gate.stats.results import Decision, KernelVerdict, Levels, Limits, decide, percent_text, runs_text
from tuner.gate.stats.rule import Rule, Verdict, worst_verdict
from tuner.gate.stats.runs import EarlierLevel, KernelRuns, Pair
from tuner.gate.stats.sides import Side, drop_runs, hidden_by_timer, hidden_in_mean, make_side, timer_step, why_incomparable

# ---- was it the code or the clock ----
# Time × clock is cycles: a lower clock makes the same cycles last longer.
# Clocks count only where they surely differ between the builds: the same exact test as for times, at the same level. On the
# recorded H200 the sampled SM clock of identical code goes from 1,785 to 1,980 MHz between runs while its time stays within
# 0.3 %, so a difference of some per cent that a few runs show by chance must change no verdict.

APART = 0.15        # of a run's clock from the others': such a run was throttled, or its clock was read while idle
JUMPED = 0.10       # clocks so far apart are other conditions: a PASS then needs the cycles to agree (10 % is usual, see above)


@dataclass(frozen=True)
class Clocks:
    facts: Mapping[str, Any]        # {"baseline_mhz", "candidate_mhz", "ratio", "cycles_ratio", "says"}; {}: not sampled
    doubt: str = ""                 # why the verdict by time must not stand; "": it may


def drop_clock_jumps(baseline: Side, candidate: Side) -> tuple[Side, Side]:
    """Return both sides without single runs whose clock jumped away from the rest's.

    Where a whole side ran at another clock nothing is dropped: `judge_clocks` has the word.
    """
    if baseline.clocks is None or candidate.clocks is None or not len(baseline.clocks) or not len(candidate.clocks):
        return baseline, candidate
    usual = float(np.median(np.concatenate([baseline.clocks, candidate.clocks])))
    sides = []
    for side in (baseline, candidate):
        assert side.clocks is not None
        jumped = np.abs(side.clocks / usual - 1) > APART
        why = [f"its clock of {clock:,.0f} MHz jumped away from the others' {usual:,.0f} MHz" for clock in side.clocks[jumped]]
        sides.append(drop_runs(side, jumped, why) if jumped.any() and not jumped.all() else side)
    return sides[0], sides[1]


def judge_clocks(baseline: Side, candidate: Side, time: Decision, levels: Levels, rule: Rule) -> Clocks:
    if baseline.clocks is None or candidate.clocks is None:
        return Clocks({})
    b, c = baseline.clocks, candidate.clocks
    ratio = ratio_estimate(c, b)
    cycles_b, cycles_c = baseline.p50 * b, candidate.p50 * c
    facts = {"baseline_mhz": float(np.median(b)), "candidate_mhz": float(np.median(c)), "ratio": ratio,
             "cycles_ratio": ratio_estimate(cycles_c, cycles_b), "says": ""}
    level = max(levels.slower, smallest_p(len(c), len(b)))
    if abs(ratio - 1) <= rule.floor or min(rank_sum_p(c, b), rank_sum_p(b, c)) > level * (1 + ROUNDING):
        return Clocks(facts)
    cycles = decide(cycles_c, cycles_b, rank_sum_p(cycles_c, cycles_b), rank_sum_p(cycles_b, cycles_c), levels,
                    Limits(rule.floor, rule.target, rule.beta))
    facts["says"] = _says(ratio, cycles.bounds.ratio, rule)
    blames = time.verdict == Verdict.SLOWER and cycles.verdict != Verdict.SLOWER
    hides = time.verdict in (Verdict.PASS, Verdict.FASTER) and abs(ratio - 1) > JUMPED and cycles.verdict != time.verdict
    if blames:
        return Clocks(facts, f"{facts['says']}: the clock, not the build, can be why its time is {percent_text(time.bounds.ratio)}")
    if hides:
        return Clocks(facts, f"{facts['says']}: the two builds were not measured under the same conditions")
    return Clocks(facts)


def _says(ratio: float, cycles: float, rule: Rule) -> str:
    same = "same cycles" if abs(cycles - 1) <= rule.floor else f"{percent_text(cycles)} cycles"
    return f"{same}, {abs(ratio - 1) * 100:.0f} % {'lower' if ratio < 1 else 'higher'} clock"


# ---- one kernel of a suite ----

Floats = NDArray[np.float64]

MOST_SAID = 50          # runs that were left out, by name
MEASURES = 3            # p50, p95, mean
MEAN = "mean (GPU time a launch)"
MOVED = 0.05            # of comparisons: where PRACTICAL_RUNS of each build still move the p95 of identical builds above its floor


@dataclass(frozen=True)
class PreparedPair:
    """First step: the runs that count, of both sides."""

    pair: Pair
    baseline: Side
    candidate: Side
    problem: str                            # why there can be no verdict; "": there can
    back_at: str = ""                       # build whose speed, lost since, the candidate has again
    known: Floats | None = None             # residuals of runs of that level, logarithms


@dataclass(frozen=True)
class PValues:
    """One-sided p of the p50, the p95 and the mean, as many of them as both sides have, in each direction."""

    slower: tuple[float, ...]
    faster: tuple[float, ...]


def prepare_pair(pair: Pair, earlier: EarlierLevel | None = None, floor: float = 0.02) -> PreparedPair:
    baseline, candidate = drop_clock_jumps(make_side(pair.baseline), make_side(pair.candidate))
    problem = _problem(pair, baseline, candidate)
    before = make_side([KernelRuns(pair.op, runs=earlier.runs)]) if earlier is not None and not problem else None
    if earlier is None or before is None or len(before.p50) < FEWEST_RUNS:
        return PreparedPair(pair, baseline, candidate, problem)
    is_back = min(ratio_estimate(before.p50, baseline.p50), ratio_estimate(candidate.p50, baseline.p50)) > 1 + floor \
        and abs(ratio_estimate(candidate.p50, before.p50) - 1) <= floor
    return PreparedPair(pair, baseline, candidate, problem, earlier.name if is_back else "", noise.residuals(before.p50))


def compute_p_values(pair: PreparedPair, alpha: float, kernels: int) -> PValues:
    """Return one-sided p values of p50, p95 and mean, corrected for having looked at all of them.

    Where the runs are too few for that in a suite of so many kernels, the mean is left out (its p is 1), then the p95, and the p50
    has the whole level to itself. Where they are too few even for that, runs that are apart are told by their spread.
    """
    sides = pair.candidate, pair.baseline
    numbers = [(side.p50, *(number for number in (side.p95, side.mean) if number is not None)) for side in sides]
    have = min(map(len, numbers))
    smallest = smallest_p(len(sides[0].p50), len(sides[1].p50))
    tested = next((count for count in range(have, 1, -1) if count * smallest <= alpha / kernels), 1)
    c, b = ([*arrays[:tested]] for arrays in numbers)
    ways = []
    for first, second in ((c, b), (b, c)):
        alone = [rank_sum_p(x, y) for x, y in zip(first, second, strict=True)]
        # what is far from significance alone needs no joint counting
        p_values = joint_p(first, second) if min(alone) <= alpha else [min(1.0, p * len(alone)) for p in alone]
        ways.append([*p_values, *[1.0] * (have - tested)])
    if smallest > alpha / kernels:
        _tell_by_spread(pair, ways)
    return PValues(tuple(ways[0]), tuple(ways[1]))


def _tell_by_spread(pair: PreparedPair, ways: list[list[float]]) -> None:
    """Lower the p50's p where so few runs can reach no exact one, and yet they lie apart, or are back at an earlier level.

    Runs may be of two speeds and apart by chance: seldom enough for few kernels (`two_speeds_p`), else they must lie far apart.
    """
    c, b = pair.candidate.p50, pair.baseline.p50
    if len(c) + len(b) < noise.FEWEST_SPREAD:
        return
    for way, (slow, fast) in zip(ways, ((c, b), (b, c)), strict=True):
        is_clear = noise.is_far_apart(slow, fast) or (pair.back_at and slow is c)
        least = 0.0 if is_clear else noise.two_speeds_p(len(slow), len(fast))
        way[0] = min(way[0], max(MEASURES * noise.separated_p(slow, fast, pair.known), least))


def judge_kernel(seen: PreparedPair, test: PValues | None, rule: Rule, levels: Levels, limits: Mapping[str, Any], kernels: int,
            calibrated: bool, step_us: float = 0.0) -> KernelVerdict:
    """Return a kernel's verdict: the second step, once the suite's levels are known.

    `levels` are this kernel's in Holm's order; `test` is None where there is a problem.

    `step_us`: of the timer as other kernels show it, for one whose samples are all equal.
    """
    pair = seen.pair
    empty = KernelVerdict(pair.op, pair.shape, pair.config, pair.key, Verdict.NO_DATA, seen.problem,
                          baseline_us=_median_us(seen.baseline), candidate_us=_median_us(seen.candidate),
                          baseline_runs=len(seen.baseline.runs), candidate_runs=len(seen.candidate.runs),
                          excluded=_excluded_runs(seen), baseline_config=pair.baseline_config, name=pair.name)
    if test is None:
        return empty
    us = timer_step(seen.candidate, seen.baseline) or step_us
    p50 = decide(seen.candidate.p50, seen.baseline.p50, test.slower[0], test.faster[0], levels,
                 Limits(rule.floor, rule.target, rule.beta), hidden_by_timer(seen.candidate.p50, seen.baseline.p50, us))
    if p50.verdict == Verdict.SLOWER and (
            noisy := noise.why_only_noisier(seen.candidate.p50, seen.baseline.p50, p50.bounds.ratio, levels.slower)):
        p50 = replace(p50, verdict=Verdict.AMBIGUOUS, says=f"{p50.says}: {noisy}", change="unknown")
    p95 = None
    if seen.candidate.p95 is not None and seen.baseline.p95 is not None:
        p95 = decide(seen.candidate.p95, seen.baseline.p95, test.slower[1], test.faster[1], levels,
                     Limits(rule.floor_p95, rule.target_p95, rule.beta), hidden_by_timer(seen.candidate.p95, seen.baseline.p95, us))
        if p95.verdict == Verdict.AMBIGUOUS and _is_undecidable(seen.baseline.p95, rule.floor_p95):
            span = f"{seen.baseline.p95.min():.4g} to {seen.baseline.p95.max():.4g} µs among the baseline's own runs"
            p95 = replace(p95, verdict=Verdict.NO_DATA, says=f"its p95 is too noisy to be judged: from {span}")
    mean = _decide_mean(seen, test, levels, rule, us)
    called, reason = _judge_time(seen, p50, p95, mean, kernels, rule)
    clocks = judge_clocks(seen.baseline, seen.candidate, p50, levels, rule)
    if clocks.doubt and called != Verdict.AMBIGUOUS:
        called = Verdict.AMBIGUOUS
        reason = f"{clocks.doubt}; measure both builds again, interleaved, with locked clocks where allowed"
    if called in (Verdict.PASS, Verdict.FASTER) and (hurt := [*seen.candidate.damaged, *seen.baseline.damaged]):
        called, reason = Verdict.AMBIGUOUS, f"{runs_text(len(hurt))} cannot be used ({hurt[0]}); by the others: {reason}"
    metrics = judge_metrics(seen.baseline.runs, seen.candidate.runs, limits, rule, levels.slower)
    if (beside := metrics_verdict(metrics)) != Verdict.PASS and worst_verdict([called, beside]) == beside and beside != called:
        called, reason = beside, _metrics_reason(metrics, beside, reason)
    unbelieved = why_not_believed(p50.bounds.ratio, rule.believable)
    if unbelieved:
        called = Verdict.SLOWER if called == Verdict.SLOWER and not is_unit_slip(p50.bounds.ratio) else Verdict.AMBIGUOUS
        reason = f"{unbelieved}; {reason}"
    if seen.back_at and called in (Verdict.SLOWER, Verdict.AMBIGUOUS):
        reason += f"; back at the speed of build {seen.back_at}, before it became faster"
    alarms, detectable = (None, None) if not calibrated else \
        comparison_power(seen.baseline.p50, seen.candidate.p50, rule, levels.slower)
    beside_limits = compiler_changes(seen.baseline.runs, seen.candidate.runs, list(limits))
    return replace(empty, verdict=called, reason=reason, p50=p50.interval, p95=p95.interval if p95 else None,
                   detectable=detectable, false_alarms=alarms, clocks=clocks.facts, change=p50.change,
                   metrics=[*metrics, *beside_limits], mean=mean.interval if mean else None, believed=not unbelieved,
                   speeds=_speeds(seen), back_at=seen.back_at)


def _decide_mean(pair: PreparedPair, test: PValues, levels: Levels, rule: Rule, step_us: float) -> Decision | None:
    """The winsorised mean, by the p50's limits.

    It stops what is seen, proven or by an estimate beyond the target; one that is only too noisy to rule the target out has no say.
    """
    c, b = pair.candidate.mean, pair.baseline.mean
    if c is None or b is None:
        return None
    decision = decide(c, b, test.slower[2], test.faster[2], levels, Limits(rule.floor, rule.target, rule.beta),
                      hidden_in_mean(pair.candidate, pair.baseline, step_us))
    if decision.verdict == Verdict.SLOWER and (noisy := noise.why_only_noisier(c, b, decision.bounds.ratio, levels.slower)):
        decision = replace(decision, verdict=Verdict.AMBIGUOUS, says=f"{decision.says}: {noisy}", change="unknown")
    if decision.verdict == Verdict.AMBIGUOUS and (decision.bounds.ratio < 1 + rule.target or _is_undecidable(b, rule.floor)):
        return replace(decision, verdict=Verdict.NO_DATA)
    return replace(decision, verdict=Verdict.PASS) if decision.verdict == Verdict.FASTER else decision


def _speeds(pair: PreparedPair) -> str:
    return speeds_text(*(np.concatenate([run.us for run in side.runs]) for side in (pair.baseline, pair.candidate)))


def _problem(pair: Pair, baseline: Side, candidate: Side) -> str:
    for name, ready, kernels, what in (("baseline", baseline, pair.baseline, "it is new, or named otherwise"),
                                       ("candidate", candidate, pair.candidate, "it was not measured, or is named otherwise")):
        if not any(kernel.runs for kernel in kernels):
            return f"the {name} has no runs of this kernel: {what}"
        if not ready.runs:
            which = f"none of the {name}'s {runs_text(len(ready.damaged))}" if len(ready.damaged) > 1 else f"the {name}'s only run"
            return f"{which} can{'' if len(ready.damaged) > 1 else 'not'} be used: {ready.damaged[0]}"
    return why_incomparable(baseline.runs, candidate.runs)


def _judge_time(pair: PreparedPair, p50: Decision, p95: Decision | None, mean: Decision | None, kernels: int,
                rule: Rule) -> tuple[Verdict, str]:
    """Worst of p50, p95 and mean; the sentence is of the number that decides, and names it."""
    n_c, n_b = len(pair.candidate.runs), len(pair.baseline.runs)
    have = f"{n_c} against {runs_text(n_b)}"
    judged = {name: decision for name, decision in (("p50", p50), ("p95", p95), (MEAN, mean))
              if decision is not None and decision.verdict != Verdict.NO_DATA}
    called = worst_verdict([decision.verdict for decision in judged.values()])
    if called == Verdict.PASS:
        called = p50.verdict                            # FASTER is the p50's to say
    name = next(name for name, decision in judged.items() if decision.verdict == called)
    decides = judged[name]
    if called == Verdict.AMBIGUOUS:
        if min(n_c, n_b) == 1:
            return called, f"{name} {decides.says}; one run does not say how far runs of the same build differ ({have})"
        enough = plan_runs(kernels, n_b, n_c, rule)
        if not enough.enough:
            return called, f"{name} {decides.says}. {enough.says}"
    beside = "".join(f"; {other} {decision.says}" for other, decision in judged.items()
                     if name == "p50" and other == "p95" and called == Verdict.SLOWER and decision.verdict == called)
    if p95 and p95.verdict == Verdict.NO_DATA:
        beside = f"; {p95.says}"
    if name == MEAN:
        beside = "".join(f"; {text}" for text in (_speeds(pair), f"p50 {percent_text(p50.bounds.ratio)}") if text)
    return called, f"{name} {decides.says}{beside}; {have}"


def _is_undecidable(baseline: Floats, floor: float) -> bool:
    """Would no practical number of runs tell? Small kernels' p95 is now and then twice itself, whenever the host is late.

    Only the baseline's noise counts: a candidate that makes the tail of a quiet kernel noisy is what the p95 is there for.
    """
    if len(baseline) < FEWEST_RUNS:
        return False
    moved = np.median(noise.resampled_ratios(noise.residuals(baseline), PRACTICAL_RUNS, PRACTICAL_RUNS), axis=1)
    return bool(np.mean(moved > 1 + floor) > MOVED)


def _metrics_reason(metrics: list[dict[str, Any]], called: Verdict, time_reason: str) -> str:
    reasons = "; ".join(f"{row['metric']} {row['reason']}" for row in metrics if row["verdict"] == called)
    return f"{reasons}. Time: {time_reason}"


def _excluded_runs(pair: PreparedPair) -> list[str]:
    notes = [f"{name}: {note}" for name, ready in (("baseline", pair.baseline), ("candidate", pair.candidate))
             for note in (*ready.damaged, *ready.notes)]
    return notes if len(notes) <= MOST_SAID else [*notes[:MOST_SAID], f"and {len(notes) - MOST_SAID:,} more"]


def _median_us(ready: Side) -> float | None:
    return float(np.median(ready.p50)) if len(ready.p50) else None
