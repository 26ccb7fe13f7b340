"""A group of jobs as JSON: how far the order is, and what it won so far."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from tuner.jobs.selectors import ENDED
from tuner.models import TuneGroup, TuneJob
from tuner.texts import config_in_order, in_order


def speedup(jobs: list[TuneJob]) -> float | None:
    """Geometric mean of default / best over the jobs that know both; None where none does."""
    gains = [job.default_ms / job.best_ms for job in jobs if job.default_ms and job.best_ms]
    return math.exp(sum(map(math.log, gains)) / len(gains)) if gains else None


def group_json(group: TuneGroup) -> dict[str, Any]:
    jobs = sorted(group.jobs.all(), key=lambda job: (job.group_place, job.pk))
    return {
        "id": group.pk, "name": group.name, "source": group.source, "created": group.created.isoformat(),
        "owner": group.owner.get_username() if group.owner else None, "statuses": dict(Counter(job.status for job in jobs)),
        "ended": all(job.status in ENDED for job in jobs), "speedup": speedup(jobs),
        "jobs": [{"id": job.pk, "operator": job.operator, "shape": in_order(job.operator, job.shape), "dtype": job.dtype,
                  "status": job.status, "best_ms": job.best_ms, "default_ms": job.default_ms, "library_ms": job.library_ms,
                  "best_config": config_in_order(job.best_config) if job.best_config else None} for job in jobs]}
