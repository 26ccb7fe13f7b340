"""What may be done to the cache. Entries are written with their evidence: by jobs that end, by listeners, from files.

A new toolkit, driver or kernel source on a GPU turns what was measured under the older one unverified; what is measured again
under the new one turns the older entry stale. Nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from tuner import cache, operators
from tuner.bench.runner import Session
from tuner.buckets import Buckets
from tuner.configs.selectors import bucket, exact_of
from tuner.configs.state_services import (
    HISTORY,
    State,
    config_state,
    environment_seen,
    older_are_stale,
    other_source_unverified,
    state_now,
)
from tuner.guard import Guard, Verdict, guard, same_configuration
from tuner.loop import Finalist
from tuner.models import BucketPolicy, CachedConfig, ImportedFile, TuneJob
from tuner.operators import limits
from tuner.trial import Config, Measured, config_key

SAME_SPEED = 1.01                          # an entry is not replaced by one that is no faster than this
__all__ = ["config_put", "config_state", "environment_seen", "evidence_put", "policy_set", "shape_key"]


def config_put(job: TuneJob, session: Session, winner: Measured, source_hash: str, *, finalists: Sequence[Finalist] = (),
               default: Config | None = None) -> CachedConfig | None:
    """Write or replace the entry of the job's key; None when the one that stands is as fast for the same shape.

    The default configuration itself is cached when the winner is not faster than it by the whole interval of its gain.
    """
    environment, recorded = session.environment, session.recorded
    driver = str(environment.get("driver") or "")[:40]
    key = {"operator": job.operator, "dtype": job.dtype, "shape_key": shape_key(job.shape), "gpu": session.gpu,
           "toolkit": cache.toolkit(environment), "driver": driver, "policy": _policy(session.policy, recorded),
           "source_hash": source_hash, "recorded": recorded, "origin": cache.Origin.TUNE}
    if not recorded:
        environment_seen(session.gpu, key["toolkit"], driver)
    entry = CachedConfig.objects.select_for_update().filter(**key).first()
    past = list(entry.evidence.get("history", [])) if entry else []
    found = {"job": job.pk, "at": timezone.now().isoformat(), "config": job.best_config, "median_ms": winner.median_ms,
             "shape": job.shape}
    if entry and entry.median_ms is not None and entry.median_ms <= winner.median_ms * SAME_SPEED:
        entry.evidence["history"] = [*past, {**found, "kept": False}][-HISTORY:]
        entry.save(update_fields=["evidence", "updated"])
        return None
    verdict, config, median_ms = _never_worse(job, winner, finalists, default)
    evidence = {
        "shape": job.shape, "n": winner.n, "min_ms": winner.min_ms, "p90_ms": winner.p90_ms,
        "facts": {name: value for name, value in winner.facts.items() if name not in ("samples_ms", "round_ms")},
        "guard": verdict.as_json(), "trials": job.trials.count(), "valid_size": job.valid_size, "strategy": job.strategy,
        "policy": job.policy, "environment": job.environment, "ties": [f["config"] for f in job.finalists if f.get("tie")][1:],
        "history": [*past, {**found, "kept": True}][-HISTORY:],
    }
    capability = session.compute_capability or limits(session.gpu).compute_capability
    state, why = state_now(session.gpu, key["toolkit"], driver) if not recorded else (State.VERIFIED, "")
    values = {"compute_capability": capability, "config": config, "job": job, "shape": job.shape,
              "shape_bucket": bucket(job.operator, job.shape), "median_ms": median_ms, "default_ms": job.default_ms,
              "library_ms": job.library_ms, "evidence": evidence, "state": state, "state_why": why}
    written = CachedConfig.objects.update_or_create(**key, defaults=values)[0]
    if not recorded:
        older_are_stale(written, f"tune job {job.pk}")
        other_source_unverified(written)
    return written


def _never_worse(job: TuneJob, winner: Measured, finalists: Sequence[Finalist], default: Config | None) -> tuple[Guard, Any, float]:
    """(verdict, configuration to serve, its median): the default's unless the winner is faster by the whole interval."""
    best = dict(job.best_config or {})
    known = operators.find(job.operator)
    if default is None and known is not None and not known.problems(job.shape, job.dtype):
        default = known.default_config(job.shape, job.dtype, limits(job.gpu))
    if default is None:
        return guard(_times(winner), None), best, winner.median_ms
    if config_key(default) == config_key(best):
        return same_configuration(), best, winner.median_ms
    verdict = guard(_times(winner), _default_times(job, finalists, default))
    if verdict.verdict in (Verdict.EQUAL, Verdict.SLOWER) and job.default_ms is not None:
        return verdict, dict(default), job.default_ms
    return verdict, best, winner.median_ms


