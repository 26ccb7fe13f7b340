"""Reads of regressions: the list with its filters, one with what told of it, JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Case, Count, F, IntegerField, Q, QuerySet, Value, When
from django.urls import reverse

from tuner.models import Build, GateKernel, Regression, Suite

Position = tuple[float, int]
LIST_LIMIT = 300
FILTERS = ("state", "suite", "gpu", "build", "q")
WATCHED = (Regression.State.OPEN, Regression.State.ACKNOWLEDGED)
_URGENT = Case(When(state="open", then=Value(0)), When(state="acknowledged", then=Value(1)), default=Value(2),
               output_field=IntegerField())


def regressions() -> QuerySet[Regression]:
    return Regression.objects.select_related("suite", "build", "good", "fixed_in", "changed_by")


def regression_list(filters: Mapping[str, str]) -> QuerySet[Regression]:
    """Those that nobody answered first, then the newest. An empty filter leaves all."""
    asked = {name: filters.get(name, "") for name in FILTERS}
    if any("\0" in value for value in asked.values()):
        return Regression.objects.none()
    found = regressions()
    if asked["state"] == "watched":
        found = found.filter(state__in=WATCHED)
    elif asked["state"]:
        found = found.filter(state=asked["state"])
    names = {"suite": "suite__name", "gpu": "gpu", "build": "build__name"}
    found = found.filter(**{field: asked[name] for name, field in names.items() if asked[name]})
    if asked["q"]:
        found = found.filter(Q(family__icontains=asked["q"]) | Q(build__name__icontains=asked["q"]) | Q(note__icontains=asked["q"]))
    return found.order_by(_URGENT, "-created", "-pk")


def counted(found: QuerySet[Regression]) -> tuple[dict[str, int], Regression | None]:
    """State -> how many, and the largest of those that nobody answered, else of those that somebody looks at."""
    states = dict(found.order_by().values_list("state").annotate(number=Count("pk")))
    state = next((each for each in WATCHED if states.get(each)), None)
    return states, found.filter(state=state).order_by(F("ratio").desc(nulls_last=True), "pk").first() if state else None


def open_regressions(limit: int) -> list[Regression]:
    """What got slower and is not answered yet, largest first: for the home page."""
    found = list(regressions().filter(state__in=WATCHED)[:LIST_LIMIT])
    return sorted(found, key=lambda row: -(row.ratio or 0.0))[:limit]


def slow_builds(suite: Suite, environment: Mapping[str, str]) -> dict[str, list[tuple[Position, Position | None]]]:
    """Kernel key -> ranges of builds that are known to be slower: from the regression's build up to, without it, the one that fixed
    it (None: to this day). Such builds are no baseline. A slowdown that is meant, or the environment's, is none of these."""
    rows = Regression.objects.filter(suite=suite, state__in=[*WATCHED, Regression.State.FIXED],
                                     **{name: environment[name] for name in ("gpu", "toolkit", "driver", "recorded")})
    # fixed by a person's word, or because more runs no longer show it: nobody knows from when on
    rows = rows.exclude(state=Regression.State.FIXED, fixed_in=None)
    found: dict[str, list[tuple[Position, Position | None]]] = {}
    for keys, pk, at, fixed, fixed_at in rows.order_by().values_list("kernels", "build", "build__at", "fixed_in", "fixed_in__at"):
        for key in keys:
            found.setdefault(key, []).append(((at.timestamp(), pk), (fixed_at.timestamp(), fixed) if fixed else None))
    return found


def choices() -> dict[str, list[str]]:
    rows = Regression.objects.order_by()
    return {"suite": sorted(rows.values_list("suite__name", flat=True).distinct()),
            "gpu": sorted(rows.exclude(gpu="").values_list("gpu", flat=True).distinct())}


def told_by(row: Regression) -> list[GateKernel]:
    """The gates that found it, newest first."""
    return list(row.told_by.select_related("gate", "gate__build", "kernel").order_by("-gate_id", "place")[:100])


def later_builds(row: Regression) -> list[Build]:
    """Builds that could have fixed it, newest first."""
    return list(Build.objects.filter(at__gte=row.build.at).exclude(pk=row.build_id).order_by("-at", "-pk")[:100])


def regression_json(row: Regression) -> dict[str, Any]:
    return {
        "id": row.pk, "suite": row.suite.name, "family": row.family, "kernels": row.kernels, "build": row.build.name,
        "good": row.good.name if row.good else None, "state": row.state, "found_by": row.found_by, "why": row.why,
        "ratio": row.ratio, "ci": [row.low, row.high] if row.low is not None and row.high is not None else None,
        "environment": {name: getattr(row, name) for name in ("gpu", "toolkit", "driver", "recorded")},
        "note": row.note, "fixed_in": row.fixed_in.name if row.fixed_in else None, "history": row.history,
        "changed_by": row.changed_by.get_username() if row.changed_by else "", "created": row.created.isoformat(),
        "changed": row.changed.isoformat(), "links": {"page": reverse("regression", args=[row.pk])}}
