"""Prior knowledge of a search: stored trials of other jobs, shapes, GPUs and operators."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from tuner.cache import rules
from tuner.jobs import selectors
from tuner.models import TrialRow, TuneJob
from tuner.tuning.measure.runner import Session
from tuner.tuning.operators import Limits, find, limits
from tuner.tuning.search.strategies.prior_knowledge import PastSearch, PriorKnowledge
from tuner.tuning.trial import Config, Trial

SAME_OPERATOR_JOBS = 40          # newest first; a model learns little from more
OTHER_OPERATOR_JOBS = 20
MAX_TRIALS = 10_000


def prior_knowledge(job: TuneJob, session: Session, default: Config | None) -> PriorKnowledge:
    """Return prior knowledge; nothing from this operator, shape, GPU and toolkit itself."""
    operator = find(job.operator)
    return PriorKnowledge(
        operator=job.operator, shape=job.shape, dtype=job.dtype,
        gpu=limits(session.gpu, session.compute_capability, session.environment.get("sms")),
        toolkit=rules.toolkit_text(session.environment), flops=session.flops or 0, bytes=session.bytes or 0, default=default,
        past=past_searches(job, session), fills_sm=operator.fills_sm if operator else {})


def past_searches(job: TuneJob, session: Session) -> list[PastSearch]:
    """Return all trials of the newest jobs, those of the same operator first."""
    toolkit = rules.toolkit_text(session.environment)
    rows = TuneJob.objects.exclude(pk=job.pk).exclude(best_ms=None).order_by("-created", "-id")
    same = rows.filter(operator=job.operator)
    # A recording is of one GPU and toolkit, whatever the rows of a live job say: its answers would be known.
    here = {} if session.recorded else {"gpu": session.gpu, "toolkit": toolkit}
    same = same.exclude(shape=job.shape, dtype=job.dtype, **here)
    chosen = [*same[:SAME_OPERATOR_JOBS], *rows.exclude(operator=job.operator)[:OTHER_OPERATOR_JOBS]]
    trials = _trials_by_job([one.pk for one in chosen])
    searches, total = [], 0
    for one in chosen:
        mine = trials.get(one.pk, [])
        total += len(mine)
        if mine and total <= MAX_TRIALS:
            searches.append(_make_past(one, mine, whole=not session.recorded))
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