def _times(outcome: Measured) -> dict[str, Any]:
    return {"median_ms": outcome.median_ms, "facts": outcome.facts}


def _default_times(job: TuneJob, finalists: Sequence[Finalist], default: Config) -> dict[str, Any] | None:
    """The default as it was measured: among the finalists, else its trial, else its median only."""
    wanted = config_key(default)
    for finalist in finalists:
        if config_key(finalist.config) == wanted and isinstance(finalist.outcome, Measured):
            return _times(finalist.outcome)
    trial = job.trials.filter(outcome="measured", config_key=wanted).first()
    if trial is not None:
        return {"median_ms": trial.median_ms, "facts": trial.facts}
    return {"median_ms": job.default_ms} if job.default_ms else None


def evidence_put(*, origin: str, operator: str, dtype: str, shape: Mapping[str, int], gpu: str, config: Mapping[str, Any],
                 median_ms: float | None, compute_capability: str = "", toolkit: str = "", driver: str = "", policy: str = "",
                 source_hash: str = "", default_ms: float | None = None, evidence: Mapping[str, Any] | None = None,
                 imported: ImportedFile | None = None) -> CachedConfig:
    """An entry that no tune job proved: of a listener or a file. It is unverified, and never serves before a tune job's."""
    if cache.Origin(origin) == cache.Origin.TUNE:
        raise ValueError("a tune job writes through config_put")
    key = {"operator": operator, "dtype": dtype, "shape_key": shape_key(shape), "gpu": gpu, "toolkit": toolkit, "driver": driver,
           "policy": policy, "source_hash": source_hash, "recorded": "", "origin": origin}
    with transaction.atomic():
        entry = CachedConfig.objects.select_for_update().filter(**key).first()
        past = list(entry.evidence.get("history", [])) if entry else []
        found = {"job": None, "at": timezone.now().isoformat(), "config": dict(config), "median_ms": median_ms,
                 "shape": dict(shape), "kept": True, "origin": origin, "file": imported.name if imported else ""}
        values = {
            "shape": dict(shape), "shape_bucket": bucket(operator, shape), "config": dict(config), "median_ms": median_ms,
            "default_ms": default_ms, "compute_capability": compute_capability or limits(gpu).compute_capability,
            "evidence": {**(evidence or {}), "shape": dict(shape), "history": [*past, found][-HISTORY:]}, "state": State.UNVERIFIED,
            "state_why": _UNPROVEN[cache.Origin(origin)], "imported": imported}
        return CachedConfig.objects.update_or_create(**key, defaults=values)[0]


_UNPROVEN = {cache.Origin.LISTENER: "timed by Triton's own autotuner in a job: results unchecked, default not measured beside it",
             cache.Origin.IMPORT: "from a file: never measured here"}


def shape_key(shape: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(shape.items()))


def _policy(policy: Mapping[str, Any], recorded: str) -> str:
    """How it was timed; a recording's policy is what its file says, mostly nothing."""
    kind = policy.get("kind") or ("" if recorded else "cold")
    return str(kind)[:16]


# ---- bucket policy ----

@transaction.atomic
def policy_set(operator: str, policy: Buckets, by: Any) -> int:
    """Round this operator's shapes otherwise from now on. Entries keep their shape; number of those whose bucket changed."""
    BucketPolicy.objects.update_or_create(operator=operator, defaults={**policy.as_json(), "by": by})
    changed, exact = [], exact_of(operator)
    for row in CachedConfig.objects.select_for_update().filter(operator=operator):
        text = cache.bucket(row.shape, exact, policy) if row.shape else row.shape_bucket
        if text != row.shape_bucket:
            row.shape_bucket = text
            changed.append(row)
    CachedConfig.objects.bulk_update(changed, ["shape_bucket"], batch_size=500)
    return len(changed)
