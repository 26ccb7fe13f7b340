"""What may be done to a tune job: the one front. A person's part, a worker's part and the queue each have their module."""

from __future__ import annotations

from tuner.jobs.control_services import tune_extend, tune_pause, tune_resume, tune_stop
from tuner.jobs.create_services import MAX_SECONDS, MAX_TRIALS, TuneError, publish_status, queue_of, tune_create
from tuner.jobs.group_services import group_create, group_pause, group_resume, group_stop
from tuner.jobs.queue_services import next_job, queue, queue_by_worth, queue_move
from tuner.jobs.worker_services import (
    MAX_ATTEMPTS,
    Superseded,
    row_key,
    trial_record,
    tune_claim,
    tune_count,
    tune_end,
    tune_fail,
    tune_finish,
    tune_rest,
    tune_session,
)

__all__ = [
    "MAX_ATTEMPTS", "MAX_SECONDS", "MAX_TRIALS", "Superseded", "TuneError", "group_create", "group_pause", "group_resume",
    "group_stop", "next_job", "publish_status", "queue", "queue_by_worth", "queue_move", "queue_of", "row_key", "trial_record",
    "tune_claim", "tune_count", "tune_create", "tune_end", "tune_extend", "tune_fail", "tune_finish", "tune_pause",
    "tune_rest", "tune_resume", "tune_session", "tune_stop",
]
