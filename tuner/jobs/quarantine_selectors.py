"""What is in quarantine, for workers, pages and API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from django.db.models import F, QuerySet

from tuner.models import Quarantine, TuneJob
from tuner.texts import config_in_order, in_order
from tuner.trial import Reason, Rejected, config_key

WORDS = {"crash": "crashed", "timeout": "hung", "wrong": "computed wrong"}


def quarantine_list(filters: Mapping[str, str] | None = None) -> QuerySet[Quarantine]:
    """In force first, last seen first."""
    rows = Quarantine.objects.select_related("job", "lifted_by").order_by(
        F("lifted").desc(nulls_first=True), "-last_seen", "-id")
    for name in ("operator", "reason", "gpu"):
        if value := (filters or {}).get(name, ""):
            rows = rows.filter(**{name: value})
    return rows


def refused(job: TuneJob, capability: str) -> dict[str, Rejected]:
    """Configurations by key that this job must not run, each with what happened where. Its own failures are in its trials."""
    rows = Quarantine.objects.filter(operator=job.operator, dtype=job.dtype, capability=capability, toolkit=job.toolkit,
                                     source_hash=job.source_hash, lifted=None).exclude(job=job)
    return {config_key(row.config): Rejected(Reason.QUARANTINED, said(row)) for row in rows}


def said(row: Quarantine) -> str:
    what = WORDS.get(row.reason, row.reason)
    shape = " ".join(f"{name}={value}" for name, value in in_order(row.operator, row.shape).items())
    where = f"job {row.job_id}" if row.job_id else "a job that is gone"
    return f"{what} at {shape} on {row.gpu} in {where} on {row.last_seen:%Y-%m-%d %H:%M} UTC; not tried again"


def quarantine_json(row: Quarantine) -> dict[str, Any]:
    names = ("id", "signature", "operator", "dtype", "capability", "toolkit", "source_hash", "reason", "message", "gpu", "count")
    return {**{name: getattr(row, name) for name in names}, "config": config_in_order(row.config),
            "shape": in_order(row.operator, row.shape), "job": row.job_id, "first_seen": row.first_seen.isoformat(),
            "last_seen": row.last_seen.isoformat(), "lifted": row.lifted.isoformat() if row.lifted else None,
            "lifted_by": row.lifted_by.get_username() if row.lifted_by else None}


def by_reason(filters: Mapping[str, str] | None = None) -> list[tuple[str, int]]:
    """What those in force did, in words, most frequent first."""
    counted = Counter(quarantine_list(filters).filter(lifted=None).values_list("reason", flat=True))
    return [(WORDS.get(reason, reason), count) for reason, count in counted.most_common()]
