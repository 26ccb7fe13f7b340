"""Search over everything that has a name: profiles, kernels, builds, suites, jobs, …"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

from django.db.models import Count, F, Max, Q, QuerySet, Sum, TextField
from django.db.models.functions import Cast

from profiles.models import Capture, KernelStat, Profile
from tuner.models import Build, CachedConfig, Gate, Suite, TuneJob

MAX_WORDS = 8
PER_GROUP = 25


@dataclass(frozen=True)
class HitGroup:
    """Hits of one kind; `more`: there are others."""

    kind: str
    hits: list[Any]
    more: bool


def words(query: str) -> list[str]:
    """Return the words of a query."""
    return query.split()[:MAX_WORDS]


def _match_words(query: str, fields: Iterable[str]) -> Q:
    """Match rows where each word occurs in one of the fields."""
    return reduce(
        and_, (reduce(or_, (Q(**{f"{field}__icontains": word}) for field in fields)) for word in words(query))
    )


def _make_group(kind: str, rows: QuerySet[Any]) -> HitGroup:
    hits = list(rows[: PER_GROUP + 1])
    return HitGroup(kind, hits[:PER_GROUP], len(hits) > PER_GROUP)


def find(query: str) -> list[HitGroup]:
    """Return groups with hits in page order; empty for an empty query. "#12" finds jobs too."""
    if not words(query):
        return []
    groups = [_find_profiles(query), _find_kernels(query), _find_builds(query), _find_suites(query), _find_gates(query),
              _find_tune_jobs(query), _find_captures(query), _find_configs(query)]
    return [group for group in groups if group.hits]


def _find_profiles(query: str) -> HitGroup:
    rows = Profile.objects.annotate(tag_text=Cast("tags", TextField()))
    return _make_group(
        "profiles", rows.filter(_match_words(query, ("name", "file_name", "build", "model", "notes", "gpu", "tag_text")))
    )


def _find_kernels(query: str) -> HitGroup:
    """Return one line per short name: where it takes most time."""
    rows = (
        KernelStat.objects.filter(_match_words(query, ("short_name", "name")))
        .order_by()
        .values("short_name")
        .annotate(total_ns=Sum("total_ns"), launches=Sum("launches"), profiles=Count("profile", distinct=True))
        .order_by(F("total_ns").desc(nulls_last=True), "short_name")
    )
    group = _make_group("kernels", rows)
    best = {
        each.short_name: each
        for each in KernelStat.objects.filter(short_name__in=[hit["short_name"] for hit in group.hits])
        .order_by("short_name", F("total_ns").desc(nulls_last=True))
        .distinct("short_name")
    }
    return HitGroup(group.kind, [{**hit, "kernel": best[hit["short_name"]]} for hit in group.hits], group.more)


def _find_builds(query: str) -> HitGroup:
    """Return builds with a row of their own, then those that only profiles name."""
    known = _make_group("builds", Build.objects.filter(_match_words(query, ("name", "title", "branch", "author"))))
    rows = Profile.objects.exclude(build="").filter(_match_words(query, ("build",))).order_by().values("build")
    profiles = {row["build"]: row for row in rows.annotate(profiles=Count("pk"), last=Max("created")).order_by("-last")[:200]}
    hits = [{"build": build.name, "title": build.title, "last": build.at, "page": True,
             "profiles": profiles[build.name]["profiles"] if build.name in profiles else 0} for build in known.hits]
    named = {hit["build"] for hit in hits}
    hits += [{**row, "title": "", "page": False} for name, row in profiles.items() if name not in named]
    return HitGroup("builds", hits[:PER_GROUP], known.more or len(hits) > PER_GROUP)


def _find_suites(query: str) -> HitGroup:
    """Return suites by their name or by a kernel that they watch."""
    rows = Suite.objects.annotate(watched=Count("kernels", distinct=True))
    return _make_group("suites", rows.filter(_match_words(query, ("name", "title")) | Q(pk__in=Suite.objects.filter(
        _match_words(query, ("kernels__key",))).values("pk"))))


def _find_gates(query: str) -> HitGroup:
    rows = Gate.objects.select_related("suite", "build")
    fields = ("build__name", "build__title", "suite__name", "verdict", "gpu")
    return _make_group("gates", rows.filter(_match_words(query, fields) | Q(pk=_job_number(query))))


def _job_number(query: str) -> int:
    digits = query.strip().lstrip("#")
    return int(digits) if digits.isdecimal() and len(digits) < 18 else -1


def _find_tune_jobs(query: str) -> HitGroup:
    rows = TuneJob.objects.annotate(shape_text=Cast("shape", TextField()))
    return _make_group(
        "tune jobs",
        rows.filter(
            _match_words(query, ("operator", "dtype", "device", "strategy", "gpu", "shape_text")) | Q(pk=_job_number(query))
        ),
    )


def _find_captures(query: str) -> HitGroup:
    rows = Capture.objects.select_related("target")
    return _make_group(
        "captures", rows.filter(_match_words(query, ("target__name", "tool", "build", "model")) | Q(pk=_job_number(query)))
    )


def _find_configs(query: str) -> HitGroup:
    fields = ("operator", "dtype", "shape_bucket", "gpu", "toolkit", "config_text")
    return _make_group(
        "configurations",
        CachedConfig.objects.annotate(config_text=Cast("config", TextField())).filter(_match_words(query, fields)),
    )
