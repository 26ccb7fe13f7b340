"""Candidates for pages and programs: lists, one with its answer, the operator's files, and who could judge one now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet

from tuner.candidates import sources
from tuner.ceilings.least_time import LeastTime, sol_score
from tuner.ceilings.selectors import Ceilings
from tuner.models import Candidate, CandidatePermit
from tuner.team.selectors import operator_description
from tuner.texts import in_order
from tuner.tuning.operators import OPERATORS, all_operators
from workers import jobs

FILTERS = ("operator", "status", "verdict", "review")
HOW = "Start one on a host with an NVIDIA GPU: manage.py worker gpu"
NOT_REVIEWED = "measured, not reviewed"


def candidate_list(asked: Mapping[str, Any] | None = None) -> QuerySet[Candidate]:
    """Return the project's candidates, newest first, without their texts; `asked` filters by FILTERS and `series`."""
    rows = Candidate.objects.defer("text", "diff").select_related("owner", "reviewed_by")
    given = asked or {}
    rows = rows.filter(**{name: str(given[name]).replace("\0", "") for name in FILTERS if given.get(name)})
    return rows.filter(series=given["series"]) | rows.filter(pk=given["series"]) if given.get("series") else rows


def attempts_of(candidate: Candidate) -> list[Candidate]:
    """Return the attempts of its series, oldest first, itself among them."""
    first = candidate.series_id or candidate.pk
    rows = Candidate.objects.defer("text", "diff").select_related("owner")
    return sorted(rows.filter(series=first) | rows.filter(pk=first), key=lambda each: each.pk)


def permits() -> dict[str, CandidatePermit]:
    """Return the permits of the project by operator."""
    return {permit.operator: permit for permit in CandidatePermit.objects.select_related("by")}


def files_of(operator: str) -> tuple[sources.SourceFile, ...]:
    """Return the operator's files on this host; () where there are none."""
    return sources.operator_files(operator, None if operator in OPERATORS else operator_description(operator))


def living_queues() -> set[str]:
    """Return the queues that living workers serve; "gpu" only where one of them has a GPU."""
    served: set[str] = set()
    for worker in jobs.workers():
        served |= {queue for queue in worker["queues"] if queue != "gpu" or worker.get("gpus")}
    return served


def queue_of(candidate: Candidate) -> str:
    """Return the queue where a candidate is woken: a GPU worker compiles as well, so another one only where there is none."""
    living = living_queues()
    if candidate.stage == Candidate.Stage.COMPILE and "gpu" not in living and "compile" in living:
        return "compile"
    return "gpu"


def first_queues(candidate: Candidate) -> list[str]:
    """Return where a new candidate is woken: in both queues where no worker of either lives, for whichever comes first."""
    return [queue_of(candidate)] if living_queues() & {"gpu", "compile"} else ["compile", "gpu"]


def ability(candidate: Candidate | None = None) -> dict[str, Any]:
    """Return {"able", "why"}: whether a living worker can judge, and what to do where none does."""
    gpus = {str(card["name"]) for worker in jobs.workers() if "gpu" in worker["queues"] for card in worker.get("gpus", ())}
    if not gpus:
        return {"able": False, "why": f"Waits for a GPU worker: none is running. {HOW}."}
    if candidate is not None and candidate.wanted_gpu and candidate.wanted_gpu not in gpus:
        return {"able": False, "why": f"Waits for a worker with {candidate.wanted_gpu}: there are {', '.join(sorted(gpus))}."}
    return {"able": True, "why": ""}


def target_capability() -> tuple[str, int]:
    """Return compute capability and multiprocessors to compile for without a GPU: those of a living worker's, else of an H100."""
    cards = [card for worker in jobs.workers() for card in worker.get("gpus", ()) if card.get("cc")]
    return (str(cards[0]["cc"]), 132) if cards else ("9.0", 132)


