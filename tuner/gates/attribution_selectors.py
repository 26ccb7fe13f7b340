"""Where the environment has just changed: was it the build, or the new driver or toolkit? Asked of each kernel of a gate.

It can be answered once the baseline's build has runs on both sides of the change: the gate's offer measures it here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from django.db.models import Max, Min

from profiles.analysis.gate.explanation import explain
from tuner.baselines.selectors import Env
from tuner.environments.observation_selectors import Environment, cells
from tuner.environments.selectors import explanation_json
from tuner.gates.sides_selectors import Sides
from tuner.models import Build, Gate, KernelRun


def across(gate: Gate, sides: Sides) -> tuple[dict[str, dict[str, Any]], str]:
    """Kernel key -> what build and environment did to it since the baseline's build was measured elsewhere; and one sentence."""
    compared = [one for one in sides.kernels if one.candidate and one.baseline.runs]
    builds = {build.pk: build for one in compared for build in one.baseline.builds}
    if sides.env is None or len(builds) != 1:
        return {}, ""
    base = next(iter(builds.values()))
    before = _moved_from(gate, sides.env, base)
    if before is None:
        return {}, ""
    held = cells(gate.suite, kernels=[one.kernel.key for one in compared], recorded=bool(sides.env.recorded),
                 builds={base.name, gate.build.name})
    old, new = _factors(base, before), _factors(gate.build, sides.env)
    found = {}
    for one in compared:
        rows = [row for row in held.observations if row.kernel == one.kernel.key]
        if rows:
            found[one.kernel.key] = {**explanation_json(explain(rows, old, new)), "before": before.text}
    return found, _says(found, sides.env, before, base)


def _moved_from(gate: Gate, env: Env, base: Build) -> Env | None:
    """Where the build had its runs before this environment came up, on the same GPU model; None where nothing changed."""
    rows = KernelRun.objects.filter(kernel__suite=gate.suite, build=base, rejected="", gpu=env.gpu, recorded=env.recorded)
    found = {Env(env.gpu, each["toolkit"], each["driver"], env.recorded): each for each in
             rows.order_by().values("toolkit", "driver").annotate(first=Min("created"), last=Max("created"))}
    here = found.pop(env, None)
    left = [(each["last"], other) for other, each in found.items() if here is not None and each["last"] < here["first"]]
    return max(left, key=lambda one: one[0])[1] if left else None


def _factors(build: Build, env: Env) -> dict[str, str]:
    return {"build": build.name, **Environment(env.gpu, env.toolkit, env.driver).factors}


def _says(found: Mapping[str, Mapping[str, Any]], env: Env, before: Env, base: Build) -> str:
    if not found:
        return ""
    kinds = Counter(str(each["kind"]) for each in found.values())
    words = {"build": "by the build", "environment": "by the environment", "both": "by both", "neither": "by neither",
             "unknown": "and it cannot be told by what"}
    parts = [f"{kinds[kind]} changed {word}" for kind, word in words.items() if kinds[kind]]
    return f"Since {base.name} was measured before ({', '.join(env.differs(before))}), of {len(found)} kernels " \
           f"{', '.join(parts)}".replace("changed by neither", "did not change")
