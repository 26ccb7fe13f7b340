"""Configurations that crashed, hung or computed wrong are kept from every worker of the fleet until somebody lifts that.

A signature is the operator, data type, configuration, class of GPU (compute capability), toolkit, hash of the kernel's
source and the reason: another compiler or a changed kernel gets a new chance.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.db.models import F
from django.utils import timezone

from tuner.models import Quarantine, TuneJob
from tuner.trial import Config, Reason, Rejected, config_key

REASONS = (Reason.CRASH, Reason.TIMEOUT, Reason.WRONG)
MESSAGE_CHARACTERS = 4000


def signature(operator: str, dtype: str, config: Config, capability: str, toolkit: str, source_hash: str, reason: str) -> str:
    parts = [operator, dtype, config_key(config), capability, toolkit, source_hash, reason]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def put(job: TuneJob, outcome: Rejected, config: Config, capability: str) -> Quarantine | None:
    """Keep it from the fleet, with where it was seen; None for reasons that harm nobody. What was lifted comes into force again."""
    if outcome.reason not in REASONS:
        return None
    return put_seen({"operator": job.operator, "dtype": job.dtype, "config": dict(config), "capability": capability,
                     "toolkit": job.toolkit, "source_hash": job.source_hash, "reason": str(outcome.reason)},
                    {"message": outcome.message[:MESSAGE_CHARACTERS], "shape": job.shape, "gpu": job.gpu, "job": job})


def put_seen(facts: Mapping[str, Any], seen: Mapping[str, Any]) -> Quarantine:
    """`facts` sign it, `seen` says where it was seen last."""
    key = config_key(facts["config"])
    short = key if len(key) <= 200 else "sha256:" + hashlib.sha256(key.encode()).hexdigest()
    row, new = Quarantine.objects.get_or_create(
        signature=signature(**facts), defaults={**facts, "config_key": short, **seen})
    if not new:
        Quarantine.objects.filter(pk=row.pk).update(
            **seen, count=F("count") + 1, last_seen=timezone.now(), lifted=None, lifted_by=None)
        row.refresh_from_db()
    return row


def lift(row: Quarantine, by: Any) -> Quarantine:
    """Workers may try it again; where it fails again, it comes back."""
    Quarantine.objects.filter(pk=row.pk, lifted=None).update(lifted=timezone.now(), lifted_by=by)
    row.refresh_from_db()
    return row


def forget(job: TuneJob) -> None:
    """Of a job in which nothing ran at all: the GPU or its driver was at fault, not what was tried."""
    Quarantine.objects.filter(job=job, count=1).delete()
