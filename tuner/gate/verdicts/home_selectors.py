"""What the home page takes from the guard: what got slower by verdict of gates and series, and what is being measured."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, F, Max
from django.urls import reverse
from django.utils.http import urlencode

from profiles.models import Profile
from tuner.gate.builds.selectors import WATCHED
from tuner.gate.suites.selectors import LIVE, wanted_runs
from tuner.models import Gate, GateKernel, Regression, SuiteJob, SuiteKernel
from tuner.tuning.operators import all_operators


@dataclass(frozen=True)
class WatchedRegression:
    """One regression that nobody has closed, and where to go from it."""

    row: Regression
    kernel: str                    # key of its worst kernel
    evidence: str                  # url of the gate's evidence, "" where a series found it
    url: str
    compare: str
    tune: str

    @property
    def more(self) -> int:
        return max(0, len(self.row.kernels) - 1)


def watched_regressions(limit: int) -> tuple[list[WatchedRegression], int]:
    """(newest first, how many there are): open before acknowledged. Five queries, however many."""
    found = Regression.objects.filter(state__in=WATCHED)
    rows = list(found.select_related("suite", "build", "good").order_by(F("state").desc(), "-created", "-id")[:limit])
    told = {row.regression_id: row for row in GateKernel.objects.filter(regression__in=rows)
            .order_by("regression_id", "-gate_id", "place").distinct("regression_id")}
    kernels = {(kernel.suite_id, kernel.key): kernel for kernel in SuiteKernel.objects.filter(
        suite__in=[row.suite_id for row in rows], key__in=[row.kernels[0] for row in rows if row.kernels])}
    names = {build.name for row in rows for build in (row.good, row.build) if build}
    ready = set(Profile.objects.filter(build__in=names, status=Profile.Status.READY).values_list("build", flat=True))
    return [_watched_regression(row, told.get(row.pk), kernels.get((row.suite_id, row.kernels[0])) if row.kernels else None, ready)
            for row in rows], found.count()


def _watched_regression(row: Regression, told: GateKernel | None, kernel: SuiteKernel | None, ready: set[str]) -> WatchedRegression:
    """`ready`: builds with a profile, so that there is something to compare."""
    evidence = reverse("gate-kernel", args=[told.gate_id, told.pk]) if told else ""
    compare = ""
    if row.good and {row.good.name, row.build.name} <= ready:
        compare = f"{reverse('compare')}?{urlencode({'build_a': row.good.name, 'build_b': row.build.name})}"
    tune = ""
    if kernel and kernel.op in all_operators():
        tune = f"{reverse('tune-new')}?{urlencode({'operator': kernel.op, 'dtype': kernel.dtype, **kernel.shape})}"
    return WatchedRegression(row, row.kernels[0] if row.kernels else row.family, evidence, reverse("regression", args=[row.pk]),
                             compare, tune)


@dataclass(frozen=True)
class Measurement:
    """A gate, or a suite's job that no gate asked for, and how far it is."""

    row: Gate | SuiteJob
    job: int | None
    done: int
    wanted: int


def gates_under_way(limit: int) -> list[Measurement]:
    """Oldest first. What was wanted and done are runs of its newest job."""
    found = list(Gate.objects.filter(status__in=Gate.UNDER_WAY).select_related("suite", "build").annotate(
        newest=Max("jobs")).order_by("created")[:limit])
    jobs = _runs_by_job([gate.newest for gate in found if gate.newest])
    return [Measurement(gate, gate.newest, *jobs.get(gate.newest or 0, (0, 0))) for gate in found]


def jobs_under_way(limit: int) -> list[Measurement]:
    """Suite jobs that were not asked for by a gate."""
    found = list(SuiteJob.objects.filter(status__in=LIVE, gate=None).select_related("suite").order_by("created")[:limit])
    known = _runs_by_job([job.pk for job in found])
    return [Measurement(job, job.pk, *known.get(job.pk, (0, 0))) for job in found]


def _runs_by_job(ids: list[int]) -> dict[int, tuple[int, int]]:
    """Job → (runs there are, runs wanted), counted by kernel."""
    found = SuiteJob.objects.filter(pk__in=ids).annotate(done=Count("results"))
    enabled = dict(SuiteKernel.objects.filter(suite__jobs__in=ids, enabled=True).order_by().values_list("suite").annotate(
        kernels=Count("pk", distinct=True)))
    return {job.pk: (job.done, wanted_runs(job, enabled.get(job.suite_id, 0))) for job in found}
