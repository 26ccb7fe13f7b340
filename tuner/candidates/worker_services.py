"""What a worker writes of a candidate: claimed, its stages, its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from tuner.candidates.services import candidate_publish
from tuner.candidates.verdicts import Judgement
from tuner.models import Candidate
from tuner.tuning.trial import cleaned
from workers import jobs

Status, Stage = Candidate.Status, Candidate.Stage
MOST_REASON = 600


def candidate_claim(candidate_id: int, worker: str) -> Candidate | None:
    """Return the row for `worker`, or None where it is not free."""
    if not Candidate.leases.claim(candidate_id, worker, started=timezone.now(), error=None):
        return None
    candidate = Candidate.objects.get(pk=candidate_id)
    candidate_publish(candidate)
    return candidate


def candidate_step(candidate: Candidate, worker: str, step: str, **fields: Any) -> None:
    """Store and tell what is done now."""
    step = cleaned(step)[:60]
    if Candidate.leases.write(candidate.pk, worker, step=step, **fields):
        jobs.publish(f"candidate.{candidate.pk}", "progress", {"id": candidate.pk, "step": step})


def candidate_wait(candidate: Candidate, worker: str, answer: Mapping[str, Any]) -> bool:
    """Hand a compiled candidate on to the workers with a GPU."""
    Candidate.leases.write(candidate.pk, worker, stage=Stage.MEASURE, step="", answer=dict(answer))
    handed = bool(Candidate.leases.hand_back(worker, candidate.pk))
    if handed:
        candidate_publish(Candidate.objects.get(pk=candidate.pk))
    return handed


def candidate_done(candidate: Candidate, worker: str, judged: Judgement, answer: Mapping[str, Any], **facts: Any) -> bool:
    """End a candidate with its verdict. FAILED is one: the file does not run."""
    told = {**answer, "rows": [dict(each) for each in judged.rows], "against": judged.against}
    return _end(candidate, worker, Status.DONE, verdict=judged.verdict.value, reason=cleaned(judged.reason)[:MOST_REASON],
                answer=told, **facts)


def candidate_fail(candidate: Candidate, worker: str, where: str, what: str, hint: str = "", **facts: Any) -> bool:
    """End a candidate that could not be judged, through no fault of its own."""
    error = {"where": where, "what": cleaned(what)[:MOST_REASON], "hint": hint}
    return _end(candidate, worker, Status.FAILED, error=error, **facts)


def _end(candidate: Candidate, worker: str, status: str, **fields: Any) -> bool:
    ended = Candidate.leases.end(candidate.pk, worker, status, step="", **fields)
    if ended:
        row = Candidate.objects.get(pk=candidate.pk)
        candidate_publish(row)
        jobs.publish(jobs.HOME, "candidate", {"id": row.pk, "status": row.status})
    return ended


