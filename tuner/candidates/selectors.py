"""Candidates for pages and programs: lists, one with its answer, the operator's files, and who could judge one now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from django.db.models import QuerySet

from profiles.base.answers import ErrorJson, Facts, Scalar, make_answer
from tuner.candidates import diffs
from tuner.candidates.answer import AnswerJson
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


def candidate_list(query: Mapping[str, Any] | None = None) -> QuerySet[Candidate]:
    """Return the project's candidates, newest first, without their texts; `query` filters by FILTERS and `series`."""
    rows = Candidate.objects.defer("text", "diff").select_related("owner", "reviewed_by")
    filters = query or {}
    rows = rows.filter(**{name: str(filters[name]).replace("\0", "") for name in FILTERS if filters.get(name)})
    return rows.filter(series=filters["series"]) | rows.filter(pk=filters["series"]) if filters.get("series") else rows


def attempts_of(candidate: Candidate) -> list[Candidate]:
    """Return the attempts of its series, oldest first, itself among them."""
    first = candidate.series_id or candidate.pk
    rows = Candidate.objects.defer("text", "diff").select_related("owner")
    return sorted(rows.filter(series=first) | rows.filter(pk=first), key=lambda each: each.pk)


def permits() -> dict[str, CandidatePermit]:
    """Return the permits of the project by operator."""
    return {permit.operator: permit for permit in CandidatePermit.objects.select_related("by")}


def files_of(operator: str) -> tuple[diffs.SourceFile, ...]:
    """Return the operator's files on this host; () where there are none."""
    return diffs.operator_files(operator, None if operator in OPERATORS else operator_description(operator))


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


class CandidateLineJson(TypedDict):
    """A kernel that was submitted; `ratio`: its time ÷ that of `against`, with its interval."""

    id: int
    operator: str
    dtype: str
    shape: dict[str, int]
    config: dict[str, Scalar] | None
    note: str
    parent: int | None
    series: int
    status: str
    stage: str
    step: str
    verdict: str | None
    reason: str
    review: str
    standing: str
    gpu: str | None
    median_us: float | None
    against: str | None
    ratio: float | None
    low: float | None
    high: float | None
    by: str | None
    token: str | None
    created: str
    finished: str | None


def row_json(candidate: Candidate) -> CandidateLineJson:
    """Return what a list says of a candidate."""
    rows = {row["name"]: row for row in candidate.answer.get("rows", ()) if isinstance(row, dict) and "name" in row}
    mine, against = rows.get("candidate", {}), rows.get(candidate.answer.get("against", ""), {})
    return make_answer(
        CandidateLineJson, candidate, shape=in_order(candidate.operator, candidate.shape), parent=candidate.parent_id,
        series=candidate.series_id or candidate.pk, verdict=candidate.verdict or None, standing=standing(candidate),
        gpu=candidate.gpu or None, median_us=mine.get("median_us"), against=candidate.answer.get("against") or None,
        ratio=against.get("ratio"), low=against.get("low"), high=against.get("high"),
        by=candidate.owner.get_username() if candidate.owner else None, token=candidate.token_name or None)


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


class CandidateCeilingJson(TypedDict):
    """The least time of a candidate's problem, and the share (0-1) that it reaches."""

    ms: float
    side: str
    source: str
    physical_ms: float | None
    share: float | None
    score: float | None


def _ceiling_json(candidate: Candidate, median_us: float | None) -> Any:
    least = least_of(candidate)
    if least is None:
        return None
    return {"ms": least.ms, "side": least.side, "source": least.source, "physical_ms": least.physical_ms,
            **reached(candidate.answer, median_us, least)}


class CandidateJson(CandidateLineJson):
    """Everything about a candidate; `answer`: what the judge measured; `waits`: for what; `text` where it is asked for."""

    ceiling: CandidateCeilingJson | None
    answer: AnswerJson
    error: ErrorJson | None
    environment: Facts
    base_path: str | None
    base_hash: str | None
    was_diff: bool
    wanted_gpu: str | None
    seconds: float
    worker: str
    review_note: str
    reviewed_by: str | None
    reviewed: str | None
    started: str | None
    attempts: list[int]
    waits: str
    text: NotRequired[str]


def candidate_json(candidate: Candidate) -> CandidateJson:
    """Return everything about a candidate but its text."""
    line: Any = row_json(candidate)
    answer = {name: value for name, value in candidate.answer.items() if name != "times"}
    times = {name: {key: value for key, value in entry.items() if key != "samples_ms"}
             for name, entry in (candidate.answer.get("times") or {}).items()}
    return make_answer(
        CandidateJson, candidate, **line, ceiling=_ceiling_json(candidate, line["median_us"]), answer={**answer, "times": times},
        base_path=candidate.base_path or None, base_hash=candidate.base_hash or None, was_diff=bool(candidate.diff),
        wanted_gpu=candidate.wanted_gpu or None,
        reviewed_by=candidate.reviewed_by.get_username() if candidate.reviewed_by else None,
        attempts=[attempt.pk for attempt in attempts_of(candidate)],
        waits="" if candidate.status != Candidate.Status.WAITING else ability(candidate)["why"])


def standing(candidate: Candidate) -> str:
    """Return what the verdict is worth: nobody has looked at it, or who has."""
    if candidate.status != Candidate.Status.DONE:
        return ""
    if candidate.review == Candidate.Review.OPEN:
        return NOT_REVIEWED
    who = candidate.reviewed_by.get_username() if candidate.reviewed_by else "somebody who left"
    return f"{candidate.review} by {who}"


class PermitJson(TypedDict):
    """Candidates of an operator may run: how many a day, for so many seconds each."""

    operator: str
    per_day: int
    seconds: float
    by: str | None
    created: str


def permit_json(permit: CandidatePermit) -> PermitJson:
    return make_answer(PermitJson, permit, by=permit.by.get_username() if permit.by else None)


class SourceFileJson(TypedDict):
    path: str
    hash: str
    text: str


class OperatorSourceJson(TypedDict):
    """An operator's files, and whether candidates of it may run here."""

    operator: str
    allowed: bool
    permit: PermitJson | None
    files: list[SourceFileJson]


def source_json(operator: str) -> OperatorSourceJson:
    """Return an operator's files with their text, and whether candidates of it may run here."""
    permit = permits().get(operator)
    return {"operator": operator, "allowed": permit is not None, "permit": permit_json(permit) if permit else None,
            "files": [{"path": file.path, "hash": file.hash, "text": file.text} for file in files_of(operator)]}


def known_operators() -> list[str]:
    """Return the names of operators with a kernel that can be replaced on one GPU: a vendor's library has none."""
    return [name for name, operator in all_operators().items()        # another text of an own kernel is another version
            if not operator.listed_on_gpu and not operator.on_several_gpus and not operator.version]
