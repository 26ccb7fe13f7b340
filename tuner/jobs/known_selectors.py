"""What a search may start from: the stored trials of other jobs, of other shapes, GPUs, toolkits and operators."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from tuner import cache
from tuner.bench.runner import Session
from tuner.jobs import selectors
from tuner.models import TrialRow, TuneJob
from tuner.operators import Limits, find, limits
from tuner.strategies import Known, Past
from tuner.trial import Config, Trial

SAME_OPERATOR_JOBS = 40          # newest first; a model learns little from more
OTHER_OPERATOR_JOBS = 20
MAX_TRIALS = 10_000


def known_of(job: TuneJob, session: Session, default: Config | None) -> Known:
    """Nothing of it comes from the operator, shape, GPU and toolkit that are searched now: a repeated job searches anew."""
    return Known(
        operator=job.operator, shape=job.shape, dtype=job.dtype,
        gpu=limits(session.gpu, session.compute_capability, session.environment.get("sms")),
        toolkit=cache.toolkit(session.environment), flops=session.flops or 0, bytes=session.bytes or 0, default=default,
        past=past_of(job, session))


def past_of(job: TuneJob, session: Session) -> list[Past]:
    """All trials, losers too, of the newest jobs: of the same operator first."""
    toolkit = cache.toolkit(session.environment)
    rows = TuneJob.objects.exclude(pk=job.pk).exclude(best_ms=None).order_by("-created", "-id")
    same = rows.filter(operator=job.operator)
    # A recording is of one GPU and toolkit, whatever the rows of a live job say: its answers would be known.
    here = {} if session.recorded else {"gpu": session.gpu, "toolkit": toolkit}
    same = same.exclude(shape=job.shape, dtype=job.dtype, **here)
    chosen = [*same[:SAME_OPERATOR_JOBS], *rows.exclude(operator=job.operator)[:OTHER_OPERATOR_JOBS]]
    trials = _trials([one.pk for one in chosen])
    found, total = [], 0
    for one in chosen:
        mine = trials.get(one.pk, [])
        total += len(mine)
        if mine and total <= MAX_TRIALS:
            found.append(_past(one, mine, whole=not session.recorded))
    return found


def _past(job: TuneJob, trials: list[Trial], *, whole: bool) -> Past:
    """`whole`: with every parameter of the operator's live space named, those that older trials do not name as well."""
    operator = find(job.operator)
    if operator is None or operator.problems(job.shape, job.dtype):
        return Past(job.operator, job.shape, job.dtype, _limits(job), job.toolkit, trials)
    if whole:
        trials = [replace(trial, config=operator.complete(trial.config)) for trial in trials]
    return Past(job.operator, job.shape, job.dtype, _limits(job), job.toolkit, trials, operator.flops(job.shape),
                operator.bytes(job.shape, job.dtype))


def _trials(job_ids: list[int]) -> dict[int, list[Trial]]:
    """Without raw samples: no strategy reads them, and they are most of the bytes."""
    found: dict[int, list[Trial]] = defaultdict(list)
    for row in TrialRow.objects.filter(job__in=job_ids).order_by("job", "number")[:MAX_TRIALS * 2].iterator():
        row.facts.pop("samples_ms", None)
        found[row.job_id].append(selectors.trial_of(row))
    return found


def _limits(job: TuneJob) -> Limits:
    return limits(job.gpu, job.environment.get("compute_capability"), job.environment.get("sms"))
