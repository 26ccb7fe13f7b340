"""Reads of profiles: lists with their filters, the fleet's kernels, builds. Pages and API share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.http import urlencode

from profiles.ingest import READERS
from profiles.models import Profile, first_uploads

FILTERS = ("q", "status", "build", "model", "gpu", "tag", "kind", "format", "owner")
ORDERS = {
    "created": ("created", "id"), "name": ("name",), "build": ("build",), "gpu": ("gpu",), "steps": ("steps",),
    "wall": ("wall_ns",), "launches": ("launches",), "gpu_time": ("gpu_time_ns",), "size": ("upload_bytes",),
}


def formats_read() -> list[str]:
    """Return what may be uploaded, as the readers call it."""
    return [reader.name for reader in READERS]


def profile_list(filters: Mapping[str, str]) -> QuerySet[Profile]:
    """Return profiles by `FILTERS` and `order`.

    Empty values ask nothing; "-created" by default, unknown orders are ignored.
    """
    rows = Profile.objects.select_related("owner")
    if text := filters.get("q", "").strip():
        rows = rows.filter(Q(name__icontains=text) | Q(file_name__icontains=text) | Q(build__icontains=text)
                             | Q(model__icontains=text) | Q(notes__icontains=text) | Q(tags__contains=[text])
                             | Q(top_kernel__icontains=text))
    for name in ("status", "build", "model", "kind", "format"):
        if value := filters.get(name, "").strip():
            rows = rows.filter(**{name: value})
    if gpu := filters.get("gpu", "").strip():
        rows = rows.filter(gpu__icontains=gpu)
    if tag := filters.get("tag", "").strip():
        rows = rows.filter(tags__contains=[tag])
    if owner := filters.get("owner", "").strip():
        rows = rows.filter(owner__username=owner)
    order = filters.get("order", "")
    fields = ORDERS.get(order.lstrip("-"))
    if not fields:
        return rows
    return rows.order_by(*(F(name).desc(nulls_last=True) if order.startswith("-") else F(name).asc(nulls_last=True)
                            for name in (*fields, "id")))


def filter_choices() -> dict[str, list[str]]:
    """Return what a filter may be set to: values that occur."""
    def values(name: str) -> list[str]:
        return list(Profile.objects.exclude(**{name: ""}).order_by(name).values_list(name, flat=True).distinct()[:200])

    tags = Profile.objects.values_list("tags", flat=True)[:5000]
    return {
        "status": [str(status) for status in Profile.Status.values], "build": values("build"), "model": values("model"),
        "gpu": values("gpu"), "tag": sorted({tag for names in tags for tag in names})[:200],
        "kind": [str(kind) for kind in Profile.Kind.values if kind],
        "owner": list(Profile.objects.filter(owner__isnull=False).order_by("owner__username")
                      .values_list("owner__username", flat=True).distinct()[:200]),
    }


def totals() -> dict[str, int]:
    """Return how many profiles there are, by status."""
    counted = dict(Profile.objects.order_by().values_list("status").annotate(count=Count("pk")))
    return {"all": sum(counted.values()), **{str(status): counted.get(status, 0) for status in Profile.Status.values}}


def query_without(query: Mapping[str, str], *names: str) -> str:
    """Return the query string without `names` and without empty values.

    For links that keep the filters.
    """
    return urlencode({key: value for key, value in query.items() if value and key not in names})


def fleet_scope(filters: Mapping[str, str]) -> dict[str, Any]:
    """Return what the fleet's kernels are summed over."""
    sums = fleet(filters).order_by().aggregate(
        profiles=Count("pk"), builds=Count("build", distinct=True, filter=~Q(build="")), gpus=Count("gpu", distinct=True))
    return {**sums, "kind": fleet_kind(filters)}


def fleet_kind(filters: Mapping[str, str]) -> str:
    """Return the kind of profile that the fleet is summed over, traces by default.

    The launches of a counter report are chosen by whoever profiled, not by what a job runs.
    """
    return filters.get("kind") or str(Profile.Kind.TRACE)


WINDOWS = {"1": "last 24 hours", "7": "last 7 days", "30": "last 30 days", "90": "last 90 days"}


def fleet(filters: Mapping[str, str]) -> QuerySet[Profile]:
    """Return ready profiles of one kind, filtered like the profile list, and by when they came.

    `window` (days), `since` and `until` (dates, both included) ask when; what is no number or date asks nothing. Of the very same
    bytes the oldest alone counts.
    """
    chosen = {name: filters.get(name, "") for name in ("build", "model", "gpu", "tag", "owner")}
    rows = profile_list({**chosen, "status": Profile.Status.READY, "kind": fleet_kind(filters)})
    if (days := filters.get("window", "").strip()).isdecimal() and len(days) < 5:
        rows = rows.filter(created__gte=timezone.now() - timedelta(days=int(days)))
    if since := _date(filters.get("since", "")):
        rows = rows.filter(created__date__gte=since)
    if until := _date(filters.get("until", "")):
        rows = rows.filter(created__date__lte=until)
    return first_uploads(rows)


def _date(text: str) -> date | None:
    try:
        return parse_date(text.strip())
    except ValueError:              # of the right form, but no day
        return None


def build_list(names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return builds that have profiles, newest first: counts, kernel time, GPUs.

    `names`: these alone.
    """
    profiles = Profile.objects.exclude(build="") if names is None else Profile.objects.filter(build__in=names).exclude(build="")
    groups = (profiles.order_by().values("build")
              .annotate(first=Min("created"), last=Max("created"), profiles=Count("pk"),
                        ready=Count("pk", filter=Q(status=Profile.Status.READY)),
                        traces=Count("pk", filter=Q(status=Profile.Status.READY, kind=Profile.Kind.TRACE)),
                        counters=Count("pk", filter=Q(status=Profile.Status.READY, kind=Profile.Kind.COUNTERS)),
                        launches=Sum("launches"), gpu_time_ns=Sum("gpu_time_ns"))
              .order_by("-last"))
    gpus: dict[str, set[str]] = {}
    for build, gpu in profiles.exclude(gpu="").order_by().values_list("build", "gpu").distinct():
        gpus.setdefault(build, set()).add(gpu)
    return [{**group, "gpus": sorted(gpus.get(group["build"], ()))} for group in groups]


def build_profiles(build: str, kind: str = "") -> QuerySet[Profile]:
    """Ready profiles of a build, of one kind if asked."""
    rows = Profile.objects.filter(build=build, status=Profile.Status.READY)
    return rows.filter(kind=kind) if kind else rows.exclude(kind=Profile.Kind.UNKNOWN)
