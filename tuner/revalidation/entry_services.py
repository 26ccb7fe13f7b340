"""Write what a re-validation found into the cache: the entry of its environment, with its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from django.utils import timezone

from tuner.cache import rules
from tuner.cache.default_check import DefaultCheck, Verdict
from tuner.cache.entries.selectors import bucket
from tuner.cache.entries.services import (
    HISTORY,
    State,
    initial_state,
    mark_older_stale,
    mark_other_sources_unverified,
    shape_key,
    state_set,
)
from tuner.gate.stats.results import KernelVerdict
from tuner.gate.stats.winner import Choice
from tuner.jobs import quarantine
from tuner.models import CachedConfig, KernelRun, SuiteJob
from tuner.revalidation.selectors import DEFAULT, SERVED
from tuner.tuning.measure.policy import flush_text
from tuner.tuning.operators import limits
from tuner.tuning.trial import Reason, config_key

FACTS = ("registers", "spills", "smem_bytes", "relative_error")
_FATAL = {"run: the process": Reason.CRASH, "run: ": Reason.TIMEOUT, f"{Reason.CRASH}: ": Reason.CRASH,
          f"{Reason.WRONG}: ": Reason.WRONG, f"{Reason.TIMEOUT}: ": Reason.TIMEOUT}         # how a rejected run begins


def settle_entry(job: SuiteJob, choice: Choice, rows: Sequence[KernelRun]) -> tuple[CachedConfig | None, str]:
    """Return (the entry that serves now, a sentence). None: the cache stays as it is, and the sentence says why."""
    asked = CachedConfig.objects.filter(pk=job.about["entries"][choice.key])
    old = asked.select_for_update(of=("self",)).select_related("job").first()
    if old is None:
        return None, "its entry was deleted while it was measured"
    if old.state == State.QUARANTINED:
        return None, "somebody took the entry out of service while it was measured"
    name = choice.serves or DEFAULT
    serving = [row for row in rows if row.build.name == name and not row.rejected]
    key = _key(old, serving[-1], job.environment.get("policy") or {})
    there = CachedConfig.objects.select_for_update().filter(**key).first()
    if (there is not None and there.pk != old.pk and there.updated > job.created
            and config_key(there.config) not in _measured_keys(rows)):
        return None, "a tune job found another winner for this environment meanwhile, which was not measured here: it stays"
    values = _values(job, choice, old, rows, serving, name, there or old)
    written = CachedConfig.objects.update_or_create(**key, defaults=values)[0]
    if not written.recorded:
        by = f"re-validation {job.pk}"
        mark_older_stale(written, by)
        mark_other_sources_unverified(written)
        if old.pk != written.pk and old.origin != written.origin:
            state_set(old, State.STALE, f"measured here by {by}")
    return written, choice.says


def _key(old: CachedConfig, run: KernelRun, policy: Mapping[str, Any]) -> dict[str, Any]:
    return {"operator": old.operator, "dtype": old.dtype, "shape_key": old.shape_key or shape_key(old.shape), "gpu": run.gpu,
            "toolkit": run.toolkit, "driver": run.driver, "policy": old.policy or "cold",
            "flush": flush_text(policy) or old.flush, "source_hash": run.source_hash,
            "recorded": run.recorded, "origin": rules.Origin.TUNE}


def _measured_keys(rows: Sequence[KernelRun]) -> set[str]:
    return {config_key(row.config) for row in rows if row.config}


def _values(job: SuiteJob, choice: Choice, old: CachedConfig, rows: Sequence[KernelRun], serving: Sequence[KernelRun], name: str,
            before: CachedConfig) -> dict[str, Any]:
    config, ms = serving[-1].config, _middle_us(serving) / 1000
    default = [row for row in rows if row.build.name == DEFAULT and not row.rejected]
    run = serving[-1]
    samples = np.concatenate([np.asarray(row.us) for row in serving]) / 1000
    capability = str(job.environment.get("compute_capability") or "") or limits(run.gpu).compute_capability
    state, why = (State.VERIFIED, "") if run.recorded else initial_state(run.gpu, run.toolkit, run.driver)
    event = {"suite_job": job.pk, "at": timezone.now().isoformat(), "config": config, "median_ms": ms, "shape": old.shape,
             "kept": True, "says": choice.says}
    evidence = {
        **{field: old.evidence[field] for field in ("trials", "valid_size", "strategy") if field in old.evidence},
        "shape": old.shape, "n": len(samples), "min_ms": float(samples.min()), "p90_ms": float(np.percentile(samples, 90)),
        "facts": {fact: run.facts[fact] for fact in FACTS if fact in run.facts}, "guard": _guard(choice, name).as_json(),
        "policy": job.environment.get("policy") or job.suite.policy, "environment": job.environment,
        "ties": _other_winners(choice, rows, name),
        "revalidation": {"job": job.pk, "runs": len(serving), "says": choice.says, "why": why, "entry": old.pk,
                         "was": old.config},
        "history": [*before.evidence.get("history", []), event][-HISTORY:]}
    return {"compute_capability": capability, "config": config, "job": old.job, "shape": old.shape,
            "shape_bucket": bucket(old.operator, old.shape), "median_ms": ms, "default_ms": _middle_us(default) / 1000,
            "library_ms": None, "evidence": evidence, "state": state, "state_why": why, "imported": None}


def _middle_us(rows: Sequence[KernelRun]) -> float:
    """Median of run medians."""
    return float(np.median([row.p50_us for row in rows if row.p50_us is not None]))


def _guard(choice: Choice, name: str) -> DefaultCheck:
    """default time / configuration's time with its interval: of what serves, or of what served so far where the default does."""
    whose = name if name != DEFAULT else SERVED
    verdict: KernelVerdict | None = choice.against_default.get(whose)
    if verdict is None or verdict.p50 is None:
        return DefaultCheck(Verdict.EQUAL, 1.0, 1.0, 1.0, choice.says)
    found = verdict.p50
    how = (f"{whose}: {verdict.candidate_runs} against {verdict.baseline_runs} fresh processes, in turn; exact rank test"
           + (f", interval of {100 * found.confidence:.3g} %" if found.confidence else ""))
    called = Verdict.FASTER if name != DEFAULT else Verdict.SLOWER if found.low > 1 else Verdict.EQUAL
    return DefaultCheck(called, 1 / found.ratio, 1 / found.high, 1 / found.low, how)


