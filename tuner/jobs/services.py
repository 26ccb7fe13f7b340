"""What may be done to a tune job: create, claim, record, finish, stop, fail.

The row is the truth; the queue only wakes a worker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from tuner.bench.landscape import LandscapeError
from tuner.bench.runner import Session
from tuner.configs.services import config_put
from tuner.jobs import devices, selectors
from tuner.loop import Finalist
from tuner.models import TrialRow, TuneJob
from tuner.operators import OPERATORS
from tuner.space import Space
from tuner.strategies import STRATEGIES
from tuner.trial import Config, Measured, Rejected, Trial, config_key
from workers import jobs

MAX_TRIALS = 100_000
MAX_SECONDS = 7 * 24 * 3600
MAX_ATTEMPTS = 20                          # workers that may die over one job
KEY_CHARACTERS = 200
Status = TuneJob.Status


class TuneError(Exception):
    """A job that cannot be made: field -> what is wrong and what would be valid."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {problem}" for name, problem in fields.items()))
        self.fields = dict(fields)


class Superseded(Exception):
    """Another worker holds the job, or it was ended: what this one still has is not written."""


def tune_create(*, owner: Any, operator: str, shape: Mapping[str, int], dtype: str, device: str, strategy: str,
                budget_trials: int, budget_seconds: float, seed: int = 0) -> TuneJob:
    """Check everything, store the job as queued and wake a worker on commit. TuneError names each wrong field."""
    problems = {
        **_device_problems(operator, shape, dtype, device),
        **_budget_problems(budget_trials, budget_seconds, seed),
        **({} if strategy in STRATEGIES else {"strategy": f"choose one of {', '.join(STRATEGIES)}"}),
    }
    if problems:
        raise TuneError(problems)
    with transaction.atomic():
        job = TuneJob.objects.create(
            owner=owner, operator=operator, shape=dict(shape), dtype=dtype, device=device, strategy=strategy, seed=seed,
            budget_trials=budget_trials, budget_seconds=budget_seconds)
        transaction.on_commit(lambda: jobs.enqueue(queue_of(job), "tune", job.pk))
    _publish(job)
    return job


def queue_of(job: TuneJob) -> str:
    return "gpu" if job.device == devices.GPU else "replay"


def _device_problems(operator: str, shape: Mapping[str, int], dtype: str, device: str) -> dict[str, str]:
    if device == devices.GPU:
        if operator not in OPERATORS:
            return {"operator": f"choose one of {', '.join(OPERATORS)}"}
        return OPERATORS[operator].problems(shape, dtype)
    if not device.startswith(devices.REPLAY):
        return {"device": 'choose "gpu" or a recorded landscape ("replay:matmul")'}
    try:
        landscape = devices.landscape(device.removeprefix(devices.REPLAY))
    except LandscapeError as error:
        return {"device": str(error)}
    if landscape.operator != operator:
        return {"device": f"this landscape recorded {landscape.operator}, not {operator}"}
    problems = {}
    if landscape.index_of(shape) is None:
        recorded = "; ".join(" ".join(f"{k}={v}" for k, v in one.shape.items()) for one in landscape.shapes)
        problems["shape"] = f"not recorded; this landscape holds: {recorded}"
    if dtype != devices.landscape_dtype(landscape):
        problems["dtype"] = f"recorded with {devices.landscape_dtype(landscape)} only"
    return problems


def _budget_problems(trials: int, seconds: float, seed: int) -> dict[str, str]:
    problems = {}
    if not 1 <= trials <= MAX_TRIALS:
        problems["budget_trials"] = f"must be between 1 and {MAX_TRIALS:,}"
    if not 1 <= seconds <= MAX_SECONDS:
        problems["budget_seconds"] = f"must be between 1 and {MAX_SECONDS:,} (7 days)"
    if not 0 <= seed < 2**63:
        problems["seed"] = "must be 0 or a positive whole number"
    return problems


def tune_claim(job_id: int, worker: str) -> TuneJob | None:
    """Take a job that waits, or whose worker is gone. None when somebody else has it or it has ended."""
    now = timezone.now()
    lost = Q(status=Status.RUNNING) & (Q(heartbeat=None) | Q(heartbeat__lt=now - jobs.STALE_AFTER))
    free = TuneJob.objects.filter(Q(status=Status.QUEUED) | lost, pk=job_id)
    if not free.update(status=Status.RUNNING, worker=worker, heartbeat=now, attempts=F("attempts") + 1):
        return None
    job = TuneJob.objects.get(pk=job_id)
    if job.started is None:
        job.started = now
        job.save(update_fields=["started"])
    if job.stop_requested:
        tune_end(job, worker, Status.STOPPED)
        return None
    if job.attempts > MAX_ATTEMPTS:
        tune_fail(job, worker, "worker", f"{MAX_ATTEMPTS} workers died over this job", "See the workers' logs.")
        return None
    _publish(job)
    return job


def tune_session(job: TuneJob, worker: str, session: Session, space: Space) -> None:
    """What the runner found when it opened: kept with the job, because its numbers mean nothing without it."""
    _held(job, worker).update(
        gpu=session.gpu[:120], recorded=session.recorded[:120], environment=session.environment, policy=session.policy,
        library_ms=session.library_ms, space_size=space.size, valid_size=len(space), pruned=space.pruned)
    job.refresh_from_db()
    _publish(job)


