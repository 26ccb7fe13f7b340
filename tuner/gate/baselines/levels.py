"""Where a kernel surely became faster: its baseline begins anew there, since runs of two speeds are no measure of a third build.

A gate says so (FASTER against the baseline), or the series does (a change point to a level faster than any before).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from django.db.models import Exists, OuterRef

from tuner.gate.builds.selectors import Position
from tuner.gate.stats.rule import Verdict, rule_of
from tuner.models import Build, Gate, GateKernel, KernelSeries, SuiteKernel

FEWEST_APART = 3            # runs of a build and of a level, below which chance alone parts them
MANY = 100                  # kernels, from which on the database joins faster than it looks up


def faster_builds(kernels: Sequence[SuiteKernel], where: Mapping[str, str],
                  builds: Sequence[Build]) -> dict[int, dict[int, float | None]]:
    """Return kernel -> builds from which on it is surely faster, with the speed before (µs) where it is known."""
    of = {"kernel__suite": kernels[0].suite_id} if len(kernels) > MANY else {"kernel__in": kernels}
    here = {f"gate__{name}": value for name, value in where.items()}
    judged = GateKernel.objects.filter(gate__status=Gate.Status.DONE, gate__against=None, **here)
    later = judged.filter(kernel=OuterRef("kernel"), gate__build=OuterRef("gate__build"), gate__gt=OuterRef("gate"))
    verdicts = judged.filter(~Exists(later), verdict=Verdict.FASTER, **of).order_by()
    by_kernel: dict[int, dict[int, float | None]] = {}
    for kernel, build, us in verdicts.values_list("kernel", "gate__build", "baseline_us"):
        by_kernel.setdefault(kernel, {})[build] = us
    ids = {build.name: build.pk for build in builds}
    floors = {kernel.pk: rule_of(kernel.suite.rule, kernel.rule).floor for kernel in kernels}
    for row in KernelSeries.objects.filter(**of, **where).exclude(changes=[]).only("kernel", "changes"):
        if row.kernel_id in floors:
            for name, start_us in series_starts(row.changes, floors[row.kernel_id]):
                if name in ids:
                    by_kernel.setdefault(row.kernel_id, {}).setdefault(ids[name], start_us)
    return by_kernel


def series_starts(steps: Iterable[Mapping[str, object]], floor: float) -> list[tuple[str, float]]:
    """Return builds from which on a series is faster than ever before, by more than the floor, and the speed before it, µs.

    A kernel that is back at its old speed after a slowdown begins nothing: builds from before that are of its level.
    """
    best: float | None = None
    starts = []
    for step in steps:
        before, after = float(str(step["before_us"])), float(str(step["after_us"]))
        best = before if best is None else min(best, before)
        if after < best * (1 - floor):
            starts.append((str(step["bad"]), before))
            best = after
    return starts


def judged_builds(kernels: Sequence[SuiteKernel], where: Mapping[str, str], builds: Iterable[int]) -> dict[int, set[int]]:
    """Return kernel -> those of the builds that a gate compared with the baseline of their time, and not with another build."""
    here = {f"gate__{name}": value for name, value in where.items()}
    of = {"kernel__suite": kernels[0].suite_id} if len(kernels) > MANY else {"kernel__in": kernels}
    rows = GateKernel.objects.filter(gate__status=Gate.Status.DONE, gate__against=None, gate__build__in=list(builds), **of, **here)
    by_kernel: dict[int, set[int]] = {}
    for kernel, build in rows.order_by().values_list("kernel", "gate__build").distinct():
        by_kernel.setdefault(kernel, set()).add(build)
    return by_kernel


def is_apart(us: Sequence[float], level: Sequence[float], target: float) -> bool:
    """Return whether runs of a build (medians, µs) lie all on one side of a level's, and its middle farther off than the target."""
    if min(len(us), len(level)) < FEWEST_APART or (max(level) >= min(us) and max(us) >= min(level)):
        return False
    return abs(math.log(median(us) / median(level))) > math.log1p(target)


def newest_start(builds: Iterable[tuple[Position, Build]], faster: Mapping[int, float | None]) -> Build | None:
    """Return the newest of a line's builds, which come newest first, that made the kernel faster."""
    return next((build for _, build in builds if build.pk in faster), None)


def split_level(passed: Iterable[Build], start: Build | None, counts: Mapping[int, int],
                runs: int) -> tuple[list[Build], list[Build]]:
    """Return the newest builds of the newest level that have so many runs together, or all, and as many of the level before it.

    `passed`: builds that count, newest first. `start`: the first of the newest level.
    """
    newest: list[Build] = []
    before: list[Build] = []
    have = {id(newest): 0, id(before): 0}
    for build in passed:
        level = newest if start is None or (build.at, build.pk) >= (start.at, start.pk) else before
        if have[id(level)] < runs:
            level.append(build)
            have[id(level)] += counts[build.pk]
        if have[id(newest)] >= runs and (start is None or have[id(before)] >= runs):
            break
    return (newest, before) if newest else (before, [])
