"""Kinds of row that workers hold, each with its task and queue. Cheap to import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from profiles.ceilings.models import CeilingRun
from profiles.models import Capture, Profile, ingest_queue
from profiles.running.models import EngineCapture
from tuner.models import Candidate, CodeFetch, KernelCheck, SuiteJob, TuneJob
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


ROW_KINDS = {kind.task: kind for kind in (
    RowKind(Profile.leases, "ingest", "profile", ingest_queue, fills_disk=True),
    RowKind(TuneJob.leases, "tune", "tune", _tune_queue),
    RowKind(KernelCheck.leases, "check", "check", _check_queue),
    RowKind(Candidate.leases, "candidate", "candidate", _candidate_queue),
    RowKind(CodeFetch.leases, "code", "code", _code_queue, fills_disk=True),
    RowKind(Capture.leases, "capture", "capture", lambda row: "gpu", fills_disk=True),
    RowKind(EngineCapture.leases, "engine", "engine-capture", lambda row: "replay", fills_disk=True),
    RowKind(CeilingRun.leases, "ceilings", "ceilings", lambda row: "gpu"),
    RowKind(SuiteJob.leases, "suite", "suite", _suite_queue),
)}