def trial_record(job: TuneJob, worker: str, trial: Trial, default: Config | None = None) -> TrialRow:
    """Store one trial and the job's running best in one transaction, then tell the pages. Superseded when not ours."""
    measured = trial.outcome if isinstance(trial.outcome, Measured) else None
    rejected = trial.outcome if isinstance(trial.outcome, Rejected) else None
    changed: dict[str, Any] = {"elapsed_s": trial.at_s}
    if measured and (job.best_ms is None or measured.median_ms < job.best_ms):
        changed |= {"best_ms": measured.median_ms, "best_config": dict(trial.config)}
    if measured and default is not None and config_key(default) == config_key(trial.config):
        changed["default_ms"] = measured.median_ms
    with transaction.atomic():
        if not _held(job, worker).update(**changed):
            raise Superseded
        row = TrialRow.objects.create(
            job=job, number=trial.number, config=dict(trial.config), config_key=row_key(trial.config),
            outcome="measured" if measured else "rejected",
            reason=str(rejected.reason) if rejected else "", message=rejected.message if rejected else "",
            median_ms=measured.median_ms if measured else None, min_ms=measured.min_ms if measured else None,
            p90_ms=measured.p90_ms if measured else None, n=measured.n if measured else None,
            facts=dict(trial.outcome.facts), at_s=trial.at_s)
    for name, value in changed.items():
        setattr(job, name, value)
    jobs.publish(f"tune.{job.pk}", "trial", selectors.trial_json(row))
    return row


def row_key(config: Config) -> str:
    """Unique text of a configuration that fits the column."""
    key = config_key(config)
    return key if len(key) <= KEY_CHARACTERS else "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def tune_finish(job: TuneJob, worker: str, finalists: Sequence[Finalist], session: Session, *,
                default: Config | None = None, source_hash: str = "") -> TuneJob:
    """End the job with its finalists; the winner goes into the cache with its evidence, in the same transaction."""
    winner = finalists[0] if finalists else None
    if winner is None or not isinstance(winner.outcome, Measured):
        told = "; ".join(f"{row['count']} × {row['reason']}" for row in selectors.failures(job)) or "nothing was tried"
        return tune_fail(job, worker, "search", f"no configuration could be measured ({told})",
                         "The trials below have the messages; try another shape or dtype.")
    default_key = config_key(default) if default is not None else None
    fields: dict[str, Any] = {
        "best_ms": winner.outcome.median_ms, "best_config": dict(winner.config),
        "finalists": [_finalist_json(finalist, default_key) for finalist in finalists]}
    again = next((f.median_ms for f in finalists if config_key(f.config) == default_key), None)
    if again is not None:
        fields["default_ms"] = again
    with transaction.atomic():
        tune_end(job, worker, Status.DONE, **fields)
        config_put(job, session, winner.outcome, source_hash)
    return job


def _finalist_json(finalist: Finalist, default_key: str | None) -> dict[str, Any]:
    outcome, facts = finalist.outcome, {}
    if isinstance(outcome, Measured):
        facts = {"median_ms": outcome.median_ms, "min_ms": outcome.min_ms, "p90_ms": outcome.p90_ms, "n": outcome.n}
    return {"config": dict(finalist.config), "tie": finalist.tie, "default": config_key(finalist.config) == default_key,
            **facts, **({"reason": str(outcome.reason)} if isinstance(outcome, Rejected) else {})}


def tune_end(job: TuneJob, worker: str, status: str, **fields: Any) -> None:
    """The one way a running job ends. Superseded when it is not ours any more."""
    fields = {**fields, "status": status, "finished": timezone.now(), "heartbeat": None}
    if not _held(job, worker).update(**fields):
        raise Superseded
    for name, value in fields.items():
        setattr(job, name, value)
    transaction.on_commit(lambda: _publish(job))


def tune_fail(job: TuneJob, worker: str, where: str, what: str, hint: str) -> TuneJob:
    tune_end(job, worker, Status.FAILED, error={"where": where, "what": what[:2000], "hint": hint})
    return job


def tune_stop(job: TuneJob) -> TuneJob:
    """Ask for the end. A job that no living worker holds ends here and now; a running one within a second."""
    now = timezone.now()
    TuneJob.objects.filter(pk=job.pk, status__in=[Status.QUEUED, Status.RUNNING]).update(stop_requested=True)
    unheld = Q(status=Status.QUEUED) | Q(status=Status.RUNNING, heartbeat__lt=now - jobs.STALE_AFTER)
    TuneJob.objects.filter(unheld, pk=job.pk).update(status=Status.STOPPED, finished=now, heartbeat=None)
    job.refresh_from_db()
    _publish(job)
    return job


def _held(job: TuneJob, worker: str) -> Any:
    return TuneJob.objects.filter(pk=job.pk, status=Status.RUNNING, worker=worker)


def _publish(job: TuneJob) -> None:
    jobs.publish(f"tune.{job.pk}", "status", selectors.job_json(job))
    jobs.publish("home", "tune", {"id": job.pk, "status": job.status})
