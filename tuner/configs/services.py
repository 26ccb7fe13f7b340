"""What may be done to the cache. Entries are written by jobs that end, with their evidence."""

from __future__ import annotations

from django.utils import timezone

from tuner import cache
from tuner.bench.runner import Session
from tuner.configs.selectors import bucket
from tuner.models import CachedConfig, TuneJob
from tuner.operators import limits
from tuner.trial import Measured

SAME_SPEED = 1.01                          # an entry is not replaced by one that is no faster than this


def config_put(job: TuneJob, session: Session, winner: Measured, source_hash: str) -> CachedConfig | None:
    """Write or replace the entry of the job's key; None when the one that stands is as fast for the same shape."""
    key = {"operator": job.operator, "dtype": job.dtype, "shape_bucket": bucket(job.operator, job.shape),
           "gpu": session.gpu, "toolkit": cache.toolkit(session.environment), "source_hash": source_hash,
           "recorded": session.recorded}
    entry = CachedConfig.objects.select_for_update().filter(**key).first()
    past = list(entry.evidence.get("history", [])) if entry else []
    found = {"job": job.pk, "at": timezone.now().isoformat(), "config": job.best_config, "median_ms": winner.median_ms,
             "shape": job.shape}
    if entry and entry.evidence.get("shape") == job.shape and entry.median_ms <= winner.median_ms * SAME_SPEED:
        entry.evidence["history"] = [*past, {**found, "kept": False}][-50:]
        entry.save(update_fields=["evidence", "updated"])
        return None
    evidence = {
        "shape": job.shape, "n": winner.n, "min_ms": winner.min_ms, "p90_ms": winner.p90_ms,
        "facts": {name: value for name, value in winner.facts.items() if name != "samples_ms"},
        "trials": job.trials.count(), "valid_size": job.valid_size, "strategy": job.strategy, "policy": job.policy,
        "environment": job.environment, "ties": [f["config"] for f in job.finalists if f.get("tie")][1:],
        "history": [*past, {**found, "kept": True}][-50:],
    }
    capability = session.compute_capability or limits(session.gpu).compute_capability
    values = {"compute_capability": capability, "config": job.best_config, "job": job,
              "median_ms": winner.median_ms, "default_ms": job.default_ms, "library_ms": job.library_ms,
              "evidence": evidence, "state": "verified"}
    return CachedConfig.objects.update_or_create(**key, defaults=values)[0]
