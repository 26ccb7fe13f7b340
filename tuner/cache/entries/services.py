"""Write the cache: entries with their evidence (of jobs that end, listeners, files), their states, and bucket policies.

A new toolkit, driver or kernel source on a GPU turns what was measured under the older one unverified; what is measured again
under the new one turns the older entry stale. Nothing is deleted: every change of state stands in the entry's history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from tuner.cache import buckets, rules
from tuner.cache.buckets import Buckets
from tuner.cache.default_check import DefaultCheck, Verdict, check_default, check_library, winner_is_default
from tuner.cache.entries.bans import capability_of, read_bans
from tuner.cache.entries.selectors import as_entry, bucket, exact_dims
from tuner.cache.entries.signals import environment_added
from tuner.clocks.wish import locked_text
from tuner.models import BucketPolicy, CachedConfig, GpuEnvironment, ImportedFile, TuneJob
from tuner.tuning import operators
from tuner.tuning.measure.policy import flush_text
from tuner.tuning.measure.runner import Session
from tuner.tuning.operators import limits
from tuner.tuning.search.finalists import Finalist
from tuner.tuning.trial import Config, Measured, config_key

HISTORY = 50                               # events kept of one entry
State = rules.State


@transaction.atomic             # once the environment is known, nobody looks for what it makes doubtful again
def record_environment(gpu: str, toolkit: str, driver: str = "") -> bool:
    """Keep that a job ran with this toolkit and driver on this GPU model; True when it is new.

    Older entries of the GPU model are unverified from then on.
    """
    gpu, toolkit, driver = gpu[:120], toolkit[:80], driver[:40]
    if not gpu or toolkit in ("", "unknown"):
        return False
    environment, new = GpuEnvironment.objects.get_or_create(gpu=gpu, toolkit=toolkit, driver=driver)
    if not new:
        environment.save(update_fields=["last_seen"])
        return False
    for row in CachedConfig.objects.filter(gpu=gpu, recorded="", state=State.VERIFIED):
        why = why_older(row.toolkit, row.driver, toolkit, driver)
        if why:
            state_set(row, State.UNVERIFIED, why)
    return True


def why_older(toolkit: str, driver: str, now_toolkit: str, now_driver: str) -> str:
    """Return why something measured under (toolkit, driver) is older than what runs now; "" when it is not."""
    if rules.is_newer(now_toolkit, toolkit):
        return f"measured under {toolkit}; {now_toolkit} was seen since"
    if driver and now_driver and rules.is_newer(now_driver, driver):
        return f"measured under driver {driver}; driver {now_driver} was seen since"
    return ""


def initial_state(gpu: str, toolkit: str, driver: str) -> tuple[State, str]:
    """Return the state of an entry being written, and why: verified, unless its GPU was seen with something newer."""
    for environment in GpuEnvironment.objects.filter(gpu=gpu):
        why = why_older(toolkit, driver, environment.toolkit, environment.driver)
        if why:
            return State.UNVERIFIED, why
    return State.VERIFIED, ""


def mark_older_stale(entry: CachedConfig, by: str) -> None:
    """Mark entries of the same shape stale that were measured under something older. `by`: "tune job 7"."""
    same = CachedConfig.objects.filter(operator=entry.operator, dtype=entry.dtype, shape_key=entry.shape_key, gpu=entry.gpu,
                                       policy=entry.policy, recorded="", origin=entry.origin).exclude(pk=entry.pk)
    for row in same.exclude(state=State.STALE):
        older = why_older(row.toolkit, row.driver, entry.toolkit, entry.driver)
        # the latter: another kernel source, or L2 flushed otherwise
        if older or (row.toolkit, row.driver) == (entry.toolkit, entry.driver):
            again = "the same configuration" if row.config == entry.config else "another configuration"
            state_set(row, State.STALE, f"measured again by {by} under {entry.toolkit}: {again} serves there")


def mark_other_sources_unverified(entry: CachedConfig) -> None:
    """Mark entries unverified whose kernel had another source: what was measured with it may not hold."""
    if not entry.source_hash:
        return
    rows = CachedConfig.objects.filter(operator=entry.operator, recorded="", origin=entry.origin, state=State.VERIFIED)
    for row in rows.exclude(source_hash__in=[entry.source_hash, ""]):
        state_set(row, State.UNVERIFIED, f"the kernel's source changed: {row.source_hash[:12]} then, {entry.source_hash[:12]} now")


def state_set(row: CachedConfig, state: State, why: str) -> None:
    """Change a state and keep the change in the entry's history."""
    event = {"at": timezone.now().isoformat(), "state": str(state), "why": why[:300]}
    row.evidence["history"] = [*row.evidence.get("history", []), event][-HISTORY:]
    row.state, row.state_why = state, why[:300]
    row.save(update_fields=["evidence", "state", "state_why", "updated"])


