"""What the worker that holds a job writes: session, trials, end.

The row is the truth; the queue only wakes a worker. What a worker writes after it lost the job is refused (`Superseded`).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.db.models import Count, Max, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from tuner.cache import rules
from tuner.cache.entries.services import config_in_force, config_put
from tuner.jobs import quarantine, selectors
from tuner.jobs.create_services import enqueue_job, publish_status
from tuner.models import TrialRow, TuneJob, TuneMember, TuneTask
from tuner.spaces.own import store_listing
from tuner.tuning.measure.runner import Session
from tuner.tuning.operators import Limits, find, limits
from tuner.tuning.search.finalists import Finalist, is_raced
from tuner.tuning.search.recorded_searches import recorded_searches
from tuner.tuning.search.strategies.prior_knowledge import PastSearch, PriorKnowledge
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Measured, Outcome, Rejected, Trial, config_key
from workers.leases import Superseded

# Prior knowledge of a search: stored trials of other jobs, shapes, GPUs and operators.

SAME_OPERATOR_JOBS = 40          # newest first; a model learns little from more
OTHER_OPERATOR_JOBS = 20
MAX_TRIALS = 10_000


def prior_knowledge(job: TuneJob, session: Session, default: Config | None) -> PriorKnowledge:
    """Return prior knowledge; nothing from this operator, shape, GPU and toolkit itself."""
    operator = find(job.operator)
    knowledge = PriorKnowledge(
        operator=job.operator, shape=job.shape, dtype=job.dtype,
        gpu=limits(session.gpu, session.compute_capability, session.environment.get("sms")),
        toolkit=rules.toolkit_text(session.environment), flops=session.flops or 0, bytes=session.bytes or 0, default=default,
        past=past_searches(job, session), fills_sm=operator.fills_sm if operator else {})
    # of a recording its own answers would be known
    return knowledge if session.recorded else replace(knowledge, past=[*knowledge.past, *recorded_searches(knowledge)])


def past_searches(job: TuneJob, session: Session) -> list[PastSearch]:
    """Return all trials of the newest jobs, those of the same operator first."""
    toolkit = rules.toolkit_text(session.environment)
    rows = TuneJob.objects.exclude(pk=job.pk).exclude(best_ms=None).order_by("-created", "-id")
    same = rows.filter(operator=job.operator)
    # A recording is of one GPU and toolkit, whatever the rows of a live job say: its answers would be known.
    here = {} if session.recorded else {"gpu": session.gpu, "toolkit": toolkit}
    same = same.exclude(shape=job.shape, dtype=job.dtype, **here)
    chosen = [*same[:SAME_OPERATOR_JOBS], *rows.exclude(operator=job.operator)[:OTHER_OPERATOR_JOBS]]
    trials = _trials_by_job([other.pk for other in chosen])
    searches, total = [], 0
    for other in chosen:
        mine = trials.get(other.pk, [])
        total += len(mine)
        if mine and total <= MAX_TRIALS:
            searches.append(_make_past(other, mine, whole=not session.recorded))
    return searches


def _make_past(job: TuneJob, trials: list[Trial], *, whole: bool) -> PastSearch:
    """Return a job as a past search; `whole` names every parameter of the live space."""
    operator = find(job.operator)
    if operator is None or operator.problems(job.shape, job.dtype):
        return PastSearch(job.operator, job.shape, job.dtype, _gpu_limits(job), job.toolkit, trials)
    if whole:
        trials = [replace(trial, config=operator.complete(trial.config)) for trial in trials]
    return PastSearch(job.operator, job.shape, job.dtype, _gpu_limits(job), job.toolkit, trials, operator.flops(job.shape),
                      operator.bytes(job.shape, job.dtype))


def _trials_by_job(job_ids: list[int]) -> dict[int, list[Trial]]:
    """Return trials per job without raw samples, which are most of the bytes."""
    trials_by_job: dict[int, list[Trial]] = defaultdict(list)
    for row in TrialRow.objects.filter(job__in=job_ids).order_by("job", "number")[:MAX_TRIALS * 2].iterator():
        row.facts.pop("samples_ms", None)
        trials_by_job[row.job_id].append(selectors.make_trial(row))
    return trials_by_job


def _gpu_limits(job: TuneJob) -> Limits:
    return limits(job.gpu, job.environment.get("compute_capability"), job.environment.get("sms"))


MAX_ATTEMPTS = 20                          # workers that may die over one job
KEY_CHARACTERS = 200
Status = TuneJob.Status


def tune_claim(job_id: int, worker: str) -> TuneJob | None:
    """Claim a job that waits or whose worker is gone; None when it is not free."""
    if not TuneJob.leases.claim(job_id, worker):
        return None
    job = TuneJob.objects.get(pk=job_id)
    if job.started is None:
        job.started = timezone.now()
        job.save(update_fields=["started"])
    if job.stop_requested:
        tune_end(job, worker, Status.STOPPED)
        return None
    if job.attempts > MAX_ATTEMPTS:
        tune_fail(job, worker, "worker", f"{MAX_ATTEMPTS} workers died over this job", "See the workers' logs.")
        return None
    publish_status(job)
    return job


def tune_set_session(job: TuneJob, worker: str, session: Session, space: Space) -> None:
    """Store what the runner reported on opening."""
    capability = {"compute_capability": session.compute_capability} if session.compute_capability else {}
    TuneJob.leases.write(
        job.pk, worker, gpu=session.gpu[:120], recorded=session.recorded[:120], environment={**session.environment, **capability},
        policy=session.policy,
        toolkit=rules.toolkit_text(session.environment)[:80], source_hash=str(session.environment.get("source_hash") or "")[:64],
        library_ms=session.library_ms, space_size=space.size, valid_size=len(space), pruned=space.pruned)
    if session.offer is not None:
        store_listing(job.operator, job.shape, job.dtype, session.gpu, session.offer)
    job.refresh_from_db()
    publish_status(job)


def trial_record(job: TuneJob, worker: str, trial: Trial, default: Config | None = None, *, gpu_uuid: str = "",
                 capability: str = "") -> TrialRow:
    """Store a trial and the running best in one transaction; its number is the job's next.

    The lead's while it holds the job, a helper's while it is a member of it; Superseded otherwise. The row that stands is
    returned where another worker was faster. Few statements: a GPU waits meanwhile.
    """
    outcome, key = trial.outcome, row_key(trial.config)
    measured = outcome if isinstance(outcome, Measured) else None
    with transaction.atomic():
        now = _lock_job(job, worker)
        rows = TrialRow.objects.filter(job=now)
        stored = rows.aggregate(last=Max("number"), there=Count("pk", filter=Q(config_key=key)))
        if stored["there"]:
            return rows.get(config_key=key)
        changed = _job_changes(now, trial, default)
        TuneJob.objects.filter(pk=now.pk).update(**changed)
        row = TrialRow.objects.create(
            job_id=now.pk, number=0 if stored["last"] is None else stored["last"] + 1, config=dict(trial.config), config_key=key,
            worker=worker, gpu_uuid=gpu_uuid, outcome="measured" if measured else "rejected",
            reason=str(outcome.reason) if isinstance(outcome, Rejected) else "",
            message=outcome.message if isinstance(outcome, Rejected) else "",
            median_ms=measured.median_ms if measured else None, min_ms=measured.min_ms if measured else None,
            p90_ms=measured.p90_ms if measured else None, n=measured.n if measured else None,
            facts=_kept_facts(outcome), at_s=trial.at_s)
        if now.worker != worker:
            TuneTask.objects.filter(job=now, config_key=key).delete()
        if isinstance(outcome, Rejected) and gpu_uuid:
            quarantine.quarantine_config(job, outcome, trial.config, capability)
    for name, value in changed.items():
        setattr(job, name, value)
    return row


def _kept_facts(outcome: Outcome) -> dict[str, Any]:
    """Return the facts with the interval of the median, which pages read without the samples."""
    interval_ms = selectors.median_interval_ms(outcome.facts) if isinstance(outcome, Measured) else None
    return {**outcome.facts, **({"interval_ms": interval_ms} if interval_ms else {})}


def _lock_job(job: TuneJob, worker: str) -> TuneJob:
    """Return the job's row locked. Raises Superseded where the worker has no part in it."""
    rows = TuneJob.objects.select_for_update().filter(pk=job.pk, status=Status.RUNNING)
    now = rows.only("worker", "best_ms", "elapsed_s").first()
    if now is None:
        raise Superseded
    helps = TuneMember.objects.filter(job=now, worker=worker, role=TuneMember.Role.HELPER, left=None)
    if now.worker != worker and not helps.exists():
        raise Superseded
    return now


