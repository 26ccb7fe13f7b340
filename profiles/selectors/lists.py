"""Reads of profiles: lists with their filters, the fleet's kernels, builds. Pages and API share them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, F, FloatField, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import Cast
from django.utils.http import urlencode

from profiles.ingest import READERS
from profiles.models import KernelStat, Profile

FILTERS = ("q", "status", "build", "model", "gpu", "tag", "kind", "format", "owner")
ORDERS = {
    "created": ("created", "id"), "name": ("name",), "build": ("build",), "gpu": ("gpu",), "steps": ("steps",),
    "wall": ("wall_ns",), "launches": ("launches",), "gpu_time": ("gpu_time_ns",), "size": ("upload_bytes",),
}


def formats_read() -> list[str]:
    """What may be uploaded, as the readers call it."""
    return [reader.name for reader in READERS]


def profile_list(filters: Mapping[str, str]) -> QuerySet[Profile]:
    """Profiles by `FILTERS` (empty values ask nothing) and `order` ("-created" by default; unknown orders are ignored)."""
    found = Profile.objects.select_related("owner")
    if text := filters.get("q", "").strip():
        found = found.filter(Q(name__icontains=text) | Q(file_name__icontains=text) | Q(build__icontains=text)
                             | Q(model__icontains=text) | Q(notes__icontains=text) | Q(tags__contains=[text])
                             | Q(top_kernel__icontains=text))
    for name in ("status", "build", "model", "kind", "format"):
        if value := filters.get(name, "").strip():
            found = found.filter(**{name: value})
    if gpu := filters.get("gpu", "").strip():
        found = found.filter(gpu__icontains=gpu)
    if tag := filters.get("tag", "").strip():
        found = found.filter(tags__contains=[tag])
    if owner := filters.get("owner", "").strip():
        found = found.filter(owner__username=owner)
    order = filters.get("order", "")
    fields = ORDERS.get(order.lstrip("-"))
    if not fields:
        return found
    return found.order_by(*(F(name).desc(nulls_last=True) if order.startswith("-") else F(name).asc(nulls_last=True)
                            for name in (*fields, "id")))


def filter_choices() -> dict[str, list[str]]:
    """What a filter may be set to: values that occur."""
    def values(name: str) -> list[str]:
        return list(Profile.objects.exclude(**{name: ""}).order_by(name).values_list(name, flat=True).distinct()[:200])

    tags = Profile.objects.values_list("tags", flat=True)[:5000]
    return {
        "status": [str(each) for each in Profile.Status.values], "build": values("build"), "model": values("model"),
        "gpu": values("gpu"), "tag": sorted({tag for each in tags for tag in each})[:200],
        "kind": [str(each) for each in Profile.Kind.values if each],
    }


def totals() -> dict[str, int]:
    """How many profiles there are, by status."""
    counted = dict(Profile.objects.order_by().values_list("status").annotate(count=Count("pk")))
    return {"all": sum(counted.values()), **{str(status): counted.get(status, 0) for status in Profile.Status.values}}


def query_without(query: Mapping[str, str], *names: str) -> str:
    """The query string without `names` and without empty values: for links that keep the filters."""
    return urlencode({key: value for key, value in query.items() if value and key not in names})


@dataclass(frozen=True)
class Family:
    """One kernel family over the fleet's ready profiles: launches of one short name."""

    name: str
    category: str
    total_ns: int
    launches: int
    share_pct: float
    profiles: int
    builds: list[str]
    bounds: dict[str, float]        # bound -> share of the family's time, 0-100; "" is unknown
    mean_ns: float
    profile_id: int                 # where it takes most time, and its row there
    kernel_id: int

    @property
    def bound(self) -> str:
        """What bounds most of its time; "" where that is unknown."""
        return max(self.bounds, key=lambda bound: self.bounds[bound])


def fleet_scope(filters: Mapping[str, str]) -> dict[str, Any]:
    """What the fleet's kernels are summed over."""
    found = _fleet(filters).order_by().aggregate(
        profiles=Count("pk"), builds=Count("build", distinct=True, filter=~Q(build="")), gpus=Count("gpu", distinct=True))
    return {**found, "kind": _fleet_kind(filters)}