def _other_winners(choice: Choice, rows: Sequence[KernelRun], name: str) -> list[Any]:
    """Configurations that were surely faster than the default too, the fastest first: rivals when it is measured again."""
    sure = [(each.candidate_us or 0.0, side) for side, each in choice.against_default.items()
            if side != name and each.change == "faster"]
    configs = {row.build.name: row.config for row in rows if not row.rejected}
    return [configs[side] for _, side in sorted(sure) if configs.get(side)]


def harm(rejected: str) -> Reason | None:
    """Return what a rejected run says of its configuration; None where GPU, host or recording may be at fault."""
    return next((reason for begins, reason in _FATAL.items() if rejected.startswith(begins)), None)


def quarantine_refused(rows: Sequence[KernelRun], environment: Mapping[str, Any]) -> int:
    """What crashed, hung or computed wrong is kept from the fleet, as a tune job's would be. Where the default itself has no good
    run the GPU is at fault, and nothing is. Number of configurations that are in quarantine now."""
    if not any(row.build.name == DEFAULT and not row.rejected for row in rows):
        return 0
    kept = {}
    for row in rows:
        reason = harm(row.rejected)
        if reason is None or row.build.name == DEFAULT or not row.config:
            continue
        good = next((one for one in rows if not one.rejected), row)
        facts = {"operator": row.kernel.op, "dtype": row.kernel.dtype, "config": row.config, "toolkit": row.toolkit or good.toolkit,
                 "capability": str(environment.get("compute_capability") or ""),
                 "source_hash": row.source_hash or good.source_hash, "reason": str(reason)}
        kept[config_key(row.config)] = quarantine.quarantine_put(
            facts, {"message": row.rejected, "shape": row.kernel.shape, "gpu": row.gpu or good.gpu, "job": None})
    return len(kept)