def config_set_state(row: CachedConfig, state: str, by: Any, why: str = "") -> CachedConfig:
    """Set a state that a person chose: an entry must not serve, or may again."""
    reason = f"by {by.get_username() if by else 'nobody known'}" + (f": {why}" if why else "")
    state_set(row, rules.State(state), reason)
    return row


SAME_SPEED = 1.01                          # an entry is not replaced by one that is no faster than this


def notice_environment(gpu: str, toolkit: str, driver: str = "") -> bool:
    """Keep an environment that a worker saw; True when it is new: then `environment_added` is sent on commit."""
    new = record_environment(gpu, toolkit, driver)
    if new:
        transaction.on_commit(lambda: environment_added.send(sender=None), robust=True)
    return new


def config_put(job: TuneJob, session: Session, winner: Measured, source_hash: str, *, finalists: Sequence[Finalist] = (),
               default: Config | None = None) -> CachedConfig | None:
    """Write or replace the entry of the job's key; None when the one that stands is as fast for the same shape.

    Where the entry that stands was measured among the finalists, that decides, and not its stored time: one of a luckier day would
    block every winner. Times under locked clocks and under others cannot be compared: the newer entry stands then.

    The default configuration itself is cached when the winner is not faster than it by the whole interval of its gain.
    """
    environment, recorded = session.environment, session.recorded
    key = _entry_key(job, session, source_hash)
    driver = key["driver"]
    if not recorded:
        record_environment(session.gpu, key["toolkit"], driver)
    entry = CachedConfig.objects.select_for_update().filter(**key).first()
    history = list(entry.evidence.get("history", [])) if entry else []
    finding = {"job": job.pk, "at": timezone.now().isoformat(), "config": job.best_config, "median_ms": winner.median_ms,
               "shape": job.shape}
    here = None if recorded else _measured_here(entry, finalists)          # a recording says the same every time
    if entry and _stands(entry, winner, environment, here):
        beside = {"in_force_ms": here.median_ms} if here is not None and here.median_ms is not None else {}
        entry.evidence["history"] = [*history, {**finding, **beside, "kept": False}][-HISTORY:]
        entry.save(update_fields=["evidence", "updated"])
        return None
    check, config, median_ms = _choose_never_worse(job, winner, finalists, default)
    library = check_library(_times(winner), job.library_ms)
    evidence = {
        **({"library": library.as_json()} if library else {}),
        "shape": job.shape, "n": winner.n, "min_ms": winner.min_ms, "p90_ms": winner.p90_ms,
        "facts": {name: value for name, value in winner.facts.items() if name not in ("samples_ms", "round_ms")},
        **({"space": job.space} if job.space else {}),
        "guard": check.as_json(), "trials": job.trials.count(), "valid_size": job.valid_size, "strategy": job.strategy,
        "policy": job.policy, "environment": job.environment, "ties": [f["config"] for f in job.finalists if f.get("tie")][1:],
        "history": [*history, {**finding, "kept": True}][-HISTORY:],
    }
    capability = session.compute_capability or capability_of(session.gpu)
    state, why = initial_state(session.gpu, key["toolkit"], driver) if not recorded else (State.VERIFIED, "")
    if entry and entry.state == State.QUARANTINED and config_key(entry.config) == config_key(config):
        state, why = State.QUARANTINED, entry.state_why                    # the same again is no reason to let it serve
    values = {"compute_capability": capability, "config": config, "job": job, "shape": job.shape,
              "shape_bucket": bucket(job.operator, job.shape), "median_ms": median_ms, "default_ms": job.default_ms,
              "library_ms": job.library_ms, "evidence": evidence, "state": state, "state_why": why}
    written = CachedConfig.objects.update_or_create(**key, defaults=values)[0]
    if not recorded:
        mark_older_stale(written, f"tune job {job.pk}")
        mark_other_sources_unverified(written)
    return written


