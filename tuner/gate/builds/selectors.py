"""Reads of builds and regressions: the order of builds, whether one holds the code of another; regressions and their JSON.

Builds of one branch follow each other by their time. `main`, `master`, `trunk` and no branch at all are one line. What a branch
took from another is told by parents; without them nothing is known, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict, TypeVar

from django.db import connection
from django.db.models import Case, Count, F, IntegerField, Q, QuerySet, Value, When
from django.urls import reverse

from profiles.base.answers import make_answer
from tuner.gate.builds.models import Slowdown
from tuner.models import Build, GateKernel, Regression, Suite

MAIN = ("", "main", "master", "trunk")
ENVIRONMENT = ("gpu", "toolkit", "driver", "recorded")      # of rows that are never compared with those of another one
MOST_ANCESTORS = 500
_ANCESTORS = """
    WITH RECURSIVE up(id, parent, depth) AS (
        SELECT id, parent, 0 FROM tuner_build WHERE id = %s
        UNION
        SELECT b.id, b.parent, up.depth + 1 FROM tuner_build b JOIN up ON b.name = up.parent
        WHERE up.parent <> '' AND up.depth < %s
    ) SELECT DISTINCT id FROM up"""


def branch_line(build: Build) -> str:
    """Return the branch that a build stands on; "": the main line."""
    return "" if build.branch in MAIN else build.branch


def position(build: Build) -> tuple[float, int]:
    """Return what sorts builds: commit time, then the order in which they became known."""
    return build.at.timestamp(), build.pk


def has_code_of(build: Build, other: Build) -> bool | None:
    """Return whether `build` has the code of `other` in it; None where nobody said what it was made from."""
    if branch_line(build) == branch_line(other):
        return position(other) <= position(build)
    if branch_line(build) == "":
        return other.pk in ancestor_ids(build)           # a branch that was merged, as far as parents tell
    ancestors = list(Build.objects.filter(pk__in=ancestor_ids(build)))
    if any(ancestor.pk == other.pk for ancestor in ancestors):
        return True
    shared = [position(ancestor) for ancestor in ancestors if branch_line(ancestor) == branch_line(other)]
    if shared:
        return position(other) <= max(shared)
    return None if position(other) <= position(build) else False


def ancestor_ids(build: Build) -> set[int]:
    """Return the build and what it was made from, as far as rows say, at most MOST_ANCESTORS steps."""
    with connection.cursor() as cursor:
        cursor.execute(_ANCESTORS, [build.pk, MOST_ANCESTORS])
        return {row[0] for row in cursor.fetchall()}


Row = TypeVar("Row", bound=Slowdown)
Position = tuple[float, int]                # of a build in the order
LIST_LIMIT = 300
FILTERS = ("state", "suite", "gpu", "build", "q")
URGENT = Case(When(state="open", then=Value(0)), When(state="acknowledged", then=Value(1)), default=Value(2),
              output_field=IntegerField())       # of a list: those that nobody answered first


def regressions() -> QuerySet[Regression]:
    return Regression.objects.select_related("suite", "build", "good", "fixed_in", "changed_by")


def regression_list(filters: Mapping[str, str]) -> QuerySet[Regression]:
    """Return regressions that nobody answered first, then the newest. An empty filter leaves all."""
    terms = {name: filters.get(name, "") for name in FILTERS}
    if any("\0" in value for value in terms.values()):
        return Regression.objects.none()
    rows = regressions_in(terms["state"], regressions())
    names = {"suite": "suite__name", "gpu": "gpu", "build": "build__name"}
    rows = rows.filter(**{field: terms[name] for name, field in names.items() if terms[name]})
    if terms["q"]:
        rows = rows.filter(Q(family__icontains=terms["q"]) | Q(build__name__icontains=terms["q"]) | Q(note__icontains=terms["q"]))
    return rows.order_by(URGENT, "-created", "-pk")


def regressions_in(state: str, rows: QuerySet[Row]) -> QuerySet[Row]:
    """Return regressions, of builds or of production, in a state; "watched": that nobody answered, "": all."""
    return rows.filter(state__in=Slowdown.WATCHED if state == "watched" else [state]) if state else rows


def count_states(found: QuerySet[Regression]) -> tuple[dict[str, int], Regression | None]:
    """Return state -> how many, and the largest of those that nobody answered, else that are looked at."""
    states = dict(found.order_by().values_list("state").annotate(number=Count("pk")))
    state = next((name for name in Regression.WATCHED if states.get(name)), None)
    return states, found.filter(state=state).order_by(F("ratio").desc(nulls_last=True), "pk").first() if state else None


def slow_builds(suite: Suite, environment: Mapping[str, str]) -> dict[str, list[tuple[Position, Position | None]]]:
    """Kernel key -> ranges of builds that are known to be slower: from the regression's build up to, without it, the one that fixed
    it (None: to this day). Such builds are no baseline. A slowdown that is meant, or the environment's, is none of these."""
    rows = Regression.objects.filter(suite=suite, kind=Regression.Kind.STEP, **{name: environment[name] for name in ENVIRONMENT},
                                     state__in=[*Regression.WATCHED, Regression.State.FIXED])
    # fixed by a person's word, or because more runs no longer show it: nobody knows from when on
    rows = rows.exclude(state=Regression.State.FIXED, fixed_in=None)
    spans_by_key: dict[str, list[tuple[Position, Position | None]]] = {}
    for keys, pk, time, fixed, fixed_at in rows.order_by().values_list("kernels", "build", "build__at", "fixed_in", "fixed_in__at"):
        for key in keys:
            spans_by_key.setdefault(key, []).append(((time.timestamp(), pk), (fixed_at.timestamp(), fixed) if fixed else None))
    return spans_by_key