def row_json(candidate: Candidate) -> dict[str, Any]:
    """Return what a list says of a candidate."""
    rows = {each["name"]: each for each in candidate.answer.get("rows", ()) if isinstance(each, dict) and "name" in each}
    mine, against = rows.get("candidate", {}), rows.get(candidate.answer.get("against", ""), {})
    return {
        "id": candidate.pk, "operator": candidate.operator, "dtype": candidate.dtype,
        "shape": in_order(candidate.operator, candidate.shape),
        "config": candidate.config, "note": candidate.note, "parent": candidate.parent_id,
        "series": candidate.series_id or candidate.pk,
        "status": candidate.status, "stage": candidate.stage, "step": candidate.step, "verdict": candidate.verdict or None,
        "reason": candidate.reason, "review": candidate.review, "standing": standing(candidate),
        "gpu": candidate.gpu or None, "median_us": mine.get("median_us"), "against": candidate.answer.get("against") or None,
        "ratio": against.get("ratio"), "low": against.get("low"), "high": against.get("high"),
        "by": candidate.owner.get_username() if candidate.owner else None, "token": candidate.token_name or None,
        "created": candidate.created.isoformat(), "finished": candidate.finished.isoformat() if candidate.finished else None}


def least_of(candidate: Candidate, gpu: str = "") -> LeastTime | None:
    """Return the least time of the candidate's problem on the GPU that judges or judged it; None where it is unknown."""
    return Ceilings().of_problem(candidate.operator, candidate.dtype, candidate.shape, gpu or candidate.gpu)


def reached(answer: Mapping[str, Any], median_us: float | None, least: LeastTime | None) -> dict[str, float | None]:
    """Return {"share", "score"} of a contender's time: of the ceiling, 0-1, and against the library, else the default."""
    if least is None or not median_us:
        return {"share": None, "score": None}
    medians_us = {row["name"]: row.get("median_us") for row in answer.get("rows", ()) if isinstance(row, dict)}
    base_us = medians_us.get("library") or medians_us.get("default")
    return {"share": least.share(median_us / 1000), "score": sol_score(median_us / 1000, base_us and base_us / 1000, least.ms)}


def _ceiling_json(candidate: Candidate, median_us: float | None) -> dict[str, Any] | None:
    least = least_of(candidate)
    if least is None:
        return None
    return {"ms": least.ms, "side": least.side, "source": least.source, "physical_ms": least.physical_ms,
            **reached(candidate.answer, median_us, least)}


def candidate_json(candidate: Candidate) -> dict[str, Any]:
    """Return everything about a candidate but its text."""
    line = row_json(candidate)
    answer = {name: value for name, value in candidate.answer.items() if name != "times"}
    times = {name: {each: value for each, value in one.items() if each != "samples_ms"}
             for name, one in (candidate.answer.get("times") or {}).items()}
    return {
        **line, "ceiling": _ceiling_json(candidate, line["median_us"]), "answer": {**answer, "times": times},
        "error": candidate.error,
        "environment": candidate.environment,
        "base_path": candidate.base_path or None, "base_hash": candidate.base_hash or None, "was_diff": bool(candidate.diff),
        "wanted_gpu": candidate.wanted_gpu or None, "seconds": candidate.seconds, "worker": candidate.worker,
        "review_note": candidate.review_note,
        "reviewed_by": candidate.reviewed_by.get_username() if candidate.reviewed_by else None,
        "reviewed": candidate.reviewed.isoformat() if candidate.reviewed else None,
        "started": candidate.started.isoformat() if candidate.started else None,
        "attempts": [each.pk for each in attempts_of(candidate)],
        "waits": "" if candidate.status != Candidate.Status.WAITING else ability(candidate)["why"]}


def standing(candidate: Candidate) -> str:
    """Return what the verdict is worth: nobody has looked at it, or who has."""
    if candidate.status != Candidate.Status.DONE:
        return ""
    if candidate.review == Candidate.Review.OPEN:
        return NOT_REVIEWED
    who = candidate.reviewed_by.get_username() if candidate.reviewed_by else "somebody who left"
    return f"{candidate.review} by {who}"


def permit_json(permit: CandidatePermit) -> dict[str, Any]:
    return {"operator": permit.operator, "per_day": permit.per_day, "seconds": permit.seconds,
            "by": permit.by.get_username() if permit.by else None, "created": permit.created.isoformat()}


def source_json(operator: str) -> dict[str, Any]:
    """Return an operator's files with their text, and whether candidates of it may run here."""
    permit = permits().get(operator)
    return {"operator": operator, "allowed": permit is not None, "permit": permit_json(permit) if permit else None,
            "files": [{"path": each.path, "hash": each.hash, "text": each.text} for each in files_of(operator)]}


def known_operators() -> list[str]:
    """Return the names of operators with a kernel that can be replaced on one GPU: a vendor's library has none."""
    return [name for name, operator in all_operators().items()        # another text of an own kernel is another version
            if not operator.listed_on_gpu and not operator.on_several_gpus and not operator.version]
