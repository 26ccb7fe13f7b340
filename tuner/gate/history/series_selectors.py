"""Series of kernels over builds, in one environment on one line of builds: run medians, intervals, changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, Max, Q, QuerySet

from tuner.clocks.wish import says_locked
from tuner.gate.builds.selectors import ENVIRONMENT, MAIN
from tuner.gate.suites.selectors import environment_totals
from tuner.models import Build, KernelRun, KernelSeries, Suite, SuiteKernel

MOST_BUILDS = 400           # newest builds of a series
MOST_OF_LINE = 20_000       # builds of a line that are counted
MOST_RUNS = 200_000         # of all kernels of a suite, in one look
MOST_US = 1e12              # beyond: no time that a kernel takes
LEVEL = 0.9                 # of a build's own interval, where it has runs enough


@dataclass(frozen=True)
class Step:
    """From build `build` on the kernel takes `ratio` times as long; the change lies after `good` and not after `bad`."""

    build: str
    good: str
    bad: str
    between: int                # builds after `good` up to `bad`: 1 names the build
    ratio: float
    low: float | None           # None: too few runs for an interval
    high: float | None
    p_value: float
    before_us: float
    after_us: float
    runs_before: int
    runs_after: int

    @property
    def slower(self) -> bool:
        return self.ratio > 1

    @property
    def change_pct(self) -> float:
        return 100 * (self.ratio - 1)

@dataclass(frozen=True)
class Point:
    """One build: its run medians in µs; none where it was not measured."""

    build: Build
    us: Sequence[float] = ()

    @cached_property
    def median_us(self) -> float | None:
        return median(self.us) if self.us else None

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        return median_interval(self.us)


@dataclass(frozen=True)
class Series:
    kernel: SuiteKernel
    points: Sequence[Point]                     # oldest build first, those that were measured
    steps: Sequence[Step] = ()
    computed: bool = True                       # the steps are of all these runs

    @property
    def since(self) -> Sequence[Point]:
        """The builds at the present speed."""
        if not self.steps:
            return self.points
        start = next((i for i, point in enumerate(self.points) if point.build.name == self.steps[-1].build), 0)
        return self.points[start:]


def median_interval(us: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """Distribution-free interval of the median from order statistics, the narrowest that holds it with `level`
    (Conover, Practical Nonparametric Statistics, 3.2); the range of the runs where there are too few; None with fewer than two."""
    ordered, n = sorted(us), len(us)
    if n < 2:
        return None
    cut, outside = 0, 2 / 2 ** n                    # chance that the median lies outside the range of all runs
    while cut < (n - 1) // 2 and 1 - (outside := outside + 2 * math.comb(n, cut + 1) / 2 ** n) >= level:
        cut += 1
    return ordered[cut], ordered[n - 1 - cut]


def measured_environments(suite: Suite, totals: Iterable[tuple[Any, ...]] | None = None) -> list[dict[str, Any]]:
    """Where the suite was measured, the one with the newest run first: ENVIRONMENT's names, `builds`, `runs`, `text`."""
    return [{**row, "text": environment_text(row)} for row in environment_totals(suite, totals)]


def environment_text(where: Mapping[str, Any]) -> str:
    """Return an environment for people: GPU, toolkit, driver, recording."""
    return ", ".join(filter(None, (where["gpu"] or "unknown GPU", where["toolkit"],
                                   f"driver {where['driver']}" if where["driver"] else "", where["recorded"])))


def measured_lines(suite: Suite, builds: Iterable[int] | None = None) -> list[str]:
    """Branches that were measured: the main line ("") first where it was. `builds`: ids of those measured, where they are known."""
    if builds is None:
        builds = KernelRun.objects.filter(kernel__suite=suite, rejected="").order_by().values_list("build", flat=True).distinct()
    names = Build.objects.filter(pk__in=list(builds)).order_by().values_list("branch", flat=True).distinct()
    return sorted({"" if name in MAIN else name for name in names})[:200]


def on_line(branch: str, prefix: str = "build__") -> Q:
    """Runs (or builds) of one line of builds."""
    return Q(**{f"{prefix}branch__in": MAIN}) if branch in MAIN else Q(**{f"{prefix}branch": branch})


