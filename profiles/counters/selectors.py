"""Reads about counters: the launches of a report, as rows and as JSON. Pages and API share them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from django.db.models import QuerySet

from profiles.analysis.kernel.facts import LaunchFacts
from profiles.analysis.kernel.meaning import meaning_of
from profiles.base.answers import make_answer
from profiles.models import LaunchCounters, Profile
from profiles.store.counters import metrics_of


def launch_rows(profile: Profile) -> QuerySet[LaunchCounters]:
    """The launches of a report in their order, for the table on its page."""
    return profile.counter_launches.select_related("kernel").defer("rules")


def counted_launches(profile: Profile, kernel: int = 0) -> QuerySet[LaunchCounters]:
    """Return the launches of a report in their order, with their rules; of one kernel where its id is given."""
    launches = profile.counter_launches.select_related("kernel")
    return launches.filter(kernel=kernel) if kernel else launches


class LaunchJson(TypedDict):
    """A launch with hardware counters: facts, and the vendor's rule findings."""

    index: int
    kernel_id: int
    kernel: str
    duration_ns: float | None
    grid: str
    block: str
    incomplete: str
    facts: LaunchFacts
    rules: list[dict[str, Any]]


def launch_json(row: LaunchCounters) -> LaunchJson:
    """Return facts and rules of a launch."""
    return make_answer(LaunchJson, row, kernel=row.kernel.name)


class MetricJson(TypedDict):
    """A raw metric with its sentence, and which values are good."""

    metric: str
    value: Any
    unit: str
    meaning: str
    range: Any
    source: str


def metric_rows(profile: Profile, launch: int) -> list[MetricJson]:
    """Return every raw metric of a launch, each with what it means."""
    return [_with_meaning(row) for row in metrics_of(profile.pk, launch)]


def _with_meaning(row: Mapping[str, Any]) -> Any:
    """Return a metric with its sentence and which values are good; its unit where the report states none."""
    meaning = meaning_of(row["metric"])
    return {**row, "unit": row["unit"] or meaning.unit, "meaning": meaning.sentence, "range": meaning.range,
            "source": meaning.source}
