"""What may be done to suites, their jobs and their runs: the one front."""

from __future__ import annotations

from tuner.suites.errors import SuiteError, Superseded
from tuner.suites.job_services import (
    Turn,
    job_claim,
    job_create,
    job_fail,
    job_finish,
    job_held,
    job_published,
    job_rest,
    job_session,
    job_stop,
    queue_of,
    run_label,
)
from tuner.suites.run_services import run_record
from tuner.suites.selectors import definition_of
from tuner.suites.suite_services import Changed, suite_delete, suite_put, suite_switch
from tuner.suites.upload_services import Stored, runs_store

__all__ = ["Changed", "Stored", "SuiteError", "Superseded", "Turn", "definition_of", "job_claim", "job_create", "job_fail",
           "job_finish", "job_held", "job_published", "job_rest", "job_session", "job_stop", "queue_of", "run_label", "run_record",
           "runs_store", "suite_delete", "suite_put", "suite_switch"]