def _entry_key(job: TuneJob, session: Session, source_hash: str) -> dict[str, Any]:
    """Return the fields that tell one entry of a tune job from another."""
    return {"operator": job.operator, "dtype": job.dtype, "shape_key": shape_key(job.shape), "gpu": session.gpu,
            "toolkit": rules.toolkit_text(session.environment), "driver": str(session.environment.get("driver") or "")[:40],
            "policy": _policy(session.policy, session.recorded), "flush": flush_text(session.policy), "source_hash": source_hash,
            "recorded": session.recorded, "origin": rules.Origin.TUNE}


def config_in_force(job: TuneJob, session: Session, source_hash: str) -> Config | None:
    """Return what the entry of the job's key holds, for the job to measure in its own session; None without one.

    Where L2 was flushed otherwise for the only such entry, that: its time is not comparable, its configuration is worth measuring.
    A recording says the same every time, and what is in quarantine is not run.
    """
    if session.recorded:
        return None
    key = _entry_key(job, session, source_hash)
    flush = key.pop("flush")
    entries = sorted(CachedConfig.objects.filter(**key), key=lambda each: (each.flush != flush, -each.updated.timestamp()))
    entry = entries[0] if entries else None
    return dict(entry.config) if entry and as_entry(entry, read_bans()).state != State.QUARANTINED else None


def _measured_here(entry: CachedConfig | None, finalists: Sequence[Finalist]) -> Finalist | None:
    """Return the entry's configuration as it was measured in turn with the others; None where it was not."""
    if entry is None:
        return None
    key = config_key(entry.config)
    return next((finalist for finalist in finalists if config_key(finalist.config) == key
                 and (finalist.slower_by is not None or not isinstance(finalist.outcome, Measured))), None)


def _stands(entry: CachedConfig, winner: Measured, environment: Mapping[str, Any], here: Finalist | None) -> bool:
    """Return whether the entry is kept: it was not told apart from the fastest here, else by its stored time."""
    if as_entry(entry, read_bans()).state == State.QUARANTINED:
        return False
    if here is not None and isinstance(here.outcome, Measured) and here.outcome is not winner:
        return here.tie
    if here is not None:                   # the winner itself, whose time is now the one that was measured last; or it failed
        return False
    same_clocks = _locked(entry.evidence.get("environment")) == _locked(environment)
    return bool(same_clocks and entry.median_ms is not None and entry.median_ms <= winner.median_ms * SAME_SPEED)


def _locked(environment: Mapping[str, Any] | None) -> str:
    return locked_text((environment or {}).get("clock_lock"))


def _choose_never_worse(job: TuneJob, winner: Measured, finalists: Sequence[Finalist],
                        default: Config | None) -> tuple[DefaultCheck, Any, float]:
    """Return (check, configuration to serve, its median in ms).

    It is the default's unless the winner is faster by the whole interval, or the default was not measured.
    """
    best = dict(job.best_config or {})
    definition = operators.find(job.operator)
    if default is None and definition is not None and not definition.problems(job.shape, job.dtype):
        default = definition.default_config(job.shape, job.dtype, limits(job.gpu))
    if default is None:
        return check_default(_times(winner), None), best, winner.median_ms
    if config_key(default) == config_key(best):
        return winner_is_default(), best, winner.median_ms
    check = check_default(_times(winner), _default_times(job, finalists, default))
    if check.verdict in (Verdict.EQUAL, Verdict.SLOWER) and job.default_ms is not None:
        return check, dict(default), job.default_ms
    return check, best, winner.median_ms


def _times(outcome: Measured) -> dict[str, Any]:
    return {"median_ms": outcome.median_ms, "facts": outcome.facts}


