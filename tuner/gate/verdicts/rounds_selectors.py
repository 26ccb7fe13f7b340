"""How many fresh runs are measured, of which builds: before the first round, and when a verdict needs another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuner.gate.baselines.selectors import Env, Expected, expected_baselines
from tuner.gate.builds.selectors import ENVIRONMENT
from tuner.gate.stats import plan
from tuner.gate.stats.results import KernelVerdict
from tuner.gate.stats.rule import Rule, Verdict, rule_of
from tuner.gate.suites.selectors import newest_environment
from tuner.gate.verdicts import sides_selectors
from tuner.gate.verdicts.sides_selectors import AGAIN, KernelComparison, Sides
from tuner.models import Build, Gate, GateKernel, KernelRun, Suite, SuiteJob

RE_RUNS = 2                         # by itself; a person may ask for more
MOST_FRESH = 40                     # fresh runs of each build in one round


@dataclass(frozen=True)
class PlannedRound:
    """What is to be measured next."""

    builds: list[dict[str, Any]]            # as SuiteJob.builds, in turn
    runs: int                               # of each build
    kernels: list[str]                      # keys
    why: str                                # one sentence


def can_measure_again(suite: Suite) -> bool:
    """Return whether an earlier build's code can be run today: a capture's program is whatever is installed now."""
    return suite.kind == Suite.Kind.OPERATORS


def runs_each(kernels: int, least: int, rule: Rule) -> int:
    """Return fresh runs of each of two builds that can decide so many kernels: no fewer than `least`."""
    return min(MOST_FRESH, max(least, plan.plan_runs(kernels, least, least, rule).needed_each))


def next_round(gate: Gate, sides: Sides, said: Mapping[str, KernelVerdict], rule: Rule) -> PlannedRound | None:
    """Return the round that a gate just judged needs, None where the verdict stands."""
    jobs = list(gate.jobs.order_by("id"))
    if gate.suite.kind == Suite.Kind.UPLOADED or sides.env is None or _count_automatic(jobs) > RE_RUNS or not jobs:
        return None
    if any(each.verdict == Verdict.SLOWER and _is_settled(compared, each) for compared, each in _pairs(sides, said)):
        return None                         # the suite's verdict is known, whatever the others would say
    doubtful = [(compared, each) for compared, each in _pairs(sides, said)
                if each.verdict in (Verdict.AMBIGUOUS, Verdict.SLOWER) or _lacks_named_baseline(gate, compared, each)]
    if not doubtful:
        return None
    if len(jobs) > 1 and len(jobs[-1].builds) > 1 and not any(compared.stage == AGAIN for compared, _ in doubtful):
        return None                         # the re-run gave no runs of both builds: another would not either
    more = max((each.more_runs for _, each in doubtful), default=0)
    return plan_round(gate, sides, [compared for compared, _ in doubtful], rule, more, _round_reason(doubtful))


def plan_round(gate: Gate, sides: Sides, kernels: Sequence[KernelComparison], rule: Rule, more: int, why: str,
             baseline: str = "") -> PlannedRound:
    """Return a round of those kernels, in turn with the baseline's build where its code can be run."""
    name = baseline or partner_build(gate, sides, kernels)
    keys = [one.kernel.key for one in kernels]
    runs = runs_each(len(kernels), max(1, more), rule)
    ours = {"build": gate.build.name, "configs": {key: config for key, config in gate.configs.items() if key in keys}}
    if not name or not can_measure_again(gate.suite):
        return PlannedRound([ours], runs, keys, why)
    theirs = {"build": name, "configs": last_configs(gate.suite, name, keys)}
    return PlannedRound([theirs, ours], runs, keys, why)


def _pairs(sides: Sides, said: Mapping[str, KernelVerdict]) -> list[tuple[KernelComparison, KernelVerdict]]:
    return [(one, said[one.kernel.key]) for one in sides.kernels if one.kernel.key in said]


def _is_settled(compared: KernelComparison, said: KernelVerdict) -> bool:
    """A slowdown that another round would not take back: measured in turn, or a metric that is the same in every run."""
    return compared.confirmed or any(metric.get("verdict") == Verdict.SLOWER for metric in said.metrics)


def _lacks_named_baseline(gate: Gate, compared: KernelComparison, said: KernelVerdict) -> bool:
    """Somebody named the build to compare with, and it has no runs here yet."""
    return gate.against is not None and said.verdict == Verdict.NO_DATA and bool(compared.candidate) \
        and not compared.baseline.runs and can_measure_again(gate.suite)


