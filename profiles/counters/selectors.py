"""Reads about counters: the launches of a report, as rows and as JSON. Pages and API share them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet

from profiles.analysis.kernel.meaning import meaning_of
from profiles.models import LaunchCounters, Profile
from profiles.store.counters import metrics_of


def launch_rows(profile: Profile) -> QuerySet[LaunchCounters]:
    """The launches of a report in their order, for the table on its page."""
    return profile.counter_launches.select_related("kernel").defer("rules")


def counted_launches(profile: Profile, kernel: int = 0) -> QuerySet[LaunchCounters]:
    """Return the launches of a report in their order, with their rules; of one kernel where its id is given."""
    launches = profile.counter_launches.select_related("kernel")
    return launches.filter(kernel=kernel) if kernel else launches


def launch_json(row: LaunchCounters) -> dict[str, Any]:
    """Return facts and rules of a launch."""
    return {"index": row.index, "kernel_id": row.kernel_id, "kernel": row.kernel.name, "duration_ns": row.duration_ns,
            "grid": row.grid, "block": row.block, "incomplete": row.incomplete, "facts": row.facts, "rules": row.rules}


def metric_rows(profile: Profile, launch: int) -> list[dict[str, Any]]:
    """Return every raw metric of a launch, each with what it means."""
    return [_with_meaning(row) for row in metrics_of(profile.pk, launch)]


def _with_meaning(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a metric with its sentence and which values are good; its unit where the report states none."""
    meaning = meaning_of(row["metric"])
    return {**row, "unit": row["unit"] or meaning.unit, "meaning": meaning.sentence, "range": meaning.range,
            "source": meaning.source}