def load_series(suite: Suite, where: Mapping[str, str], branch: str = "", keys: Sequence[str] | None = None) -> list[Series]:
    """One for each kernel that was measured there, in the suite's order. At most the newest MOST_BUILDS builds."""
    kernels = list(suite.kernels.filter(key__in=keys) if keys is not None else suite.kernels.all())
    env = {name: where[name] for name in ENVIRONMENT}
    builds, medians = run_medians([kernel.pk for kernel in kernels], env, branch)
    places = _places(branch, builds)
    stored = {row.kernel_id: row for row in KernelSeries.objects.filter(kernel__in=kernels, branch=branch, **env)}
    series = []
    for kernel in kernels:
        mine = medians.get(kernel.pk, {})
        row = stored.get(kernel.pk)
        steps = [_count_unmeasured(Step(**step), places) for step in row.changes] if row else []
        points = [Point(build, mine[build.pk]) for build in builds if build.pk in mine]
        if points:
            series.append(Series(kernel, points, steps, row is not None and row.runs == sum(len(point.us) for point in points)))
    return series


def run_medians(kernels: Sequence[int], env: Mapping[str, str], branch: str) -> tuple[list[Build],
                                                                                      dict[int, dict[int, list[float]]]]:
    """Builds oldest first, and kernel id -> build id -> run medians in µs, in the order in which they were measured.

    Runs that were timed in another way than the newest one ("cold, 100 samples after 50") are no part of the series.
    """
    runs = KernelRun.objects.filter(on_line(branch), kernel__in=kernels, rejected="", p50_us__gt=0, p50_us__lt=MOST_US, **env)
    counts = _run_counts(runs)
    newest = max((newest for _, newest in counts.values()), default=None)
    row = KernelRun.objects.filter(pk=newest or 0).values_list("environment__timing", "kernel__suite__kind").first()
    timing, kind = row or (None, "")
    unsaid = ~Q(environment__has_key="timing")
    if timing:              # as the newest were timed: a suite whose way of timing was changed begins anew
        runs = runs.filter(Q(environment__timing=timing) | (Q(pk=None) if says_locked(timing) else unsaid))
        counts = _run_counts(runs)
    elif kind == Suite.Kind.TARGET:         # captures say how where clocks were locked, and nothing else
        runs = runs.filter(unsaid)
        counts = _run_counts(runs)
    builds = list(Build.objects.filter(pk__in=list(counts)).order_by("-at", "-pk")[:MOST_BUILDS])[::-1]
    runs = runs.filter(build__in=[build.pk for build in builds])
    if sum(counts[build.pk][0] for build in builds) > MOST_RUNS:        # the newest of them
        runs = runs.filter(pk__gte=runs.order_by("-pk").values_list("pk", flat=True)[MOST_RUNS - 1])
    by_kernel: dict[int, dict[int, list[float]]] = {}
    for kernel, build, us in runs.order_by().values_list("kernel_id", "build_id").annotate(us=ArrayAgg("p50_us", order_by="pk")):
        by_kernel.setdefault(kernel, {})[build] = us
    return builds, by_kernel


def _run_counts(runs: QuerySet[KernelRun]) -> dict[int, tuple[int, int]]:
    """Build id -> its runs, and the id of the newest."""
    rows = runs.order_by().values_list("build").annotate(runs=Count("pk"), newest=Max("pk"))
    return {build: (number, newest) for build, number, newest in rows}


def _places(branch: str, builds: Sequence[Build]) -> dict[str, int]:
    """Where each build stands among all of its line, those that were not measured among them."""
    if not builds:
        return {}
    since = Build.objects.filter(on_line(branch, ""), at__gte=builds[0].at).order_by("-at", "-pk")
    names = list(since.values_list("name", flat=True)[:MOST_OF_LINE])[::-1]
    return {name: place for place, name in enumerate(names)}


def _count_unmeasured(step: Step, places: Mapping[str, int]) -> Step:
    """With the builds that nobody measured counted among those that may have done it."""
    if step.good not in places or step.bad not in places:
        return step
    return replace(step, between=max(places[step.bad] - places[step.good], step.between))


def name_steps(points: Iterable[Point], changes: Iterable[Any]) -> list[Step]:
    """`tuner.gate.stats.changes.Change` by index → by the names of builds."""
    names = [point.build.name for point in points]
    return [Step(build=names[shift.index], good=names[shift.good], bad=names[shift.bad], between=shift.bad - shift.good,
                 ratio=shift.ratio, low=_finite(shift.low), high=_finite(shift.high), p_value=shift.p_value,
                 before_us=shift.before_us, after_us=shift.after_us, runs_before=shift.runs_before, runs_after=shift.runs_after)
            for shift in changes]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) and value > 0 else None
