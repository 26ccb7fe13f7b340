"""Kinds of row that workers hold, each with its task and queue. Cheap to import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from profiles.ceilings.models import CEILING_LEASES
from profiles.models import CAPTURE_LEASES, INGEST_LEASES, ingest_queue
from profiles.running.models import ENGINE_LEASES
from tuner.gate.suites.models import SUITE_LEASES
from tuner.models import (
    CANDIDATE_LEASES,
    CHECK_LEASES,
    CODE_LEASES,
    TUNE_LEASES,
    Candidate,
    CodeFetch,
    KernelCheck,
    SuiteJob,
    TuneJob,
)
from workers.leases import Leases


@dataclass(frozen=True)
class RowKind:
    """A kind of row; `queue` names where a row is woken, pages watch "`topic`.<id>".

    `fills_disk`: its work waits while a disk has too little room.
    """

    leases: Leases[Any]
    task: str
    topic: str
    queue: Callable[[Any], str]
    fills_disk: bool = False


def _tune_queue(job: TuneJob) -> str:
    from tuner.jobs.create_services import queue_of  # here and below: who ingests a file needs no services of the tuner

    return queue_of(job)


def _suite_queue(job: SuiteJob) -> str:
    from tuner.gate.suites.job_services import queue_of

    return queue_of(job)


def _check_queue(check: KernelCheck) -> str:
    from tuner.bring.checks.services import queue_of

    return queue_of(check)


def _candidate_queue(candidate: Candidate) -> str:
    from tuner.candidates.selectors import queue_of

    return queue_of(candidate)


def _code_queue(fetch: CodeFetch) -> str:
    from tuner.gate.code.services import queue_of

    return queue_of(fetch)


ROW_KINDS = {held.task: held for held in (
    RowKind(INGEST_LEASES, "ingest", "profile", ingest_queue, fills_disk=True),
    RowKind(TUNE_LEASES, "tune", "tune", _tune_queue),
    RowKind(CHECK_LEASES, "check", "check", _check_queue),
    RowKind(CANDIDATE_LEASES, "candidate", "candidate", _candidate_queue),
    RowKind(CODE_LEASES, "code", "code", _code_queue, fills_disk=True),
    RowKind(CAPTURE_LEASES, "capture", "capture", lambda row: "gpu", fills_disk=True),
    RowKind(ENGINE_LEASES, "engine", "engine-capture", lambda row: "replay", fills_disk=True),
    RowKind(CEILING_LEASES, "ceilings", "ceilings", lambda row: "gpu"),
    RowKind(SUITE_LEASES, "suite", "suite", _suite_queue),
)}