def filter_choices() -> dict[str, list[str]]:
    rows = Regression.objects.order_by()
    return {"suite": sorted(rows.values_list("suite__name", flat=True).distinct()),
            "gpu": sorted(rows.exclude(gpu="").values_list("gpu", flat=True).distinct())}


def regression_kernels(row: Regression) -> list[GateKernel]:
    """Return the gates' kernels that found a regression, newest first."""
    return list(row.told_by.select_related("gate", "gate__build", "kernel").order_by("-gate_id", "place")[:100])


def later_builds(row: Regression) -> list[Build]:
    """Return builds that could have fixed it, newest first."""
    return list(Build.objects.filter(at__gte=row.build.at).exclude(pk=row.build_id).order_by("-at", "-pk")[:100])


class PageLinkJson(TypedDict):
    page: str


class RegressionStepJson(TypedDict):
    """What was done to a regression, when, by whom ("" by itself); `grew`: a build that made it larger."""

    at: str
    who: str
    state: str
    note: str
    grew: NotRequired[str]


class RegressionJson(TypedDict):
    """Kernels of a family that got slower with a build; `ratio` and `ci`: time after ÷ before."""

    id: int
    suite: str
    family: str
    kernels: list[str]
    build: str
    good: str | None
    state: str
    kind: str
    found_by: str
    why: str
    ratio: float | None
    ci: list[float] | None
    environment: dict[str, str]
    note: str
    fixed_in: str | None
    history: list[RegressionStepJson]
    changed_by: str
    created: str
    changed: str
    links: PageLinkJson


def regression_json(row: Regression) -> RegressionJson:
    return make_answer(
        RegressionJson, row, suite=row.suite.name, build=row.build.name, good=row.good.name if row.good else None,
        environment={name: getattr(row, name) for name in ENVIRONMENT}, fixed_in=row.fixed_in.name if row.fixed_in else None,
        changed_by=row.changed_by.get_username() if row.changed_by else "", links={"page": reverse("regression", args=[row.pk])})
