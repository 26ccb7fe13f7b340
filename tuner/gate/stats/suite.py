"""A suite's verdict: each kernel against its baseline, with one risk of a false SLOWER for all of them together.

How many fresh runs a re-run of AMBIGUOUS kernels needs is tried out on the noise that was seen: the runs' residuals are drawn anew
as re-runs of n against n, and judged as the re-run will be (`resampled_ratios`): with a slowdown of the target nearly all must end
SLOWER, without one nearly all must PASS. The first n of a ladder that does both is the answer. What a normal approximation says
(`further_runs`) is too little where runs have two speeds, or where it is the p95 that is undecided. How often the runs that are
asked for then decide stands in docs/gate-bench.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.calibration import pass_mask, slower_mask
from tuner.gate.stats.distributions import holm_levels, smallest_p
from tuner.gate.stats.kernel import PreparedPair, compute_p_values, judge_kernel, prepare_pair
from tuner.gate.stats.noise import resampled_ratios, residuals
from tuner.gate.stats.plan import METRICS, MOST_FURTHER, PRACTICAL_RUNS, further_runs, plan_runs
from tuner.gate.stats.results import KernelVerdict, Levels, SuiteVerdict, percent_text
from tuner.gate.stats.rule import ORDER, Rule, Verdict, worst_verdict
from tuner.gate.stats.runs import EarlierLevel, KernelRuns, Run, pair_kernels
from tuner.gate.stats.sessions import FEWEST_KERNELS, MachineDrift, Sessions, common_shift, find_machine_drift
from tuner.gate.stats.sides import Side, timer_step

# One GPU seen slower, or a slower build? What can be told where the two builds ran on different cards of one model.
#
# A card that is slower (its clocks, its memory, its heat) is slower in most kernels; a build mostly is in a few. Runs of other
# builds on both cards say by how much one card is slower in each kernel. Without them, and with every kernel slower, nobody can
# tell.

LEAST_RUNS = 3              # of each card of one build, before its ratio says how cards differ
LEAST_KERNELS = 3           # that a common slowdown must be seen in
COMMON = 0.75               # share of the kernels that a slower card slows
SHARE = 0.25                # of a kernel's slowdown: kernels that are slower by less are not slowed by what slowed it


@dataclass(frozen=True)
class CardAnswer:
    """Whether the card may have done it: "card" it did, "unknown" it may have, "build" it did not."""

    kind: str
    effect: float | None = None             # time on the candidate's card / on the baseline's, of other builds
    common: float | None = None             # median ratio of the suite's other kernels


def card_effect(here: Mapping[str, Sequence[float]], there: Mapping[str, Sequence[float]]) -> float | None:
    """Return time on one card over time on the other: the median over builds that ran on both, by run medians in µs.

    None where no build has LEAST_RUNS runs on each.
    """
    both = [build for build in here if len(here[build]) >= LEAST_RUNS and len(there.get(build, ())) >= LEAST_RUNS]
    return median(median(a / b for a in here[build] for b in there[build]) for build in both) if both else None


def tell_card_from_build(ratio: float, floor: float, others: Sequence[float], effect: float | None) -> CardAnswer:
    """Return what a slowdown between two cards is.

    ratio   of the kernel, candidate / baseline
    others  of the suite's other kernels in the same runs
    effect  of the card, from builds that ran on both; None: unknown
    """
    common = median(others) if others else None
    if effect is not None:
        explained = effect > 1 and ratio / effect < 1 + floor
        return CardAnswer("card" if explained else "build", effect, common)
    if len(others) + 1 < LEAST_KERNELS:
        return CardAnswer("unknown", None, common)
    slowed = sum(other - 1 >= SHARE * (ratio - 1) for other in others)
    return CardAnswer("unknown" if slowed >= COMMON * len(others) else "build", None, common)


Floats = NDArray[np.float64]

DECIDED = 0.9               # of the tried re-runs, with and without the slowdown
FEWEST_RUNS = 6             # of both builds, that say how runs are spread; with fewer the approximation is as good
MOST_TRIED = 30             # kernels, the noisiest: a re-run takes the most that any of its kernels asks for
MOST_FOR_P95 = PRACTICAL_RUNS
LADDER = 1.35               # each step to the next number of runs
DRAWS = 100


@dataclass(frozen=True)
class OpenKernel:
    """An AMBIGUOUS kernel, both its sides, and the rule that it is judged by."""

    verdict: KernelVerdict
    baseline: Side
    candidate: Side
    rule: Rule


def add_further_runs(unsure: Sequence[OpenKernel]) -> list[KernelVerdict]:
    """Return each verdict with `more_runs`; all of them are judged together in one re-run."""
    spreads = [float(np.std(residuals(kernel.baseline.p50, kernel.candidate.p50))) for kernel in unsure]
    by_formula = [further_runs(spread, len(unsure), kernel.rule) for spread, kernel in zip(spreads, unsure, strict=True)]
    tried = sorted(range(len(unsure)), key=lambda at: -_interval_width(unsure[at]))[:MOST_TRIED]
    return [replace(kernel.verdict, more_runs=max(least, _runs_by_trial(kernel, len(unsure))) if index in tried else least)
            for index, (kernel, least) in enumerate(zip(unsure, by_formula, strict=True))]


def _interval_width(each: OpenKernel) -> float:
    """Of the wider interval: how much there is to find out."""
    return max((interval.high - interval.low for interval in (each.verdict.p50, each.verdict.p95) if interval), default=0.0)


def _runs_by_trial(each: OpenKernel, kernels: int) -> int:
    if len(each.baseline.p50) + len(each.candidate.p50) < FEWEST_RUNS:
        return 0
    rule, level = each.rule, each.rule.alpha / kernels
    both = each.baseline.p95 is not None and each.candidate.p95 is not None
    runs = next((n for n in range(2, MOST_FURTHER) if smallest_p(n, n) <= level / (METRICS if both else 1)), MOST_FURTHER)
    needed = _runs_that_decide(residuals(each.baseline.p50, each.candidate.p50), runs, level, rule.floor, rule.target, rule)
    if both and each.verdict.p95 and each.verdict.p95.verdict == Verdict.AMBIGUOUS:
        assert each.baseline.p95 is not None and each.candidate.p95 is not None
        needed = _runs_that_decide(residuals(each.baseline.p95, each.candidate.p95), needed, level / METRICS, rule.floor_p95,
                          rule.target_p95, rule, MOST_FOR_P95)
    return needed


def _runs_that_decide(logs: Floats, runs: int, level: float, floor: float, target: float, rule: Rule,
                      most: int = MOST_FURTHER) -> int:
    """The first number of runs from `runs` on that decides, `most` where none does."""
    first = runs
    while runs < most:
        same = resampled_ratios(logs, runs, runs, DRAWS)
        called = slower_mask(same * (1 + target), runs, runs, level, floor, target)
        if min(called.mean(), pass_mask(same, runs, runs, floor, target, rule.beta).mean()) >= DECIDED:
            break
        runs = max(runs + 1, round(runs * LADDER))
    return runs if runs < most else max(most, first)


def judge(baseline: Sequence[KernelRuns], candidate: Sequence[KernelRuns], rule: Rule | None = None, *,
          rules: Mapping[str, Rule] | None = None, metrics: Mapping[str, Any] | None = None,
          metrics_of: Mapping[str, Mapping[str, Any]] | None = None, family: int | None = None,
          calibrated: bool = True, earlier: Mapping[str, EarlierLevel] | None = None,
          sessions: Sessions | None = None, allow_gone: bool = False, one_after_other: bool = False) -> SuiteVerdict:
    """Return the suite's verdict, its worst kernel first.

    Bad runs never raise: they make NO DATA or AMBIGUOUS with the reason.

    `rules`, `metrics_of`: by kernel key, before the suite's `rule` and `metrics` (alpha is the suite's always).
    `family`: how many kernels the correction counts, where only some of a suite are judged (None: those that are).
    A re-run is judged by its own runs alone, those of both builds interleaved: fresh runs know nothing of why they were
    asked for, so their p needs no correction for the first look, and a session's own speed is on both sides.
    `calibrated=False` leaves out `detectable` and `false_alarms`.
    `earlier`: by kernel key, runs from before the kernel became faster. `sessions`: the sides were measured in sessions of their
    own, which differ so far (None: in turn, or as one). `allow_gone`: kernels that only the baseline has are left out.
    `one_after_other`: all runs of the baseline were taken before the candidate's, each side's in its order, so that a drift of the
    machine lies between them.
    """
    rule, rules, metrics, metrics_of = rule or Rule(), rules or {}, metrics or {}, metrics_of or {}
    pairs = [pair for pair in pair_kernels(baseline, candidate) if not allow_gone or any(kernel.runs for kernel in pair.candidate)]
    own = [replace(rules.get(pair.key, rule), alpha=rule.alpha) for pair in pairs]
    limits = [{**metrics, **metrics_of.get(pair.key, {})} for pair in pairs]
    looked = [prepare_pair(pair, (earlier or {}).get(pair.key), its.floor) for pair, its in zip(pairs, own, strict=True)]
    kernels = max(family or 0, sum(not pair.problem for pair in looked), 1)
    verdicts = _judge_pairs(looked, own, limits, rule.alpha, kernels, calibrated)
    if sessions is not None:
        verdicts = _weigh_sessions(verdicts, looked, own, limits, rule.alpha, kernels, sessions)
    if one_after_other:
        verdicts = _weigh_drift(verdicts, looked, own, limits, rule.alpha, kernels)
    verdicts = _ask_for_runs(verdicts, looked, own)
    verdicts.sort(key=lambda each: (ORDER.index(each.verdict), -(each.p50.ratio if each.p50 else 0.0)))
    called = worst_verdict([verdict.verdict for verdict in verdicts])
    return SuiteVerdict(called, suite_reason(called, verdicts), verdicts, rule.alpha, _suite_plan(verdicts, kernels, rule))


def _judge_pairs(looked: Sequence[PreparedPair], rules: Sequence[Rule], limits: Sequence[Mapping[str, Any]], alpha: float,
                 kernels: int, calibrated: bool) -> list[KernelVerdict]:
    """The kernels in the order of `looked`."""
    counted = [pair for pair in looked if not pair.problem]
    tests = [compute_p_values(pair, alpha, kernels) for pair in counted]
    slower, faster = (holm_levels(p, alpha, kernels) for p in
                      ([min(test.slower) for test in tests], [min(test.faster) for test in tests]))
    steps = iter(zip(tests, map(Levels, slower, faster), strict=True))
    step_us = min((us for pair in counted if (us := timer_step(pair.baseline, pair.candidate))), default=0.0)
    verdicts = []
    for pair, its, limit in zip(looked, rules, limits, strict=True):
        test, levels = (None, Levels(0, 0)) if pair.problem else next(steps)
        verdicts.append(judge_kernel(pair, test, its, levels, limit, kernels, calibrated, step_us))
    return verdicts


# ---- sessions that differ as a whole ----

def _weigh_sessions(verdicts: list[KernelVerdict], looked: Sequence[PreparedPair], rules: Sequence[Rule],
                    limits: Sequence[Mapping[str, Any]], alpha: float, kernels: int, sessions: Sessions) -> list[KernelVerdict]:
    """What changes where the session alone may have made the difference: a verdict must hold without it as well."""
    logs = [math.log(verdict.p50.ratio) for verdict in verdicts if verdict.p50]
    limit = sessions.limit(alpha)
    if len(logs) < FEWEST_KERNELS:
        return [_doubt_session(verdict, limit, sessions) for verdict in verdicts]
    shift = common_shift(logs, limit)
    if not shift:
        return verdicts
    without = _judge_pairs([_scale_candidate(pair, math.exp(-shift)) for pair in looked], rules, limits, alpha, kernels, False)
    return [_join_verdicts(verdict, other, math.exp(shift), sessions) for verdict, other in zip(verdicts, without, strict=True)]


def _doubt_session(verdict: KernelVerdict, limit: float, sessions: Sessions) -> KernelVerdict:
    """Of few kernels: a time that sessions alone may differ by proves neither a slower nor a faster build."""
    numbers = [one for one in (verdict.p50, verdict.p95, verdict.mean) if one is not None and one.verdict == verdict.verdict]
    if verdict.verdict not in (Verdict.SLOWER, Verdict.FASTER) or not numbers or abs(math.log(numbers[0].ratio)) > limit:
        return verdict
    if worst_verdict([Verdict(row["verdict"]) for row in verdict.metrics] or [Verdict.PASS]) == Verdict.SLOWER:
        return verdict
    says = f"sessions differ {sessions.says}, up to {percent_text(math.exp(limit))} between two equal builds: measure both in turn"
    if verdict.verdict == Verdict.FASTER:
        return replace(verdict, verdict=Verdict.PASS, reason=f"{verdict.reason}; not called FASTER, {says}")
    return replace(verdict, verdict=Verdict.AMBIGUOUS, reason=f"{verdict.reason}; {says}")


def _scale_candidate(pair: PreparedPair, factor: float) -> PreparedPair:
    side = pair.candidate
    runs: list[Run] = [replace(run, us=run.us * factor) for run in side.runs]
    scaled = replace(side, runs=runs, p50=side.p50 * factor, p95=None if side.p95 is None else side.p95 * factor,
                     mean=None if side.mean is None else side.mean * factor)
    return replace(pair, candidate=scaled)


def _join_verdicts(raw: KernelVerdict, without: KernelVerdict, shift: float, sessions: Sessions) -> KernelVerdict:
    """`without`: the session's own speed, which is `shift` times the baseline's."""
    if raw.verdict == without.verdict or raw.verdict in (Verdict.NO_DATA, Verdict.AMBIGUOUS):
        return raw
    session = f"sessions differ {sessions.says}, and all kernels together are {percent_text(shift)}"
    if Verdict.SLOWER in (raw.verdict, without.verdict):
        reason = f"{raw.reason}; {session}: without that, {without.reason}. Measure both builds in turn"
        return replace(raw, verdict=Verdict.AMBIGUOUS, reason=reason)
    if raw.verdict == Verdict.FASTER:
        return replace(raw, verdict=without.verdict, reason=f"{raw.reason}; {session}: without that, {without.reason}")
    return raw


# ---- a machine that drifts while the runs are taken ----

def _weigh_drift(verdicts: list[KernelVerdict], looked: Sequence[PreparedPair], rules: Sequence[Rule],
                 limits: Sequence[Mapping[str, Any]], alpha: float, kernels: int) -> list[KernelVerdict]:
    """What changes where the machine drifted from one side to the other: a verdict must hold without that as well."""
    counted = [pair for pair in looked if not pair.problem]
    drift = find_machine_drift([pair.baseline.p50 for pair in counted], [pair.candidate.p50 for pair in counted])
    if drift is None:
        return verdicts
    ways = [_judge_pairs([_scale_candidate(pair, math.exp(-shift)) for pair in looked], rules, limits, alpha, kernels, False)
            for shift in (drift.shift, drift.far)]
    return [_doubt_drift(raw, likely, far, drift) for raw, likely, far in zip(verdicts, *ways, strict=True)]


def _doubt_drift(raw: KernelVerdict, likely: KernelVerdict, far: KernelVerdict, drift: MachineDrift) -> KernelVerdict:
    """`likely`, `far`: what would be said without the drift, by its estimate and by the far end of its interval."""
    if raw.verdict == Verdict.NO_DATA or not raw.believed:
        return raw
    machine = (f"the machine drifted by {percent_text(math.exp(drift.series))} while the runs were taken one after the other, "
               f"which is {percent_text(math.exp(drift.shift))} between the builds")
    if raw.verdict == Verdict.AMBIGUOUS:
        return replace(raw, reason=f"{raw.reason}; {machine}: measure both in turn")
    doubtful = next((each for each in (likely, far) if each.verdict != Verdict.SLOWER), None) if raw.verdict == Verdict.SLOWER \
        else likely if likely.verdict in (Verdict.SLOWER, Verdict.AMBIGUOUS) else None
    if doubtful is not None:
        return replace(raw, verdict=Verdict.AMBIGUOUS,
                       reason=f"{raw.reason}; {machine}: without that, {doubtful.reason}. Measure both builds in turn")
    if raw.verdict == Verdict.FASTER and likely.verdict != Verdict.FASTER:
        return replace(raw, verdict=likely.verdict, reason=f"{raw.reason}; not called FASTER: {machine}")
    return raw


def _ask_for_runs(verdicts: list[KernelVerdict], looked: list[PreparedPair], rules: list[Rule]) -> list[KernelVerdict]:
    """AMBIGUOUS kernels ask for more runs: one re-run of all of them must be enough for so many."""
    asks = [OpenKernel(each, seen.baseline, seen.candidate, rule) for each, seen, rule in zip(verdicts, looked, rules, strict=True)
            if each.verdict == Verdict.AMBIGUOUS and each.believed]
    updates = iter(add_further_runs(asks))
    return [next(updates) if verdict.verdict == Verdict.AMBIGUOUS and verdict.believed else verdict for verdict in verdicts]


def _suite_plan(verdicts: list[KernelVerdict], kernels: int, rule: Rule) -> dict[str, Any]:
    """Of the kernel with the fewest runs."""
    measured = [verdict for verdict in verdicts if verdict.baseline_runs and verdict.candidate_runs]
    runs = min(((each.candidate_runs, each.baseline_runs) for each in measured), key=lambda n: (min(n), sum(n)), default=(0, 0))
    return asdict(plan_runs(kernels, runs[1], runs[0], rule))


def suite_reason(called: Verdict, verdicts: Sequence[KernelVerdict]) -> str:
    """Return one sentence: how many kernels, and the worst one's numbers; they come worst first."""
    if not verdicts:
        return "no kernel was measured on either side"
    counts = Counter(verdict.verdict for verdict in verdicts)
    of = "the only kernel" if len(verdicts) == 1 else f"{counts[called]} of {len(verdicts)} kernels"
    if called == Verdict.PASS:
        sure = [verdict for verdict in verdicts if verdict.change == "slower" and verdict.p50]
        passed = f"{'the only kernel' if len(verdicts) == 1 else f'all {len(verdicts)} kernels'} as fast as the baseline"
        if not sure:
            return passed
        most = ", ".join(f"{verdict.name} {percent_text(verdict.p50.ratio)}" for verdict in sure[:3] if verdict.p50)
        return f"{passed}, less than the target apart; surely slower by less: {most}{' …' if len(sure) > 3 else ''}"
    return f"{of} {called}: {verdicts[0].name}: {verdicts[0].reason}"
