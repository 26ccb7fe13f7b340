"""How many fresh runs are measured, of which builds: before the first round, and when a verdict needs another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.analysis.gate.plan import plan
from profiles.analysis.gate.results import KernelVerdict
from profiles.analysis.gate.rule import Rule, Verdict
from tuner.baselines.selectors import Env, Expected, baselines_expected
from tuner.gates import sides_selectors
from tuner.gates.rules_selectors import rule_of
from tuner.gates.sides_selectors import AGAIN, Compared, Sides
from tuner.models import Build, Gate, KernelRun, Suite, SuiteJob
from tuner.suites.run_selectors import newest_environment

RE_RUNS = 2                         # by itself; a person may ask for more
MOST_FRESH = 40                     # fresh runs of each build in one round


@dataclass(frozen=True)
class Round:
    """What is to be measured next."""

    builds: list[dict[str, Any]]            # as SuiteJob.builds, in turn
    runs: int                               # of each build
    kernels: list[str]                      # keys
    why: str                                # one sentence


def measurable_again(suite: Suite) -> bool:
    """Whether an earlier build's code can be run today: a capture's program is whatever its owner has installed now."""
    return suite.kind == Suite.Kind.OPERATORS


def runs_each(kernels: int, least: int, rule: Rule) -> int:
    """Fresh runs of each of two builds that can decide so many kernels: no fewer than `least`."""
    return min(MOST_FRESH, max(least, plan(kernels, least, least, rule).needed_each))


def next_round(gate: Gate, sides: Sides, said: Mapping[str, KernelVerdict], rule: Rule) -> Round | None:
    """Of a gate that was just judged: None where the verdict stands."""
    jobs = list(gate.jobs.order_by("id"))
    if gate.suite.kind == Suite.Kind.UPLOADED or sides.env is None or _by_itself(jobs) > RE_RUNS or not jobs:
        return None
    if any(each.verdict == Verdict.SLOWER and _sure(compared, each) for compared, each in _pairs(sides, said)):
        return None                         # the suite's verdict is known, whatever the others would say
    doubtful = [(compared, each) for compared, each in _pairs(sides, said)
                if each.verdict in (Verdict.AMBIGUOUS, Verdict.SLOWER) or _missing(gate, compared, each)]
    if not doubtful:
        return None
    if len(jobs) > 1 and len(jobs[-1].builds) > 1 and not any(compared.stage == AGAIN for compared, _ in doubtful):
        return None                         # the re-run gave no runs of both builds: another would not either
    more = max((each.more_runs for _, each in doubtful), default=0)
    return round_of(gate, sides, [compared for compared, _ in doubtful], rule, more, _why(doubtful))


def round_of(gate: Gate, sides: Sides, kernels: Sequence[Compared], rule: Rule, more: int, why: str,
             baseline: str = "") -> Round:
    """Those kernels once more, in turn with the baseline's build where its code can be run."""
    name = baseline or baseline_build(gate, sides, kernels)
    keys = [one.kernel.key for one in kernels]
    runs = runs_each(len(kernels), max(1, more), rule)
    ours = {"build": gate.build.name, "configs": {key: config for key, config in gate.configs.items() if key in keys}}
    if not name or not measurable_again(gate.suite):
        return Round([ours], runs, keys, why)
    theirs = {"build": name, "configs": configs_of(gate.suite, name, keys)}
    return Round([theirs, ours], runs, keys, why)


def _pairs(sides: Sides, said: Mapping[str, KernelVerdict]) -> list[tuple[Compared, KernelVerdict]]:
    return [(one, said[one.kernel.key]) for one in sides.kernels if one.kernel.key in said]


def _sure(compared: Compared, said: KernelVerdict) -> bool:
    """A slowdown that another round would not take back: measured in turn, or a metric that is the same in every run."""
    return compared.confirmed or any(metric.get("verdict") == Verdict.SLOWER for metric in said.metrics)


