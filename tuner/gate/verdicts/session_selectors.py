"""How far sessions of a suite lie apart, by its own history: what a comparison with stored runs has to allow for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from statistics import median

from django.contrib.postgres.aggregates import ArrayAgg

from tuner.gate.baselines.selectors import environment_of
from tuner.gate.builds.selectors import branch_line, position
from tuner.gate.stats.rule import Verdict
from tuner.gate.stats.sessions import Sessions, estimate_sessions
from tuner.gate.verdicts.sides_selectors import STORED, KernelComparison, spread_over
from tuner.models import Build, Gate, GateKernel, KernelRun

MOST_BUILDS = 20            # newest before this one
MOST_KERNELS = 60           # evenly of the suite
ONE_LEVEL = 0.10            # of the median of builds: what lies farther off is another level
BESIDE = timedelta(hours=6)         # what was sent within it, to be compared with each other, was measured beside each other


def sessions_of(gate: Gate, group: Sequence[KernelComparison]) -> Sessions | None:
    """Return how far sessions differ, for kernels of one round; None where both sides are of one: in turn, or recorded."""
    compared = [one for one in group if one.candidate and one.baseline.runs]
    if not compared or any(one.stage != STORED for one in group) or compared[0].candidate[0].recorded:
        return None
    if gate.against is not None and _are_beside(compared[0]):
        return None
    baseline = round(median(len(one.baseline.builds) or 1 for one in compared))
    return estimate_sessions(_history(gate, compared), baseline)


def are_one_after_other(gate: Gate, group: Sequence[KernelComparison]) -> bool:
    """Return whether two builds of one session were sent one after the other: a drift of the machine may lie between them."""
    compared = [one for one in group if one.candidate and one.baseline.runs]
    if not compared or gate.against is None or any(one.stage != STORED for one in group) or compared[0].candidate[0].recorded:
        return False
    first = compared[0]
    return _are_beside(first) and max(row.created for row in first.baseline.runs) <= min(row.created for row in first.candidate)


def _are_beside(one: KernelComparison) -> bool:
    return abs(one.candidate[0].created - one.baseline.runs[0].created) <= BESIDE


def _history(gate: Gate, compared: Sequence[KernelComparison]) -> dict[str, list[list[float]]]:
    """Kernel -> run medians of each earlier build of its present level, by a fixed number of queries."""
    at = spread_over(range(len(compared)), MOST_KERNELS)
    chosen = {compared[place].kernel.pk: compared[place] for place in at}
    where = environment_of(compared[0].candidate[0]).where()
    rows = KernelRun.objects.filter(kernel__in=chosen, rejected="", p50_us__gt=0, build__at__lte=gate.build.at, **where)
    ids = rows.exclude(build=gate.build_id).order_by().values_list("build", flat=True).distinct()
    line = {"", branch_line(gate.build)}
    builds = {build.pk: build for build in [
        build for build in Build.objects.filter(pk__in=ids).order_by("-at", "-pk")[:5 * MOST_BUILDS] if branch_line(build) in line
    ][:MOST_BUILDS]}
    slower = set(GateKernel.objects.filter(kernel__in=chosen, gate__build__in=builds, verdict=Verdict.SLOWER).order_by()
                 .values_list("kernel", "gate__build"))
    found: dict[str, list[list[float]]] = defaultdict(list)
    rows = rows.filter(build__in=builds).order_by()
    for kernel, build, us in rows.values_list("kernel", "build").annotate(us=ArrayAgg("p50_us")):
        one = chosen[kernel]
        change = one.baseline.change
        since = max((position(each) for each in (one.baseline.since, change.build if change else None) if each), default=None)
        if (kernel, build) not in slower and (since is None or position(builds[build]) >= since):
            found[one.kernel.key].append(us)
    return {key: _of_one_level(sessions) for key, sessions in found.items()}


def _of_one_level(sessions: Sequence[list[float]]) -> list[list[float]]:
    middle = median(median(us) for us in sessions)
    return [us for us in sessions if abs(median(us) / middle - 1) <= ONE_LEVEL]