def _job_changes(job: TuneJob, trial: Trial, default: Config | None) -> dict[str, Any]:
    changed: dict[str, Any] = {"elapsed_s": max(job.elapsed_s, trial.at_s)}
    if trial.median_ms is None or is_raced(trial):
        return changed
    if job.best_ms is None or trial.median_ms < job.best_ms:
        changed |= {"best_ms": trial.median_ms, "best_config": dict(trial.config)}
    if default is not None and config_key(default) == config_key(trial.config):
        changed["default_ms"] = trial.median_ms
    return changed


def row_key(config: Config) -> str:
    """Return a unique text of a configuration that fits the column."""
    key = config_key(config)
    return key if len(key) <= KEY_CHARACTERS else "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def tune_set_counters(job: TuneJob, worker: str, counters: Mapping[str, Any]) -> None:
    """Store the runner's counters over all attempts."""
    TuneJob.leases.write(job.pk, worker, counters=dict(counters))
    job.counters = dict(counters)


def tune_finish(job: TuneJob, worker: str, finalists: Sequence[Finalist], session: Session, *,
                default: Config | None = None, source_hash: str = "", ended_by: str = "") -> TuneJob:
    """End the job with its finalists and cache the winner, in one transaction."""
    winner = finalists[0] if finalists else None
    if winner is None or not isinstance(winner.outcome, Measured):
        told = "; ".join(f"{row['count']} × {row['reason']}" for row in selectors.failures_by_reason(job)) or "nothing was tried"
        return tune_fail(job, worker, "search", f"no configuration could be measured ({told})",
                         "The trials below have the messages; try another shape or dtype.")
    default_key = config_key(default) if default is not None else None
    in_force = config_in_force(job, session, source_hash)
    in_force_key = config_key(in_force) if in_force is not None else None
    fields: dict[str, Any] = {
        "best_ms": winner.outcome.median_ms, "best_config": dict(winner.config), "ended_by": ended_by,
        "finalists": [{**finalist.as_json(), "default": config_key(finalist.config) == default_key,
                       **({"in_force": True} if config_key(finalist.config) == in_force_key else {})} for finalist in finalists]}
    again = next((f.median_ms for f in finalists if config_key(f.config) == default_key), None)
    if again is not None:
        fields["default_ms"] = again
    library_ms = winner.outcome.facts.get("library_ms")      # of the same rounds
    if isinstance(library_ms, int | float):
        fields["library_ms"] = float(library_ms)
    with transaction.atomic():
        tune_end(job, worker, Status.DONE, **fields)
        config_put(job, session, winner.outcome, source_hash, finalists=finalists, default=default)
        _requeue_if_extended(job)
    return job


