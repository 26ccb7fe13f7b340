"""What people and CI do to a suite that also concerns its gates: they are told, so that none waits for ever."""

from __future__ import annotations

from typing import Any

from tuner.gates.services import gate_advance, runs_arrived
from tuner.models import Suite, SuiteJob
from tuner.suites.job_services import job_stop
from tuner.suites.records import MAX_BYTES
from tuner.suites.upload_services import Stored, runs_store

__all__ = ["MAX_BYTES", "job_end", "runs_upload"]


def job_end(job: SuiteJob) -> bool:
    """Stop a job; a gate that waited for it is stopped with it: its runs stay, and it may be asked again."""
    stopped = job_stop(job)
    if stopped and job.gate_id:
        gate_advance(job.gate_id)
    return stopped


def runs_upload(suite: Suite, build: str, records: Any, **said: Any) -> Stored:
    """Store uploaded runs, then let gates that wait for runs of this build decide."""
    stored = runs_store(suite, build, records, **said)
    runs_arrived(suite, build)
    return stored