def _fleet_kind(filters: Mapping[str, str]) -> str:
    return filters.get("kind") or str(Profile.Kind.TRACE)


def _fleet(filters: Mapping[str, str]) -> QuerySet[Profile]:
    chosen = {name: filters.get(name, "") for name in ("build", "model", "gpu", "tag", "owner", "format")}
    return profile_list({**chosen, "status": Profile.Status.READY, "kind": _fleet_kind(filters)})


def kernel_families(filters: Mapping[str, str]) -> list[Family]:
    """Families by GPU time over ready profiles, filtered like the profile list. Traces by default: the launches of a
    counter report are chosen by whoever profiled, not by what a job runs."""
    stats = KernelStat.objects.filter(profile__in=_fleet(filters).order_by().values("pk"))
    if text := filters.get("q", "").strip():
        stats = stats.filter(Q(short_name__icontains=text) | Q(name__icontains=text))
    groups = list(stats.values("short_name").annotate(
        total=Sum("total_ns"), count=Sum("launches"), runs=Count("profile", distinct=True), kind=Min("category"),
        mean=Cast(Sum("total_ns"), FloatField()) / Cast(Sum("launches"), FloatField())).order_by("-total"))
    all_ns = sum(group["total"] for group in groups) or 1
    bounds = _bounds(stats)
    builds = _builds(stats)
    top = {short: (pk, profile_id) for short, pk, profile_id in
           stats.order_by("short_name", "-total_ns").distinct("short_name").values_list("short_name", "pk", "profile_id")}
    return [Family(
        name=group["short_name"], category=group["kind"], total_ns=int(group["total"]), launches=int(group["count"]),
        share_pct=float(100 * group["total"] / all_ns), profiles=group["runs"], builds=builds.get(group["short_name"], []),
        bounds={bound: float(100 * ns / group["total"]) if group["total"] else 0.0
                for bound, ns in bounds[group["short_name"]].items()},
        mean_ns=group["mean"], profile_id=top[group["short_name"]][1], kernel_id=top[group["short_name"]][0],
    ) for group in groups]


def _bounds(stats: QuerySet[KernelStat]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in stats.values("short_name", "bound").annotate(total=Sum("total_ns")).order_by():
        found.setdefault(row["short_name"], {})[row["bound"]] = int(row["total"])
    return found


def _builds(stats: QuerySet[KernelStat]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for short, build in stats.exclude(profile__build="").order_by("short_name").values_list(
            "short_name", "profile__build").distinct():
        found.setdefault(short, []).append(build)
    return found


def build_list() -> list[dict[str, Any]]:
    """Builds that have profiles, newest first: counts, kernel time and what they ran on."""
    groups = (Profile.objects.exclude(build="").order_by().values("build")
              .annotate(first=Min("created"), last=Max("created"), profiles=Count("pk"),
                        ready=Count("pk", filter=Q(status=Profile.Status.READY)),
                        traces=Count("pk", filter=Q(status=Profile.Status.READY, kind=Profile.Kind.TRACE)),
                        counters=Count("pk", filter=Q(status=Profile.Status.READY, kind=Profile.Kind.COUNTERS)),
                        launches=Sum("launches"), gpu_time_ns=Sum("gpu_time_ns"))
              .order_by("-last"))
    gpus: dict[str, set[str]] = {}
    for build, gpu in Profile.objects.exclude(build="").exclude(gpu="").order_by().values_list("build", "gpu").distinct():
        gpus.setdefault(build, set()).add(gpu)
    return [{**group, "gpus": sorted(gpus.get(group["build"], ()))} for group in groups]


def build_profiles(build: str, kind: str = "") -> QuerySet[Profile]:
    """Ready profiles of a build, of one kind if asked."""
    found = Profile.objects.filter(build=build, status=Profile.Status.READY)
    return found.filter(kind=kind) if kind else found.exclude(kind=Profile.Kind.UNKNOWN)