def _requeue_if_extended(job: TuneJob) -> None:
    """Queue the job again where it was extended while its finalists were measured."""
    more = Q(budget_trials__gt=job.budget_trials) | Q(budget_seconds__gt=job.budget_seconds)
    goal: dict[str, Any] = {"ceiling_pct": None} if job.ended_by == "ceiling" else {}       # reached: it would end at once
    if TuneJob.objects.filter(more, pk=job.pk, status=Status.DONE).update(
            **goal, status=Status.QUEUED, finished=None, ended_by="", attempts=0):
        enqueue_job(job)
        job.refresh_from_db()


def tune_end(job: TuneJob, worker: str, status: str, /, **fields: Any) -> None:
    """End or rest a running job. Raises Superseded when the worker no longer holds it."""
    fields = {**TuneJob.leases.ended(), **fields, "status": status, "stop_requested": False, "pause_requested": False}
    with transaction.atomic():
        if not TuneJob.leases.write(job.pk, worker, **fields):
            raise Superseded
        TuneTask.objects.filter(job=job).delete()
        TuneMember.objects.filter(job=job, left=None).update(left=timezone.now(), heartbeat=None, trials=stored_trials_of_member())
    for name, value in fields.items():
        setattr(job, name, value)
    transaction.on_commit(lambda: publish_status(job), robust=True)


def stored_trials_of_member() -> Coalesce:
    """Return an expression: trials that the updated members stored."""
    rows = TrialRow.objects.filter(job=OuterRef("job"), worker=OuterRef("worker")).order_by().values("job")
    return Coalesce(Subquery(rows.annotate(count=Count("pk")).values("count")), 0)


def tune_release(job: TuneJob, worker: str) -> None:
    """Stop or pause the job as its row asks."""
    job.refresh_from_db(fields=["stop_requested", "pause_requested"])
    if job.pause_requested and not job.stop_requested:
        # A pause is nobody's fault: the attempt does not count.
        tune_end(job, worker, Status.PAUSED, finished=None, worker="", attempts=max(0, job.attempts - 1))
    else:
        tune_end(job, worker, Status.STOPPED, ended_by="stopped")


def tune_fail(job: TuneJob, worker: str, where: str, what: str, hint: str) -> TuneJob:
    """End the job as failed, with where, what and a hint."""
    tune_end(job, worker, Status.FAILED, error={"where": where, "what": what[:2000], "hint": hint})
    if not job.trials.filter(outcome="measured").exists():
        quarantine.quarantine_forget_job(job)        # nothing ran on this GPU: its failures say nothing about configurations
    return job
