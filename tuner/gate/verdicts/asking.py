"""How a gate was asked of one kernel, and what makes one way of asking weaker than another. No rows are read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tuner.gate.stats.results import KernelVerdict, json_plain
from tuner.gate.stats.rule import finite_number, rule_of
from tuner.gate.verdicts.sides_selectors import KernelComparison
from tuner.models import Suite

# field of the rule -> 1: a larger number lets more pass, -1: a smaller one does
LENIENT = {"target": 1, "floor": 1, "target_p95": 1, "floor_p95": 1, "alpha": -1, "beta": 1}
MOST_NAMES = 3


@dataclass(frozen=True)
class Basis:
    """What the verdict of one kernel rests on beside its samples."""

    config: Any = None                      # the candidate was measured with
    baseline_config: Any = None
    rule: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)         # limits beside time
    policy: Mapping[str, Any] = field(default_factory=dict)          # how runs are timed
    timing: Sequence[str] = ()              # what uploaded runs say of it
    candidate_runs: int = 0
    baseline_runs: int = 0
    baseline_builds: Sequence[str] = ()
    baseline_ids: Sequence[int] = ()        # of the baseline's runs
    mode: str = ""                          # "rolling" | "pinned" | "against"


def basis_of(one: KernelComparison, said: KernelVerdict, asked_runs: int | None = None) -> Basis:
    """Return how a kernel that was just judged was asked; `asked_runs`: what the smallest of its rounds was to take."""
    suite = one.kernel.suite
    timing = {str(row.environment.get("timing")) for row in one.candidate if row.environment.get("timing")}
    return Basis(
        config=json_plain(said.config), baseline_config=json_plain(said.baseline_config or said.config),
        rule=asdict(rule_of(suite.rule, one.kernel.rule)), metrics={**suite.metrics, **one.kernel.metrics}, policy=suite.policy,
        timing=sorted(timing), candidate_runs=asked_runs or len(one.candidate),
        baseline_runs=len(one.baseline.runs),
        baseline_builds=[build.name for build in one.baseline.builds], baseline_ids=[row.pk for row in one.baseline.runs],
        mode=one.baseline.mode)


def basis_from(stored: Mapping[str, Any]) -> Basis:
    """Return a basis as a row keeps it; what it does not name is unknown."""
    known = {each.name for each in fields(Basis)}
    return Basis(**{name: value for name, value in stored.items() if name in known})


def weaker_points(first: Basis, now: Basis, kind: str, accepted: bool = False) -> list[str]:
    """Return in words where `now` was asked otherwise than `first` in a way that could turn red into green; [] nowhere.

    kind      of the suite: only uploaded baselines may hold runs that somebody chose
    accepted  a person said since that a change of the baseline is intended: another baseline is no weaker point then
    """
    found = []
    if first.config != now.config:
        found.append(f"configuration {_config_text(now.config)} instead of {_config_text(first.config)}")
    for name, sign in LENIENT.items():
        old, new = finite_number(first.rule.get(name)), finite_number(now.rule.get(name))
        if old is not None and new is not None and sign * (new - old) > 0:
            found.append(f"{name.replace('_', ' of the ')} {100 * new:g} % instead of {100 * old:g} %")
    if dict(first.metrics) != dict(now.metrics):
        found.append("other limits beside time")
    if dict(first.policy) != dict(now.policy) or list(first.timing) != list(now.timing):
        found.append("runs timed by another policy")
    if now.candidate_runs < first.candidate_runs:
        found.append(f"{now.candidate_runs} run{'s' if now.candidate_runs != 1 else ''} instead of {first.candidate_runs}")
    if not accepted:
        found += _baseline_points(first, now, kind)
    return found


def _baseline_points(first: Basis, now: Basis, kind: str) -> list[str]:
    others = [name for name in now.baseline_builds if name not in first.baseline_builds]
    if others:
        return [f"against {_names(others)} instead of {_names(first.baseline_builds)}"]
    if first.baseline_config != now.baseline_config:
        return [f"a baseline of configuration {_config_text(now.baseline_config)} instead of {_config_text(first.baseline_config)}"]
    if now.baseline_runs < min(first.baseline_runs, now.candidate_runs):
        return [f"a baseline of {now.baseline_runs} runs instead of {first.baseline_runs}"]
    late = len(set(now.baseline_ids) - set(first.baseline_ids)) if kind == Suite.Kind.UPLOADED else 0
    return [f"{late} run{'s' if late != 1 else ''} of the baseline came after that verdict"] if late else []


def _names(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _config_text(config: Any) -> str:
    if not isinstance(config, Mapping) or not config:
        return "default" if config in (None, {}) else str(config)[:80]
    return " ".join(f"{name}={value}" for name, value in config.items())[:120]