def _missing(gate: Gate, compared: Compared, said: KernelVerdict) -> bool:
    """Somebody named the build to compare with, and it has no runs here yet."""
    return gate.against is not None and said.verdict == Verdict.NO_DATA and bool(compared.candidate) \
        and not compared.baseline.runs and measurable_again(gate.suite)


def _by_itself(jobs: Sequence[SuiteJob]) -> int:
    return sum(job.reason == "gate" for job in jobs)


def _why(doubtful: Sequence[tuple[Compared, KernelVerdict]]) -> str:
    counts = Counter(str(each.verdict) for _, each in doubtful)
    words = {Verdict.SLOWER: "SLOWER against runs of another session", Verdict.AMBIGUOUS: "AMBIGUOUS",
             Verdict.NO_DATA: "without runs of the build to compare with"}
    return ", ".join(f"{number} kernel{'s' if number != 1 else ''} {words[Verdict(verdict)]}" for verdict, number in counts.items())


def baseline_build(gate: Gate, sides: Sides, kernels: Sequence[Compared]) -> str:
    """The build that is measured in turn with the gate's: the same in every round, else the newest that most kernels rest on."""
    if gate.against is not None:
        return gate.against.name
    before = sides_selectors.interleaved_jobs(gate)
    if before:
        return sides_selectors.partner(before[-1], gate)
    newest = Counter(one.baseline.builds[0].name for one in kernels if one.baseline.builds)
    return newest.most_common(1)[0][0] if newest else ""


def configs_of(suite: Suite, build: str, keys: Sequence[str]) -> dict[str, Any]:
    """The configurations that a build was measured with before: it is measured with the same ones again."""
    rows = KernelRun.objects.filter(kernel__suite=suite, kernel__key__in=keys, build__name=build, rejected="").exclude(config=None)
    newest = rows.order_by("kernel_id", "-created", "-id").distinct("kernel_id")
    return {key: config for key, config in newest.values_list("kernel__key", "config") if config}


# ---- before anything is run ----

def plan_for(suite: Suite, runs: int | None = None, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What `planned` says of the next build, for a form."""
    return planned(suite, runs, expected_baselines(suite, environment or {}))


def expected_baselines(suite: Suite, asked: Mapping[str, str], before: Build | None = None,
                       against: Build | None = None) -> list[Expected]:
    """In the environment where the suite was measured last, as far as the request fits it; [] before there are runs."""
    where = {name: asked[name] for name in sides_selectors.ASKED if asked.get(name)}
    here = newest_environment(suite, **where)
    kernels = list(suite.kernels.filter(enabled=True).only("suite", "key"))         # thousands, of which no more is asked
    return baselines_expected(kernels, Env(*here), before, against) if here else []


def planned(suite: Suite, runs: int | None, baselines: Sequence[Expected]) -> dict[str, Any]:
    """Whether a gate with so many fresh runs could decide anything, in words and numbers; nothing is run for it.

    The baseline counts with the runs that it has, or, before there is one, with those that it may come to hold. Where it is
    short of runs and its build can be run again, both builds are measured in turn (`interleaved`, `runs_each`).
    """
    rule = rule_of(suite.rule)
    kernels = suite.kernels.filter(enabled=True).count()
    candidate = suite.runs if runs is None else runs
    held = min((each.runs for each in baselines if each.runs), default=0)
    baseline, again = suite.baseline_runs, False
    found = plan(kernels, baseline, candidate, rule)
    if found.enough and held and not (now := plan(kernels, held, candidate, rule)).enough:
        again = measurable_again(suite)
        candidate = runs_each(kernels, candidate, rule) if again else candidate
        found, baseline = (plan(kernels, candidate, candidate, rule), candidate) if again else (now, held)
    elif found.enough and held:
        found, baseline = plan(kernels, held, candidate, rule), held
    return {"enough": found.enough, "says": found.says, "kernels": kernels, "candidate_runs": candidate, "baseline_runs": baseline,
            "smallest_p": found.smallest_p, "needed_candidate": found.needed_candidate, "needed_baseline": found.needed_baseline,
            "needed_each": found.needed_each, "interleaved": again, "has_baseline": bool(held)}
