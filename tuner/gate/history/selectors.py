"""Builds: the list of all of them, and one build beside another with its gates, profiles and regressions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NotRequired, TypedDict

from django.db.models import Avg, Count, F, Max, Q, Window
from django.db.models.functions import RowNumber

from profiles.base.answers import make_answer
from profiles.library.selectors import build_list
from profiles.models import Profile
from tuner.gate.baselines.selectors import Env, load_baselines
from tuner.gate.builds.selectors import ENVIRONMENT, MAIN, branch_line, position
from tuner.gate.history.series_selectors import environment_text
from tuner.gate.stats.results import KernelVerdict, SuiteVerdict
from tuner.gate.stats.rule import rule_of
from tuner.gate.stats.suite import judge
from tuner.gate.suites.selectors import runs_of
from tuner.models import Build, Gate, KernelRun, Regression, Suite, SuiteKernel


def build_names(text: str = "", branch: str = "", profiled: bool = False) -> list[tuple[str, datetime]]:
    """Return (name, time) of every build, newest first; `text`: part of its name or title; `profiled`: with profiles only."""
    builds = Build.objects.all()
    if profiled:
        builds = builds.filter(name__in=[group["build"] for group in build_list()])
    if text and "\0" not in text:
        builds = builds.filter(Q(name__icontains=text) | Q(title__icontains=text))
    if branch and "\0" not in branch:
        builds = builds.filter(branch=branch)
    pairs = list(builds.order_by("-at", "-pk").values_list("name", "at"))
    if branch:
        return pairs
    here = set(Build.objects.values_list("name", flat=True)) if text or profiled else {name for name, _ in pairs}
    only = [(group["build"], group["first"]) for group in build_list()
            if group["build"] not in here and text.lower() in group["build"].lower()]
    return sorted([*pairs, *only], key=lambda each: each[1], reverse=True)


def build_rows(page: list[tuple[str, datetime]]) -> list[dict[str, Any]]:
    """Return what is known of the builds of one page of the list; a handful of queries for all of them."""
    names = [name for name, _ in page]
    by_name = {build.name: build for build in Build.objects.filter(name__in=names)}
    profiles = {group["build"]: group for group in build_list(names)}
    of = {build.pk: name for name, build in by_name.items()}
    runs = {of[build]: count for build, count in KernelRun.objects.filter(build__in=of, rejected="").order_by()
            .values_list("build").annotate(count=Count("pk"))}
    verdicts: dict[str, Gate] = {}
    for gate in Gate.objects.filter(build__name__in=names).exclude(verdict="").select_related("build", "suite").order_by("pk"):
        verdicts[gate.build.name] = gate
    slower = dict(Regression.objects.filter(build__name__in=names, state__in=Regression.WATCHED).order_by()
                  .values_list("build__name").annotate(count=Count("pk")))
    return [{"name": name, "at": moment, "build": by_name.get(name), "profiles": profiles.get(name), "runs": runs.get(name, 0),
             "gate": verdicts.get(name), "regressions": slower.get(name, 0)} for name, moment in page]


def find_build(name: str) -> Build | None:
    """Return the build of this name; one that only profiles name has no row and no id."""
    if "\0" in name or any("\ud800" <= char <= "\udfff" for char in name):
        return None
    build = Build.objects.filter(name=name).first()
    if build is not None:
        return build
    first = Profile.objects.filter(build=name).order_by("created").first() if name else None
    return Build(name=name, at=first.created) if first else None


class BuildJson(TypedDict):
    """What is known of a build itself."""

    name: str
    parent: str
    branch: str
    title: str
    author: str
    url: str
    at: str


def build_json(build: Build) -> BuildJson:
    """Return the JSON of what is known of a build itself."""
    return make_answer(BuildJson, build)


class NewestGateJson(TypedDict):
    id: int
    suite: str
    verdict: str


class BuildRowJson(TypedDict):
    """A build of the list; those that only profiles name have no more than a name and a time."""

    name: str
    parent: NotRequired[str]
    branch: NotRequired[str]
    title: NotRequired[str]
    author: NotRequired[str]
    url: NotRequired[str]
    at: str
    kernel_runs: int
    profiles: int
    open_regressions: int
    gate: NewestGateJson | None


def row_json(row: Mapping[str, Any]) -> BuildRowJson:
    """Return the JSON of a row of `build_rows`."""
    build, gate, profiles = row["build"], row["gate"], row["profiles"]
    return make_answer(
        BuildRowJson, row, **(build_json(build) if build else {"name": row["name"], "at": row["at"]}), kernel_runs=row["runs"],
        profiles=profiles["profiles"] if profiles else 0, open_regressions=row["regressions"],
        gate={"id": gate.pk, "suite": gate.suite.name, "verdict": gate.verdict} if gate else None)


MOST_OTHERS, MOST_KERNELS, MOST_RUNS = 200, 200, 40
MOST_LISTED = 50
BASELINE = "baseline"           # in place of a build's name


@dataclass(frozen=True)
class MeasuredSide:
    """Where the build was measured: a suite in one environment."""

    suite: Suite
    where: dict[str, Any]
    runs: int

    @property
    def text(self) -> str:
        return f"{self.suite.name} · {environment_text(self.where)}"


@dataclass(frozen=True)
class BuildComparison:
    side: MeasuredSide
    against: Build | None               # None: nothing, or the baseline
    label: str                          # what it is compared with; "": nothing
    others: Sequence[Build]             # builds that could stand beside it, newest first
    judged: SuiteVerdict | None         # of the runs that are stored; None: nothing to compare with
    kernels: Sequence[KernelVerdict]
    of: int = 0                         # kernels that were measured in the build there; those judged are the ones that moved most


def measured_sides(build: Build) -> list[MeasuredSide]:
    """Return where the build was measured, newest run first."""
    if build.pk is None:
        return []
    rows = (KernelRun.objects.filter(build=build, rejected="").order_by().values("kernel__suite", *ENVIRONMENT)
            .annotate(newest=Max("pk"), runs=Count("pk")))
    suites = Suite.objects.in_bulk({row["kernel__suite"] for row in rows})
    ordered = sorted(rows, key=lambda row: -row["newest"])[:MOST_LISTED]
    return [MeasuredSide(suites[row["kernel__suite"]], {name: row[name] for name in ENVIRONMENT}, row["runs"]) for row in ordered]


def compare_build(build: Build, query: Mapping[str, str]) -> BuildComparison | None:
    """Compare a build: `?on=` names the side, `?against=` the other build or "baseline"; else the build before."""
    sides = measured_sides(build)
    if not sides:
        return None
    side = next((candidate for candidate in sides if candidate.text == query.get("on")), None) or next(
        (candidate for candidate in sides if candidate.suite.name == query.get("suite")), sides[0])
    others = _other_builds(build, side)
    choice = query.get("against", "")
    named = next((other for other in others if other.name == choice), None)
    against = None if choice == BASELINE else named or _build_before(build, others)
    label = against.name if against else "the baseline" if choice == BASELINE else ""
    kernels, measured = _kernels_that_moved(side, build, against or _build_before(build, others))
    runs = _newest_runs(side, against, kernels) if against else _baseline_runs(side, build, kernels) if choice == BASELINE else []
    if not runs:
        return BuildComparison(side, against, label, others, None, [], measured)
    judged = judge(runs, _newest_runs(side, build, kernels), rule_of(side.suite.rule), metrics=side.suite.metrics,
                   family=measured if measured > len(kernels) else None,
                   rules={kernel.key: rule_of(side.suite.rule, kernel.rule) for kernel in kernels if kernel.rule},
                   metrics_of={kernel.key: kernel.metrics for kernel in kernels if kernel.metrics})
    return BuildComparison(side, against, label, others, judged, list(judged.kernels)[:MOST_KERNELS], measured)


def _kernels_that_moved(side: MeasuredSide, build: Build, other: Build | None) -> tuple[list[SuiteKernel], int]:
    """The kernels to judge, in the suite's order, and how many were measured: where there are more than can be judged while a page
    is made, those whose run medians lie furthest apart in the two builds, and those that only one of them has."""
    enabled = side.suite.kernels.filter(enabled=True)
    ids = list(enabled.values_list("pk", flat=True))
    if len(ids) <= MOST_KERNELS:
        return list(enabled), len(ids)
    runs = KernelRun.objects.filter(kernel__suite=side.suite, rejected="", **side.where).order_by()
    new, old = (dict(runs.filter(build=candidate).values_list("kernel").annotate(us=Avg("p50_us"))) if candidate else {}
                for candidate in (build, other))
    kernel_ids = [kernel for kernel in ids if kernel in new or kernel in old]

    def apart(kernel: int) -> float:
        before, now = old.get(kernel), new.get(kernel)
        return abs(math.log(now / before)) if before and now else math.inf

    return list(enabled.filter(pk__in=sorted(kernel_ids, key=apart, reverse=True)[:MOST_KERNELS])), len(kernel_ids)


def _baseline_runs(side: MeasuredSide, build: Build, kernels: Sequence[SuiteKernel]) -> Any:
    """What a gate would compare with: the newest runs of earlier builds that passed, or what a person pinned."""
    baselines = load_baselines(kernels, Env(**side.where), build)
    return runs_of(run for kernel in kernels for run in baselines[kernel.pk].runs)


def _other_builds(build: Build, side: MeasuredSide) -> list[Build]:
    measured = KernelRun.objects.filter(kernel__suite=side.suite, rejected="", **side.where).order_by().values("build").distinct()
    return list(Build.objects.filter(pk__in=measured).exclude(pk=build.pk).order_by("-at", "-pk")[:MOST_OTHERS])


def _build_before(build: Build, others: Sequence[Build]) -> Build | None:
    """Return its parent, else the newest earlier build of its branch, else of the main line; never a later one."""
    earlier = [other for other in others if position(other) < position(build)]
    choices = ([other for other in others if build.parent and other.name == build.parent],
               [other for other in earlier if branch_line(other) == branch_line(build)],
               [other for other in earlier if not branch_line(other)])
    return next((group[0] for group in choices if group), None)


def _newest_runs(side: MeasuredSide, build: Build, kernels: Sequence[SuiteKernel]) -> Any:
    """Of each kernel the newest MOST_RUNS."""
    of = {kernel.pk: kernel for kernel in kernels}
    turn = Window(RowNumber(), partition_by=F("kernel_id"), order_by=F("pk").desc())
    rows = KernelRun.objects.filter(kernel__in=kernels, build=build, rejected="", **side.where).annotate(nth=turn)
    newest = list(rows.filter(nth__lte=MOST_RUNS).order_by("pk"))
    for row in newest:
        row.kernel = of[row.kernel_id]
    return runs_of(newest)


def build_gates(build: Build) -> list[Gate]:
    return list(build.gates.select_related("suite", "against")[:MOST_LISTED]) if build.pk else []


def build_profiles(build: Build) -> list[Profile]:
    return list(Profile.objects.filter(build=build.name).order_by("-created")[:MOST_LISTED])


def build_regressions(build: Build) -> dict[str, list[Regression]]:
    """Return the regressions that begin with a build, and those that it fixed."""
    if build.pk is None:
        return {"begun": [], "fixed": []}
    rows = Regression.objects.select_related("suite", "build", "good", "fixed_in", "changed_by")
    return {"begun": list(rows.filter(build=build)[:MOST_LISTED]), "fixed": list(rows.filter(fixed_in=build)[:MOST_LISTED])}


def neighbour_builds(build: Build) -> dict[str, Build | None]:
    """Return the builds before and after it on its line."""
    if build.pk is None:
        return {"before": None, "after": None}
    mine = Build.objects.filter(branch__in=MAIN if not branch_line(build) else [build.branch])
    same = Q(at=build.at)
    return {"before": mine.filter(Q(at__lt=build.at) | same & Q(pk__lt=build.pk)).order_by("-at", "-pk").first(),
            "after": mine.filter(Q(at__gt=build.at) | same & Q(pk__gt=build.pk)).order_by("at", "pk").first()}


def comparison_sentence(build: Build, found: BuildComparison | None) -> str:
    """Return whether this build made anything slower, in a sentence."""
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