def _default_times(job: TuneJob, finalists: Sequence[Finalist], default: Config) -> dict[str, Any] | None:
    """Return the default as it was measured: among the finalists, else its trial, else its median only."""
    key = config_key(default)
    for finalist in finalists:
        if config_key(finalist.config) == key and isinstance(finalist.outcome, Measured):
            return _times(finalist.outcome)
    trial = job.trials.filter(outcome="measured", config_key=key).first()
    if trial is not None:
        return {"median_ms": trial.median_ms, "facts": trial.facts}
    return {"median_ms": job.default_ms} if job.default_ms else None


def evidence_put(*, origin: str, operator: str, dtype: str, shape: Mapping[str, int], gpu: str, config: Mapping[str, Any],
                 median_ms: float | None, compute_capability: str = "", toolkit: str = "", driver: str = "", policy: str = "",
                 source_hash: str = "", default_ms: float | None = None, evidence: Mapping[str, Any] | None = None,
                 imported: ImportedFile | None = None) -> CachedConfig:
    """Write an entry that no tune job proved: unverified, never served before a tune job's; one in quarantine stays there.

    ValueError where `origin` is a tune job: that writes through `config_put`.
    """
    if rules.Origin(origin) == rules.Origin.TUNE:
        raise ValueError("a tune job writes through config_put")
    key: dict[str, Any] = {
        "operator": operator, "dtype": dtype, "shape_key": shape_key(shape), "gpu": gpu, "toolkit": toolkit, "driver": driver,
        "policy": policy, "source_hash": source_hash, "recorded": "", "origin": origin}
    with transaction.atomic():
        entry = CachedConfig.objects.select_for_update().filter(**key).first()
        history = list(entry.evidence.get("history", [])) if entry else []
        finding = {"job": None, "at": timezone.now().isoformat(), "config": dict(config), "median_ms": median_ms,
                   "shape": dict(shape), "kept": True, "origin": origin, "file": imported.name if imported else ""}
        values = {
            "shape": dict(shape), "shape_bucket": bucket(operator, shape), "config": dict(config), "median_ms": median_ms,
            "default_ms": default_ms, "compute_capability": compute_capability or capability_of(gpu),
            "evidence": {**(evidence or {}), "shape": dict(shape), "history": [*history, finding][-HISTORY:]},
            "state": State.UNVERIFIED, "state_why": _UNPROVEN[rules.Origin(origin)], "imported": imported}
        if entry and entry.state == State.QUARANTINED and config_key(entry.config) == config_key(config):
            values |= {"state": entry.state, "state_why": entry.state_why}        # the same again is no reason to let it serve
        return CachedConfig.objects.update_or_create(**key, defaults=values)[0]


_UNPROVEN = {rules.Origin.LISTENER: "timed by Triton's own autotuner in a job: results unchecked, default not measured beside it",
             rules.Origin.IMPORT: "from a file: never measured here"}


def shape_key(shape: Mapping[str, int]) -> str:
    """Return a unique text of a shape."""
    return " ".join(f"{name}={value}" for name, value in sorted(shape.items()))


def _policy(policy: Mapping[str, Any], recorded: str) -> str:
    """Return how it was timed; a recording's policy is what its file says, mostly nothing."""
    kind = policy.get("kind") or ("" if recorded else "cold")
    return str(kind)[:16]


# ---- bucket policy ----

@transaction.atomic
def policy_set(operator: str, policy: Buckets, by: Any) -> int:
    """Round this operator's shapes otherwise from now on; returns the number of entries whose bucket changed."""
    BucketPolicy.objects.update_or_create(operator=operator, defaults={**policy.as_json(), "by": by})
    changed, exact = [], exact_dims(operator)
    for row in CachedConfig.objects.select_for_update().filter(operator=operator):
        text = buckets.bucket(row.shape, exact, policy) if row.shape else row.shape_bucket
        if text != row.shape_bucket:
            row.shape_bucket = text
            changed.append(row)
    CachedConfig.objects.bulk_update(changed, ["shape_bucket"], batch_size=500)
    return len(changed)
