"""One search over everything that has a name: profiles, kernels, builds, suites, gates, jobs, configurations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

from django.db.models import Count, Max, Q, QuerySet, Sum, TextField
from django.db.models.functions import Cast

from profiles.models import Capture, KernelStat, Profile
from tuner.models import Build, CachedConfig, Gate, Suite, TuneJob

MAX_WORDS = 8
PER_GROUP = 25


@dataclass(frozen=True)
class Found:
    """Hits of one kind; `more` that there are others than those shown."""

    kind: str
    hits: list[Any]
    more: bool


def words(query: str) -> list[str]:
    return query.split()[:MAX_WORDS]


def _every_word(query: str, fields: Iterable[str]) -> Q:
    """Each word occurs in one of the fields."""
    return reduce(
        and_, (reduce(or_, (Q(**{f"{field}__icontains": word}) for field in fields)) for word in words(query))
    )


def _cut(kind: str, rows: QuerySet[Any]) -> Found:
    hits = list(rows[: PER_GROUP + 1])
    return Found(kind, hits[:PER_GROUP], len(hits) > PER_GROUP)


def find(query: str) -> list[Found]:
    """Groups with hits, in the order of the page; nothing for an empty query. "#12" also finds jobs by number."""
    if not words(query):
        return []
    groups = [_profiles(query), _kernels(query), _builds(query), _suites(query), _gates(query), _tune_jobs(query),
              _captures(query), _configs(query)]
    return [group for group in groups if group.hits]


def _profiles(query: str) -> Found:
    rows = Profile.objects.annotate(tag_text=Cast("tags", TextField()))
    return _cut(
        "profiles", rows.filter(_every_word(query, ("name", "file_name", "build", "model", "notes", "gpu", "tag_text")))
    )


def _kernels(query: str) -> Found:
    """One line per short name: where it takes most time."""
    rows = (
        KernelStat.objects.filter(_every_word(query, ("short_name", "name")))
        .order_by()
        .values("short_name")
        .annotate(total_ns=Sum("total_ns"), launches=Sum("launches"), profiles=Count("profile", distinct=True))
        .order_by("-total_ns", "short_name")
    )
    found = _cut("kernels", rows)
    best = {
        each.short_name: each
        for each in KernelStat.objects.filter(short_name__in=[hit["short_name"] for hit in found.hits])
        .order_by("short_name", "-total_ns")
        .distinct("short_name")
    }
    return Found(found.kind, [{**hit, "kernel": best[hit["short_name"]]} for hit in found.hits], found.more)


def _builds(query: str) -> Found:
    """Those that have a row of their own, then those that only profiles name."""
    known = _cut("builds", Build.objects.filter(_every_word(query, ("name", "title", "branch", "author"))))
    rows = Profile.objects.exclude(build="").filter(_every_word(query, ("build",))).order_by().values("build")
    profiles = {row["build"]: row for row in rows.annotate(profiles=Count("pk"), last=Max("created")).order_by("-last")[:200]}
    hits = [{"build": build.name, "title": build.title, "last": build.at, "page": True,
             "profiles": profiles.get(build.name, {}).get("profiles", 0)} for build in known.hits]
    named = {hit["build"] for hit in hits}
    hits += [{**row, "title": "", "page": False} for name, row in profiles.items() if name not in named]
    return Found("builds", hits[:PER_GROUP], known.more or len(hits) > PER_GROUP)


def _suites(query: str) -> Found:
    """By their own name, or by a kernel that they watch."""
    rows = Suite.objects.annotate(watched=Count("kernels", distinct=True))
    return _cut("suites", rows.filter(_every_word(query, ("name", "title")) | Q(pk__in=Suite.objects.filter(
        _every_word(query, ("kernels__key",))).values("pk"))))


def _gates(query: str) -> Found:
    rows = Gate.objects.select_related("suite", "build")
    fields = ("build__name", "build__title", "suite__name", "verdict", "gpu")
    return _cut("gates", rows.filter(_every_word(query, fields) | Q(pk=_number(query))))


def _number(query: str) -> int:
    digits = query.strip().lstrip("#")
    return int(digits) if digits.isdecimal() and len(digits) < 18 else -1


def _tune_jobs(query: str) -> Found:
    rows = TuneJob.objects.annotate(shape_text=Cast("shape", TextField()))
    return _cut(
        "tune jobs",
        rows.filter(
            _every_word(query, ("operator", "dtype", "device", "strategy", "gpu", "shape_text")) | Q(pk=_number(query))
        ),
    )


def _captures(query: str) -> Found:
    rows = Capture.objects.select_related("target")
    return _cut(
        "captures", rows.filter(_every_word(query, ("target__name", "tool", "build", "model")) | Q(pk=_number(query)))
    )


def _configs(query: str) -> Found:
    fields = ("operator", "dtype", "shape_bucket", "gpu", "toolkit", "config_text")
    return _cut(
        "configurations",
        CachedConfig.objects.annotate(config_text=Cast("config", TextField())).filter(_every_word(query, fields)),
    )
