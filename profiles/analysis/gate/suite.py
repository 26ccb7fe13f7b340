"""A suite's verdict: each kernel against its baseline, with one risk of a false SLOWER for all of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from profiles.analysis.gate.advice import Asks, asking
from profiles.analysis.gate.decide import Levels
from profiles.analysis.gate.exact import holm_levels
from profiles.analysis.gate.kernel import Looked, look, tested, verdict
from profiles.analysis.gate.pairs import pairs
from profiles.analysis.gate.plan import as_dict, plan
from profiles.analysis.gate.results import KernelVerdict, SuiteVerdict
from profiles.analysis.gate.rule import ORDER, Rule, Verdict, worst
from profiles.analysis.gate.runs import KernelRuns
from profiles.analysis.gate.sentences import percent
from profiles.analysis.gate.sides import step


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
    looked = [look(pair) for pair in pairs(baseline, candidate)]
    counted = [seen for seen in looked if not seen.problem]
    kernels = max(family or 0, len(counted), 1)
    tests = [tested(seen, rule.alpha, kernels) for seen in counted]
    slower, faster = (holm_levels(p, rule.alpha, kernels) for p in
                      ([min(test.slower) for test in tests], [min(test.faster) for test in tests]))
    steps = iter(zip(tests, map(Levels, slower, faster), strict=True))
    step_us = min((us for seen in counted if (us := step(seen.baseline, seen.candidate))), default=0.0)
    own = [replace(rules.get(seen.pair.key, rule), alpha=rule.alpha) for seen in looked]
    found = []
    for seen, its in zip(looked, own, strict=True):
        test, levels = (None, Levels(0, 0)) if seen.problem else next(steps)
        limits = {**metrics, **metrics_of.get(seen.pair.key, {})}
        found.append(verdict(seen, test, its, levels, limits, kernels, calibrated, step_us))
    found = _asking(found, looked, own)
    found.sort(key=lambda each: (ORDER.index(each.verdict), -(each.p50.ratio if each.p50 else 0.0)))
    called = worst([each.verdict for each in found])
    return SuiteVerdict(called, suite_says(called, found), found, rule.alpha, _plan(found, kernels, rule))


def _asking(found: list[KernelVerdict], looked: list[Looked], rules: list[Rule]) -> list[KernelVerdict]:
    """AMBIGUOUS kernels ask for more runs: one re-run of all of them must be enough for so many."""
    asks = [Asks(each, seen.baseline, seen.candidate, rule) for each, seen, rule in zip(found, looked, rules, strict=True)
            if each.verdict == Verdict.AMBIGUOUS]
    asked = iter(asking(asks))
    return [next(asked) if each.verdict == Verdict.AMBIGUOUS else each for each in found]


def _plan(found: list[KernelVerdict], kernels: int, rule: Rule) -> dict[str, Any]:
    """Of the kernel with the fewest runs."""
    measured = [each for each in found if each.baseline_runs and each.candidate_runs]
    runs = min(((each.candidate_runs, each.baseline_runs) for each in measured), key=lambda n: (min(n), sum(n)), default=(0, 0))
    return as_dict(plan(kernels, runs[1], runs[0], rule))


def suite_says(called: Verdict, found: Sequence[KernelVerdict]) -> str:
    """One sentence: how many kernels, and the worst one's numbers; they come worst first."""
    if not found:
        return "no kernel was measured on either side"
    counts = Counter(each.verdict for each in found)
    of = "the only kernel" if len(found) == 1 else f"{counts[called]} of {len(found)} kernels"
    if called == Verdict.PASS:
        sure = [each for each in found if each.change == "slower" and each.p50]
        passed = f"{'the only kernel' if len(found) == 1 else f'all {len(found)} kernels'} as fast as the baseline"
        if not sure:
            return passed
        most = ", ".join(f"{each.name} {percent(each.p50.ratio)}" for each in sure[:3] if each.p50)
        return f"{passed}, less than the target apart; surely slower by less: {most}{' …' if len(sure) > 3 else ''}"
    return f"{of} {called}: {found[0].name}: {found[0].reason}"
