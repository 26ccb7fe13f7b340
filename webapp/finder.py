"""Search over everything that has a name: profiles, kernels, builds, suites, jobs, …"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

from django.db.models import Count, F, Max, Q, QuerySet, Sum, TextField
from django.db.models.functions import Cast

from profiles.fleet.models import FleetAgent
from profiles.models import Capture, KernelStat, Profile
from tuner.models import Build, CachedConfig, Candidate, Gate, Suite, TuneJob

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


def _make_group(kind: str, rows: QuerySet[Any], most: int) -> HitGroup:
    hits = list(rows[: most + 1])
    return HitGroup(kind, hits[:most], len(hits) > most)


def find(query: str, most: int = PER_GROUP) -> list[HitGroup]:
    """Return groups of at most `most` hits in page order; empty for an empty query. "#12" finds jobs too."""
    if not words(query):
        return []
    ways = (_find_profiles, _find_kernels, _find_builds, _find_suites, _find_gates, _find_tune_jobs, _find_candidates,
            _find_captures, _find_configs, _find_agents)
    groups = [way(query, most) for way in ways]
    return [group for group in groups if group.hits]


def _find_profiles(query: str, most: int) -> HitGroup:
    rows = Profile.objects.annotate(tag_text=Cast("tags", TextField()))
    return _make_group(
        "profiles", rows.filter(_match_words(query, ("name", "file_name", "build", "model", "notes", "gpu", "tag_text"))), most
    )


def _find_kernels(query: str, most: int) -> HitGroup:
    """Return one line per short name: where it takes most time."""
    rows = (
        KernelStat.objects.filter(_match_words(query, ("short_name", "name")))
        .order_by()
        .values("short_name")
        .annotate(total_ns=Sum("total_ns"), launches=Sum("launches"), profiles=Count("profile", distinct=True))
        .order_by(F("total_ns").desc(nulls_last=True), "short_name")
    )
    group = _make_group("kernels", rows, most)
    best = {
        stat.short_name: stat
        for stat in KernelStat.objects.filter(short_name__in=[hit["short_name"] for hit in group.hits])
        .order_by("short_name", F("total_ns").desc(nulls_last=True))
        .distinct("short_name")
    }
    return HitGroup(group.kind, [{**hit, "kernel": best[hit["short_name"]]} for hit in group.hits], group.more)


def _find_builds(query: str, most: int) -> HitGroup:
    """Return builds with a row of their own, then those that only profiles name."""
    group = _make_group("builds", Build.objects.filter(_match_words(query, ("name", "title", "branch", "author"))), most)
    rows = Profile.objects.exclude(build="").filter(_match_words(query, ("build",))).order_by().values("build")
    profiles = {row["build"]: row for row in rows.annotate(profiles=Count("pk"), last=Max("created")).order_by("-last")[:200]}
    hits = [{"build": build.name, "title": build.title, "last": build.at, "page": True,
             "profiles": profiles[build.name]["profiles"] if build.name in profiles else 0} for build in group.hits]
    named = {hit["build"] for hit in hits}
    hits += [{**row, "title": "", "page": False} for name, row in profiles.items() if name not in named]
    return HitGroup("builds", hits[:most], group.more or len(hits) > most)


def _find_suites(query: str, most: int) -> HitGroup:
    """Return suites by their name or by a kernel that they watch."""
    rows = Suite.objects.annotate(watched=Count("kernels", distinct=True))
    return _make_group("suites", rows.filter(_match_words(query, ("name", "title")) | Q(pk__in=Suite.objects.filter(
        _match_words(query, ("kernels__key",))).values("pk"))), most)


def _find_gates(query: str, most: int) -> HitGroup:
    rows = Gate.objects.select_related("suite", "build")
    fields = ("build__name", "build__title", "suite__name", "verdict", "gpu")
    return _make_group("gates", rows.filter(_match_words(query, fields) | Q(pk=_job_number(query))), most)


def _job_number(query: str) -> int:
    digits = query.strip().lstrip("#")
    return int(digits) if digits.isdecimal() and len(digits) < 18 else -1


def _find_tune_jobs(query: str, most: int) -> HitGroup:
    rows = TuneJob.objects.annotate(shape_text=Cast("shape", TextField()))
    return _make_group(
        "tune jobs",
        rows.filter(
            _match_words(query, ("operator", "dtype", "device", "strategy", "gpu", "shape_text")) | Q(pk=_job_number(query))
        ),
        most,
    )


def _find_candidates(query: str, most: int) -> HitGroup:
    rows = Candidate.objects.annotate(shape_text=Cast("shape", TextField())).defer("text", "diff", "answer")
    fields = ("operator", "dtype", "gpu", "note", "verdict", "token_name", "shape_text")
    return _make_group("candidates", rows.filter(_match_words(query, fields) | Q(pk=_job_number(query))), most)


def _find_captures(query: str, most: int) -> HitGroup:
    rows = Capture.objects.select_related("target")
    return _make_group(
        "captures", rows.filter(_match_words(query, ("target__name", "tool", "build", "model")) | Q(pk=_job_number(query))), most
    )


def _find_configs(query: str, most: int) -> HitGroup:
    fields = ("operator", "dtype", "shape_bucket", "gpu", "toolkit", "config_text")
    return _make_group(
        "configurations",
        CachedConfig.objects.annotate(config_text=Cast("config", TextField())).filter(_match_words(query, fields)),
        most,
    )


def _find_agents(query: str, most: int) -> HitGroup:
    return _make_group("agents", FleetAgent.objects.filter(_match_words(query, ("name", "host"))).order_by("name"), most)
