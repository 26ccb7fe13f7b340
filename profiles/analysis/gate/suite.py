"""A suite's verdict: each kernel against its baseline, with one risk of a false SLOWER for all of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from profiles.analysis.gate import plan as plans
from profiles.analysis.gate.decide import Levels
from profiles.analysis.gate.exact import holm_levels
from profiles.analysis.gate.kernel import look, verdict
from profiles.analysis.gate.pairs import pairs
from profiles.analysis.gate.results import KernelVerdict, SuiteVerdict
from profiles.analysis.gate.rule import ORDER, Rule, Verdict, worst
from profiles.analysis.gate.runs import KernelRuns


def judge(baseline: Sequence[KernelRuns], candidate: Sequence[KernelRuns], rule: Rule | None = None, *,
          rules: Mapping[str, Rule] | None = None, metrics: Mapping[str, Any] | None = None,
          metrics_of: Mapping[str, Mapping[str, Any]] | None = None, family: int | None = None,
          calibrated: bool = True) -> SuiteVerdict:
    """Worst kernel first. Bad runs never raise: they make NO DATA or AMBIGUOUS with the reason.

    `rules`, `metrics_of`: by kernel key, before the suite's `rule` and `metrics` (alpha is the suite's always).
    `family`: how many kernels the correction counts, where only some of a suite are judged (None: those that are).
    A re-run is judged by its own runs alone, those of both builds interleaved: fresh runs know nothing of why they were
    asked for, so their p needs no correction for the first look, and a session's own speed is on both sides.
    `calibrated=False` leaves out `detectable` and `false_alarms`.
    """
    rule, rules, metrics, metrics_of = rule or Rule(), rules or {}, metrics or {}, metrics_of or {}
    looked = [look(pair, rule.alpha) for pair in pairs(baseline, candidate)]
    counted = [index for index, seen in enumerate(looked) if not seen.problem]
    kernels = max(family or 0, len(counted), 1)
    slower, faster = ([min(p) for p in ways] for ways in
                      ([looked[index].slower for index in counted], [looked[index].faster for index in counted]))
    levels = _levels(slower, faster, rule.alpha, kernels)
    found = []
    unjudged = Levels(rule.alpha, rule.alpha)
    by_index = dict(zip(counted, levels, strict=True))
    for index, seen in enumerate(looked):
        own = replace(rules.get(seen.pair.key, rule), alpha=rule.alpha)
        limits = {**metrics, **metrics_of.get(seen.pair.key, {})}
        found.append(verdict(seen, own, by_index.get(index, unjudged), limits, kernels, calibrated))
    found = _share_more(found, rule)
    found.sort(key=lambda each: (ORDER.index(each.verdict), -(each.p50.ratio if each.p50 else 0.0)))
    called = worst([each.verdict for each in found])
    return SuiteVerdict(called, _says(called, found), found, rule.alpha, _plan(found, kernels, rule))


def _levels(slower: list[float], faster: list[float], alpha: float, family: int) -> list[Levels]:
    return [Levels(s, f) for s, f in zip(holm_levels(slower, alpha, family), holm_levels(faster, alpha, family), strict=True)]


def _share_more(found: list[KernelVerdict], rule: Rule) -> list[KernelVerdict]:
    """A re-run is of all AMBIGUOUS kernels at once: its runs must be enough for so many."""
    unsure = sum(each.verdict == Verdict.AMBIGUOUS for each in found)
    if not unsure:
        return found
    least = plans.plan(unsure, 0, 0, rule).needed_each
    return [replace(each, more_runs=max(each.more_runs, least)) if each.verdict == Verdict.AMBIGUOUS else each for each in found]


def _plan(found: list[KernelVerdict], kernels: int, rule: Rule) -> dict[str, Any]:
    """Of the kernel with the fewest runs."""
    measured = [each for each in found if each.baseline_runs and each.candidate_runs]
    runs = min(((each.candidate_runs, each.baseline_runs) for each in measured), key=lambda n: (min(n), sum(n)), default=(0, 0))
    return plans.as_dict(plans.plan(kernels, runs[1], runs[0], rule))


def _says(called: Verdict, found: list[KernelVerdict]) -> str:
    if not found:
        return "no kernel was measured on either side"
    counts = Counter(each.verdict for each in found)
    of = "the only kernel" if len(found) == 1 else f"{counts[called]} of {len(found)} kernels"
    if called == Verdict.PASS:
        return f"{'the only kernel' if len(found) == 1 else f'all {len(found)} kernels'} as fast as the baseline"
    first = found[0]
    name = " ".join([first.op, *(f"{key}={value}" for key, value in first.shape.items())])
    return f"{of} {called}: {first.key or name}: {first.reason}"
