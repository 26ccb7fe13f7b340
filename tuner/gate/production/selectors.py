"""Reads of production's regressions: rows, their series, and links to what explains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Case, F, FloatField, IntegerField, Max, QuerySet, Value, When
from django.db.models.functions import Cast
from django.urls import reverse
from django.utils.http import urlencode

from profiles.models import KernelStat, Profile
from profiles.running.schedule_services import job_to_capture
from tuner.gate.production.sentences import builds_text, headline, interval_text, list_sentence
from tuner.gate.production.series import FLOOR, LEAST_DAYS, WEEKLY
from tuner.gate.production.services import WATCHED, WINDOW_DAYS
from tuner.gate.production.watched import Watched
from tuner.models import Build, ProductionDay, ProductionPoint, ProductionRegression, Suite, SuiteKernel

FILTERS = ("state", "gpu_model", "build", "q", "simulated")
_URGENT = Case(When(state="open", then=Value(0)), When(state="acknowledged", then=Value(1)), default=Value(2),
               output_field=IntegerField())
_LOST = (Cast(F("ratio"), FloatField()) - 1.0) * Cast(F("day_ns"), FloatField())


@dataclass(frozen=True)
class Looked:
    """How much stands behind an answer."""

    days: int
    series: int
    newest: str | None
    watched: Watched | None = None


def production_list(filters: Mapping[str, str]) -> QuerySet[ProductionRegression]:
    """Return regressions, open ones first, by the GPU time that they cost a day."""
    asked = {name: filters.get(name, "") for name in FILTERS}
    rows = ProductionRegression.objects.select_related("guarded_by__suite", "changed_by")
    if any("\0" in value for value in asked.values()):
        return rows.none()
    if asked["state"] == "watched":
        rows = rows.filter(state__in=WATCHED)
    elif asked["state"]:
        rows = rows.filter(state=asked["state"])
    if asked["gpu_model"]:
        rows = rows.filter(gpu_model=asked["gpu_model"])
    if asked["build"]:
        rows = rows.filter(to_build=asked["build"]) | rows.filter(from_build=asked["build"])
    if asked["q"]:
        rows = rows.filter(kernel__icontains=asked["q"])
    if asked["simulated"] in ("yes", "no"):
        rows = rows.filter(simulated=asked["simulated"] == "yes")
    return rows.order_by(_URGENT, _LOST.desc(), "pk")


def looked_at() -> Looked:
    """Return what the newest look rests on."""
    newest = ProductionDay.objects.aggregate(newest=Max("day"))["newest"]
    if newest is None:
        return Looked(0, 0, None)
    since = newest - timedelta(days=WINDOW_DAYS)
    series = (ProductionPoint.objects.filter(day__gt=since).order_by()
              .values("signature", "gpu_model", "model", "simulated").distinct().count())
    days = list(ProductionDay.objects.filter(day__gt=since).order_by("-day").values_list("watched", flat=True))
    return Looked(len(days), series, newest.isoformat(), Watched.of_days(days))


def answer(looked: Looked) -> str:
    """Return what is slower in production, whatever a page filters."""
    opened = ProductionRegression.objects.filter(state=ProductionRegression.State.OPEN)
    return list_sentence(list(opened), looked.series, looked.days, looked.watched)


def series_points(row: ProductionRegression) -> list[ProductionPoint]:
    """Return the points of a regression's series, oldest day first."""
    return list(ProductionPoint.objects.filter(signature=row.signature, gpu_model=row.gpu_model, model=row.model,
                                               simulated=row.simulated).order_by("day", "first_hour", "build"))


def gpu_models() -> list[str]:
    return sorted(ProductionRegression.objects.order_by().values_list("gpu_model", flat=True).distinct())