def _count_automatic(jobs: Sequence[SuiteJob]) -> int:
    return sum(job.reason == "gate" for job in jobs)


def _round_reason(doubtful: Sequence[tuple[KernelComparison, KernelVerdict]]) -> str:
    counts = Counter(str(each.verdict) for _, each in doubtful)
    words = {Verdict.SLOWER: "SLOWER against runs of another session", Verdict.AMBIGUOUS: "AMBIGUOUS",
             Verdict.NO_DATA: "without runs of the build to compare with"}
    return ", ".join(f"{number} kernel{'s' if number != 1 else ''} {words[Verdict(verdict)]}" for verdict, number in counts.items())


def partner_build(gate: Gate, sides: Sides, kernels: Sequence[KernelComparison]) -> str:
    """Return the build measured in turn with the gate's: the same in every round, else the newest of most baselines."""
    if gate.against is not None:
        return gate.against.name
    before = sides_selectors.interleaved_jobs(gate)
    if before:
        return sides_selectors.job_partner(before[-1], gate)
    newest = Counter(one.baseline.builds[0].name for one in kernels if one.baseline.builds)
    return newest.most_common(1)[0][0] if newest else ""


def last_configs(suite: Suite, build: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return the configurations that a build was measured with before, by kernel key."""
    rows = KernelRun.objects.filter(kernel__suite=suite, kernel__key__in=keys, build__name=build, rejected="").exclude(config=None)
    newest = rows.order_by("kernel_id", "-created", "-id").distinct("kernel_id")
    return {key: config for key, config in newest.values_list("kernel__key", "config") if config}


# ---- before anything is run ----

def plan_for_suite(suite: Suite, runs: int | None = None, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what `plan_runs` says of the next build, for a form, and the smallest slowdowns that so much noise lets it show."""
    plan = plan_runs(suite, runs, likely_baselines(suite, environment or {}))
    return {**plan, "says": " ".join(filter(None, (plan["says"], _shown_last(suite))))}


def _shown_last(suite: Suite) -> str:
    """Return what the runs of the last gate could have shown, in words; "" before there was one."""
    last = Gate.objects.filter(suite=suite, status=Gate.Status.DONE).order_by("-pk").first()
    rows = last.kernels.exclude(detectable=None).order_by("detectable") if last is not None else GateKernel.objects.none()
    least = [(share, key) for share, key in rows.values_list("detectable", "kernel__key") if share is not None]
    if not least:
        return ""
    low, (high, key) = least[0][0], least[-1]
    ends = f"{100 * low:.2g} %" if len(least) == 1 else f"{100 * low:.2g} to {100 * high:.2g} % (largest: {key})"
    return f"The smallest slowdowns that the last gate's runs could show: {ends}."


def likely_baselines(suite: Suite, asked: Mapping[str, str], before: Build | None = None,
                       against: Build | None = None) -> list[Expected]:
    """Return baselines in the environment of the newest run that fits the request; [] before there are runs."""
    where = {name: asked[name] for name in ENVIRONMENT if asked.get(name)}
    here = newest_environment(suite, **where)
    kernels = list(suite.kernels.filter(enabled=True).only("suite", "key"))         # thousands, of which no more is asked
    return expected_baselines(kernels, Env(*here), before, against) if here else []


def plan_runs(suite: Suite, runs: int | None, baselines: Sequence[Expected]) -> dict[str, Any]:
    """Return whether a gate with so many fresh runs could decide anything, in words and numbers; nothing is run for it.

    The baseline counts with the runs that it has, or, before there is one, with those that it may come to hold. Where it is
    short of runs and its build can be run again, both builds are measured in turn (`interleaved`, `runs_each`).
    """
    rule = rule_of(suite.rule)
    kernels = suite.kernels.filter(enabled=True).count()
    candidate = suite.runs if runs is None else runs
    held = min((each.runs for each in baselines if each.runs), default=0)
    baseline, again = suite.baseline_runs, False
    found = plan.plan_runs(kernels, baseline, candidate, rule)
    if found.enough and held and not (now := plan.plan_runs(kernels, held, candidate, rule)).enough:
        again = can_measure_again(suite)
        candidate = runs_each(kernels, candidate, rule) if again else candidate
        found, baseline = (plan.plan_runs(kernels, candidate, candidate, rule), candidate) if again else (now, held)
    elif found.enough and held:
        found, baseline = plan.plan_runs(kernels, held, candidate, rule), held
    return {**asdict(found), "kernels": kernels, "candidate_runs": candidate, "baseline_runs": baseline, "interleaved": again,
            "has_baseline": bool(held)}
