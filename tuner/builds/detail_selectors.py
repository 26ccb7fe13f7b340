"""One build: its kernels beside another build's, its gates, profiles and regressions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Avg, Count, F, Max, Q, Window
from django.db.models.functions import RowNumber

from profiles.analysis.gate.results import KernelVerdict, SuiteVerdict
from profiles.analysis.gate.suite import judge
from profiles.models import Profile
from tuner.baselines.selectors import Env, baselines_of
from tuner.builds.order_selectors import MAIN, line, position
from tuner.builds.series_selectors import ENVIRONMENT, environment_text
from tuner.gates.rules_selectors import rule_of
from tuner.models import Build, Gate, KernelRun, Regression, Suite, SuiteKernel
from tuner.suites.run_selectors import runs_of

MOST_OTHERS, MOST_KERNELS, MOST_RUNS = 200, 200, 40
MOST_LISTED = 50
BASELINE = "baseline"           # in place of a build's name


@dataclass(frozen=True)
class Side:
    """Where the build was measured: a suite in one environment."""

    suite: Suite
    where: dict[str, Any]
    runs: int

    @property
    def text(self) -> str:
        return f"{self.suite.name} · {environment_text(self.where)}"


@dataclass(frozen=True)
class Compared:
    side: Side
    against: Build | None               # None: nothing, or the baseline
    label: str                          # what it is compared with; "": nothing
    others: Sequence[Build]             # builds that could stand beside it, newest first
    judged: SuiteVerdict | None         # of the runs that are stored; None: nothing to compare with
    kernels: Sequence[KernelVerdict]
    of: int = 0                         # kernels that were measured in the build there; those judged are the ones that moved most


def sides(build: Build) -> list[Side]:
    """Newest run first."""
    if build.pk is None:
        return []
    rows = (KernelRun.objects.filter(build=build, rejected="").order_by().values("kernel__suite", *ENVIRONMENT)
            .annotate(newest=Max("pk"), runs=Count("pk")))
    suites = Suite.objects.in_bulk({row["kernel__suite"] for row in rows})
    ordered = sorted(rows, key=lambda row: -row["newest"])[:MOST_LISTED]
    return [Side(suites[row["kernel__suite"]], {name: row[name] for name in ENVIRONMENT}, row["runs"]) for row in ordered]


def compared(build: Build, query: Mapping[str, str]) -> Compared | None:
    """`?on=` names the side, `?against=` the other build, or "baseline": else the newest run's, and the build before."""
    found = sides(build)
    if not found:
        return None
    side = next((each for each in found if each.text == query.get("on")), None) or next(
        (each for each in found if each.suite.name == query.get("suite")), found[0])
    others = _others(build, side)
    asked = query.get("against", "")
    named = next((other for other in others if other.name == asked), None)
    against = None if asked == BASELINE else named or _before(build, others)
    label = against.name if against else "the baseline" if asked == BASELINE else ""
    kernels, measured = _moved(side, build, against or _before(build, others))
    runs = _runs(side, against, kernels) if against else _baseline(side, build, kernels) if asked == BASELINE else []
    if not runs:
        return Compared(side, against, label, others, None, [], measured)
    judged = judge(runs, _runs(side, build, kernels), rule_of(side.suite.rule), metrics=side.suite.metrics,
                   family=measured if measured > len(kernels) else None,
                   rules={kernel.key: rule_of(side.suite.rule, kernel.rule) for kernel in kernels if kernel.rule},
                   metrics_of={kernel.key: kernel.metrics for kernel in kernels if kernel.metrics})
    return Compared(side, against, label, others, judged, list(judged.kernels)[:MOST_KERNELS], measured)


def _moved(side: Side, build: Build, other: Build | None) -> tuple[list[SuiteKernel], int]:
    """The kernels to judge, in the suite's order, and how many were measured: where there are more than can be judged while a page
    is made, those whose run medians lie furthest apart in the two builds, and those that only one of them has."""
    enabled = side.suite.kernels.filter(enabled=True)
    ids = list(enabled.values_list("pk", flat=True))
    if len(ids) <= MOST_KERNELS:
        return list(enabled), len(ids)
    runs = KernelRun.objects.filter(kernel__suite=side.suite, rejected="", **side.where).order_by()
    new, old = (dict(runs.filter(build=one).values_list("kernel").annotate(us=Avg("p50_us"))) if one else {}
                for one in (build, other))
    held = [kernel for kernel in ids if kernel in new or kernel in old]

    def apart(kernel: int) -> float:
        before, now = old.get(kernel), new.get(kernel)
        return abs(math.log(now / before)) if before and now else math.inf

    return list(enabled.filter(pk__in=sorted(held, key=apart, reverse=True)[:MOST_KERNELS])), len(held)


