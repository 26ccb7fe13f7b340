"""Quarantine: configurations that crashed, hung or were wrong, kept from all workers.

A signature is the operator, data type, configuration, class of GPU (compute capability), toolkit, hash of the kernel's
source and the reason: another compiler or a changed kernel gets a new chance.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypedDict

from django.db.models import F, QuerySet
from django.utils import timezone

from profiles.base.answers import Scalar, make_answer
from profiles.base.words import pairs_text
from tuner.models import Quarantine, TuneJob
from tuner.texts import REASON_WORDS, config_in_order, in_order
from tuner.tuning.trial import Config, Reason, Rejected, config_key

REASONS = (Reason.CRASH, Reason.TIMEOUT, Reason.WRONG)
MESSAGE_CHARACTERS = 4000


def signature(operator: str, dtype: str, config: Config, capability: str, toolkit: str, source_hash: str, reason: str) -> str:
    """Return the key of a quarantined configuration."""
    parts = [operator, dtype, config_key(config), capability, toolkit, source_hash, reason]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def quarantine_config(job: TuneJob, outcome: Rejected, config: Config, capability: str) -> Quarantine | None:
    """Quarantine a configuration where its failure does harm; None otherwise. Renews lifted ones."""
    if outcome.reason not in REASONS:
        return None
    return quarantine_put({"operator": job.operator, "dtype": job.dtype, "config": dict(config), "capability": capability,
                     "toolkit": job.toolkit, "source_hash": job.source_hash, "reason": str(outcome.reason)},
                    {"message": outcome.message[:MESSAGE_CHARACTERS], "shape": job.shape, "gpu": job.gpu, "job": job})


def quarantine_put(facts: Mapping[str, Any], seen: Mapping[str, Any]) -> Quarantine:
    """Store a quarantine; `facts` sign it, `seen` says where it was seen last."""
    key = config_key(facts["config"])
    short = key if len(key) <= 200 else "sha256:" + hashlib.sha256(key.encode()).hexdigest()
    row, new = Quarantine.objects.get_or_create(
        signature=signature(**facts), defaults={**facts, "config_key": short, **seen})
    if not new:
        Quarantine.objects.filter(pk=row.pk).update(
            **seen, count=F("count") + 1, last_seen=timezone.now(), lifted=None, lifted_by=None)
        row.refresh_from_db()
    return row


def quarantine_lift(row: Quarantine, by: Any) -> Quarantine:
    """Lift it; where the configuration fails again, it comes back."""
    Quarantine.objects.filter(pk=row.pk, lifted=None).update(lifted=timezone.now(), lifted_by=by)
    row.refresh_from_db()
    return row


def quarantine_forget_job(job: TuneJob) -> None:
    """Remove quarantines of a job in which nothing ran: its GPU or driver was at fault."""
    Quarantine.objects.filter(job=job, count=1).delete()


def quarantine_list(filters: Mapping[str, str] | None = None) -> QuerySet[Quarantine]:
    """Return those in force first, last seen first."""
    rows = Quarantine.objects.select_related("job", "lifted_by").order_by(
        F("lifted").desc(nulls_first=True), "-last_seen", "-id")
    for name in ("operator", "reason", "gpu"):
        if value := (filters or {}).get(name, ""):
            rows = rows.filter(**{name: value})
    return rows


def refused_configs(job: TuneJob, capability: str) -> dict[str, Rejected]:
    """Return configurations by key that the job must not run, with what happened where."""
    rows = Quarantine.objects.filter(operator=job.operator, dtype=job.dtype, capability=capability, toolkit=job.toolkit,
                                     source_hash=job.source_hash, lifted=None).exclude(job=job)
    return {config_key(row.config): Rejected(Reason.QUARANTINED, refusal_text(row)) for row in rows}


def refusal_text(row: Quarantine) -> str:
    """Return why a configuration is refused."""
    what = REASON_WORDS.get(row.reason, row.reason)
    shape = pairs_text(in_order(row.operator, row.shape))
    where = f"job {row.job_id}" if row.job_id else "a job that is gone"
    return f"{what} at {shape} on {row.gpu} in {where} on {row.last_seen:%Y-%m-%d %H:%M} UTC; not tried again"


class QuarantineJson(TypedDict):
    """A configuration that workers do not run again."""

    id: int
    signature: str
    operator: str
    dtype: str
    capability: str
    toolkit: str
    source_hash: str
    reason: str
    message: str
    gpu: str
    count: int
    config: dict[str, Scalar]
    shape: dict[str, int]
    job: int | None
    first_seen: str
    last_seen: str
    lifted: str | None
    lifted_by: str | None


def quarantine_json(row: Quarantine) -> QuarantineJson:
    """Return the row as the API sends it."""
    return make_answer(QuarantineJson, row, config=config_in_order(row.config), shape=in_order(row.operator, row.shape),
                       job=row.job_id, lifted_by=row.lifted_by.get_username() if row.lifted_by else None)


def count_reasons(filters: Mapping[str, str] | None = None) -> list[tuple[str, int]]:
    """Return (reason, count) of those in force, most frequent first."""
    counted = Counter(quarantine_list(filters).filter(lifted=None).values_list("reason", flat=True))
    return [(REASON_WORDS.get(reason, reason), count) for reason, count in counted.most_common()]
