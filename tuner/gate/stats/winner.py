"""Which configuration of a kernel serves from now on: the default, what served so far, or a rival. Fresh runs, all in turn.

Judged as builds are: the default is the baseline, each configuration a candidate. One serves only where it is surely faster
than the default (exact test, the whole interval on one side), however little; where that cannot be told, the default
serves, for it is what everybody runs already. What served stays unless a rival is FASTER than it: by the floor or more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuner.gate.stats.plan import METRICS, plan_runs
from tuner.gate.stats.results import KernelVerdict, interval_text, runs_text
from tuner.gate.stats.rule import Rule, Verdict
from tuner.gate.stats.runs import KernelRuns
from tuner.gate.stats.suite import judge

FEWEST_RUNS, MOST_RUNS = 5, 60           # of each side
DEFAULT = "the default"


@dataclass(frozen=True)
class Contender:
    """One configuration beside the default. `refused`: why runs of it were rejected: it crashed, or its results were wrong."""

    name: str
    runs: KernelRuns
    refused: Sequence[str] = ()


@dataclass(frozen=True)
class Problem:
    """One kernel at one shape. The first contender is what served so far, where that was not the default."""

    key: str
    default: KernelRuns
    contenders: Sequence[Contender]
    served: str = ""                     # name of the contender that served; "": the default did
    default_refused: Sequence[str] = ()


@dataclass(frozen=True)
class Choice:
    """`serves`: name of a contender, "" the default, None where nothing can be said. `open`: more runs should decide."""

    key: str
    serves: str | None
    says: str
    open: bool = False
    more_runs: int = 0
    against_default: Mapping[str, KernelVerdict] = field(default_factory=dict)       # by contender


def runs_needed(comparisons: int, rule: Rule | None = None) -> int:
    """Return the fresh runs of each side for so many comparisons at once, p50 and p95 both judged."""
    rule = rule or Rule()
    least = max(FEWEST_RUNS, plan_runs(comparisons * METRICS, 0, 0, rule).needed_each)
    return min(MOST_RUNS, least)


def choose(problems: Sequence[Problem], rule: Rule | None = None, *, last: bool = False) -> list[Choice]:
    """Return which configuration serves each problem.

    One risk `rule.alpha` of calling any faster than its default that is not. `last`: nobody measures more.
    """
    rule = rule or Rule()
    named = [(one, contender) for one in problems for contender in one.contenders if contender.runs.runs and one.default.runs]
    judged = judge([_named_runs(problem.default, problem, contender) for problem, contender in named],
                   [_named_runs(contender.runs, problem, contender) for problem, contender in named], rule, calibrated=False)
    by_key = {verdict.key: verdict for verdict in judged.kernels}
    found = {one.key: {contender.name: by_key[_comparison_name(one, contender)] for of, contender in named if of is one}
             for one in problems}
    return [_choose(problem, found[problem.key], rule, last) for problem in problems]


def _choose(problem: Problem, judged: Mapping[str, KernelVerdict], rule: Rule, last: bool) -> Choice:
    def done(serves: str | None, says: str) -> Choice:
        return Choice(problem.key, serves, says, against_default=judged)

    if not problem.default.runs:
        why = f": {problem.default_refused[0]}" if problem.default_refused else ""
        return done(None, f"{DEFAULT} has no run that can be used{why}")
    by_name = {contender.name: contender for contender in problem.contenders}
    sure = [name for name, verdict in judged.items() if not by_name[name].refused and is_surely_faster(verdict)]
    unsure = [name for name, verdict in judged.items() if name not in sure and _is_unsure(verdict, by_name[name], rule)]
    if not last and unsure and (problem.served in unsure or not sure):
        more = max(max(judged[name].more_runs, 2 * judged[name].candidate_runs) for name in unsure)
        return Choice(problem.key, None, f"not decided yet: {unsure[0]}: {judged[unsure[0]].reason}", open=True,
                      more_runs=min(MOST_RUNS, max(FEWEST_RUNS, more)), against_default=judged)
    if problem.served in judged and judged[problem.served].verdict == Verdict.NO_DATA:
        return done(None, f"nothing can be said of the {problem.served}: {judged[problem.served].reason}")
    if problem.served in sure:
        return done(*_choose_against_rivals(problem, by_name, judged, [name for name in sure if name != problem.served], rule))
    lost = _why_dropped(problem, judged, by_name)
    if sure:
        best = min(sure, key=lambda name: judged[name].candidate_us or 0.0)
        return done(best, f"{best} serves now: it {_less_time(judged[best], DEFAULT)}; {lost or f'{DEFAULT} served so far'}")
    return done("", f"{DEFAULT} serves now: {lost}" if lost else f"{DEFAULT} stays: nothing is surely faster")


def _choose_against_rivals(one: Problem, by_name: Mapping[str, Contender], judged: Mapping[str, KernelVerdict],
                           rivals: Sequence[str], rule: Rule) -> tuple[str, str]:
    """What served holds against the default: is a rival FASTER than it?"""
    incumbent = by_name[one.served]
    races = judge([_named_runs(incumbent.runs, one, by_name[name]) for name in rivals],
                  [_named_runs(by_name[name].runs, one, by_name[name]) for name in rivals], rule, calibrated=False)
    names = {_comparison_name(one, by_name[name]): name for name in rivals}
    ahead = {names[race.key]: race for race in races.kernels if race.verdict == Verdict.FASTER}
    if not ahead:
        return one.served, f"the {one.served} stays: it {_less_time(judged[one.served], DEFAULT)}"
    best = min(ahead, key=lambda name: judged[name].candidate_us or 0.0)
    return best, f"{best} serves now: it {_less_time(ahead[best], f'the {one.served}')}, and {_less_time(judged[best], DEFAULT)}"


def is_surely_faster(verdict: KernelVerdict) -> bool:
    """Return whether its p50 is surely lower, whatever the size, with no doubt about its p95 or the clocks."""
    if verdict.change != "faster" or verdict.verdict == Verdict.SLOWER:
        return False
    return verdict.verdict in (Verdict.FASTER, Verdict.PASS) or not verdict.clocks.get("says")


def _is_unsure(verdict: KernelVerdict, contender: Contender, rule: Rule) -> bool:
    """Runs that failed beside runs that did not, a verdict that asks for more, or a gain above the floor that is not proven."""
    if contender.refused or verdict.verdict in (Verdict.AMBIGUOUS, Verdict.NO_DATA):
        return True
    return verdict.change not in ("faster", "slower") and verdict.p50 is not None and verdict.p50.ratio < 1 - rule.floor


def _why_dropped(one: Problem, judged: Mapping[str, KernelVerdict], by_name: Mapping[str, Contender]) -> str:
    """Why what served does not serve on; "" where that was the default."""
    if not one.served:
        return ""
    contender = by_name[one.served]
    if not contender.runs.runs:
        return f"the {one.served} has no run that can be used: {contender.refused[0] if contender.refused else 'none was measured'}"
    if contender.refused:
        return f"the {one.served} failed in {runs_text(len(contender.refused))}: {contender.refused[0]}"
    return f"the {one.served} is not surely faster than {DEFAULT} any more: {judged[one.served].reason}"


def _less_time(verdict: KernelVerdict, than: str) -> str:
    """"takes 7.1 % less time than the default (interval −7.6 % to −6.5 %)"."""
    assert verdict.p50 is not None
    less = f"{100 * (1 - verdict.p50.ratio):.1f} %"
    return f"takes {less} less time than {than} (interval {interval_text(verdict.p50.low, verdict.p50.high)})"


def _comparison_name(problem: Problem, contender: Contender) -> str:
    return f"{problem.key} · {contender.name}"


def _named_runs(runs: KernelRuns, problem: Problem, contender: Contender) -> KernelRuns:
    return replace(runs, key=_comparison_name(problem, contender))