def _baseline(side: Side, build: Build, kernels: Sequence[SuiteKernel]) -> Any:
    """What a gate would compare with: the newest runs of earlier builds that passed, or what a person pinned."""
    found = baselines_of(kernels, Env(**side.where), build)
    return runs_of(run for kernel in kernels for run in found[kernel.pk].runs)


def _others(build: Build, side: Side) -> list[Build]:
    measured = KernelRun.objects.filter(kernel__suite=side.suite, rejected="", **side.where).order_by().values("build").distinct()
    return list(Build.objects.filter(pk__in=measured).exclude(pk=build.pk).order_by("-at", "-pk")[:MOST_OTHERS])


def _before(build: Build, others: Sequence[Build]) -> Build | None:
    """Its parent, else the newest earlier one of its branch, else of the main line; never a later one."""
    earlier = [other for other in others if position(other) < position(build)]
    choices = ([other for other in others if build.parent and other.name == build.parent],
               [other for other in earlier if line(other) == line(build)], [other for other in earlier if not line(other)])
    return next((found[0] for found in choices if found), None)


def _runs(side: Side, build: Build, kernels: Sequence[SuiteKernel]) -> Any:
    """Of each kernel the newest MOST_RUNS."""
    of = {kernel.pk: kernel for kernel in kernels}
    turn = Window(RowNumber(), partition_by=F("kernel_id"), order_by=F("pk").desc())
    rows = KernelRun.objects.filter(kernel__in=kernels, build=build, rejected="", **side.where).annotate(nth=turn)
    newest = list(rows.filter(nth__lte=MOST_RUNS).order_by("pk"))
    for row in newest:
        row.kernel = of[row.kernel_id]
    return runs_of(newest)


def gates(build: Build) -> list[Gate]:
    return list(build.gates.select_related("suite", "against")[:MOST_LISTED]) if build.pk else []


def profiles(build: Build) -> list[Profile]:
    return list(Profile.objects.filter(build=build.name).order_by("-created")[:MOST_LISTED])


def regressions(build: Build) -> dict[str, list[Regression]]:
    """Those that begin with it, and those that it fixed."""
    if build.pk is None:
        return {"begun": [], "fixed": []}
    rows = Regression.objects.select_related("suite", "build", "good", "fixed_in", "changed_by")
    return {"begun": list(rows.filter(build=build)[:MOST_LISTED]), "fixed": list(rows.filter(fixed_in=build)[:MOST_LISTED])}


def neighbours(build: Build) -> dict[str, Build | None]:
    """The builds before and after it on its line."""
    if build.pk is None:
        return {"before": None, "after": None}
    mine = Build.objects.filter(branch__in=MAIN if not line(build) else [build.branch])
    same = Q(at=build.at)
    return {"before": mine.filter(Q(at__lt=build.at) | same & Q(pk__lt=build.pk)).order_by("-at", "-pk").first(),
            "after": mine.filter(Q(at__gt=build.at) | same & Q(pk__gt=build.pk)).order_by("at", "pk").first()}


def answer(build: Build, found: Compared | None) -> str:
    """Did this build make anything slower?"""
    if found is None:
        return f"Build {build.name} was not measured by any suite."
    if found.judged is None:
        alone = "the first one" if found.others else "the only one"
        return (f"{found.label.capitalize()} has no run there: nothing to compare {build.name} with." if found.label else
                f"Build {build.name} is {alone} of {found.side.suite.name} there: no earlier build to compare it with.")
    few = ""
    if found.of > MOST_KERNELS:
        few = f" Of {found.of:,} kernels the {len(found.kernels)} that moved most are judged here."
    return f"{build.name} against {found.label}: {found.judged.reason.rstrip('.')}.{few}"