def fleet_url(row: ProductionRegression) -> str:
    """The fleet's page, filtered to the kernel on this GPU model, by build."""
    asked = {"kernel": row.kernel if len(row.kernel) <= 300 else "", "signature": str(row.signature), "gpu_model": row.gpu_model,
             "group": "build", "simulated": "yes" if row.simulated else "no"}
    return f"{reverse('fleet')}?{urlencode({name: value for name, value in asked.items() if value})}"


def links(row: ProductionRegression) -> dict[str, str]:
    """What explains a regression: its page, the fleet, both builds, their profiles, a deep capture of the new build, a job that
    runs it; and where any profile shows the kernel, the page on which it is tuned and guarded with its shape."""
    found = {"page": reverse("production-regression", args=[row.pk]), "fleet": fleet_url(row)}
    both = row.from_build and row.to_build and row.from_build != row.to_build
    if row.to_build and Build.objects.filter(name=row.to_build).exists():
        found["build"] = reverse("build", args=[row.to_build]) + (f"?{urlencode({'against': row.from_build})}" if both else "")
    profiled = set(Profile.objects.filter(status=Profile.Status.READY, build__in=[row.from_build, row.to_build]).exclude(build="")
                   .values_list("build", flat=True))
    if both and {row.from_build, row.to_build} <= profiled:
        found["compare"] = f"{reverse('compare')}?{urlencode({'build_a': row.from_build, 'build_b': row.to_build})}"
    if row.to_build and not row.simulated and (job := job_to_capture(row.gpu_model, row.model, row.to_build)):
        found["running"] = f"{reverse('fleet-captures')}?{urlencode({'job': job})}"
    if row.to_build in profiled:
        deep = (KernelStat.objects.filter(profile__status=Profile.Status.READY, profile__build=row.to_build, name=row.kernel)
                .order_by("-profile__created").values_list("profile_id", "pk").first())
        if deep:
            found["capture"] = reverse("kernel", args=deep)
    seen = (KernelStat.objects.filter(profile__status=Profile.Status.READY, name=row.kernel)
            .order_by("-profile__created").values_list("pk", flat=True).first())
    if seen:
        found["problem"] = f"{reverse('problem')}?{urlencode({'kernel': seen})}"
    return found


def guards(row: ProductionRegression) -> list[SuiteKernel]:
    """Return entries of suites that measure a kernel of this name: what CI could have seen."""
    return list(SuiteKernel.objects.filter(op=(row.short_name or row.kernel)[:200], suite__in=Suite.objects.values("pk"))
                .select_related("suite").order_by("suite__name", "place")[:20])


def production_json(row: ProductionRegression) -> dict[str, Any]:
    return {
        "id": row.pk, "kernel": row.kernel, "name": row.short_name, "signature": row.signature, **row.shape,
        "gpu_model": row.gpu_model, "model": row.model, "simulated": row.simulated, "from_build": row.from_build,
        "to_build": row.to_build, "since": row.since.isoformat(), "slower_pct": 100 * (row.ratio - 1), "ratio": row.ratio,
        "ci": [row.low, row.high] if row.low is not None and row.high is not None else None,
        "before_us": row.before_us, "after_us": row.after_us, "p_value": row.p_value, "days_before": row.days_before,
        "days_after": row.days_after, "gpus": row.gpus, "series": row.series, "state": row.state, "note": row.note,
        "fixed_in": row.fixed_in or None, "text": headline(row), "builds": builds_text(row), "interval": interval_text(row),
        "suite": row.guarded_by.suite.name if row.guarded_by else None, "links": links(row)}


def production_document() -> dict[str, Any]:
    """Return what the API and the command say beside the list."""
    looked = looked_at()
    return {"days": looked.days, "series": looked.series, "newest_day": looked.newest,
            "watched": looked.watched and {**looked.watched.as_json(), "time_pct": looked.watched.time_pct},
            "says": answer(looked),
            "floor_pct": 100 * FLOOR,
            "least_days": LEAST_DAYS, "weekly_false_alarms": WEEKLY}
