"""What a finished job found, compared with the default configuration and the vendor library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner import texts
from tuner.cache.default_check import check_library, library_gain
from tuner.models import TuneJob

LIVE_STATUSES = (TuneJob.Status.QUEUED, TuneJob.Status.RUNNING, TuneJob.Status.PAUSED)
LEAST_GAIN = 0.01        # a best that is faster by less is no gain, as in tuner.tuning.search.loop
TITLES = {"faster": "done", "default": "no gain", "tie": "no gain", "library": "library wins", "unknown": "done"}


@dataclass(frozen=True)
class JobOutcome:
    """`kind` is a key of TITLES; `text` says it in words, "" where the times say it."""

    kind: str
    text: str = ""

    @property
    def title(self) -> str:
        """Return the word that stands in place of "done"."""
        return TITLES[self.kind]

    @property
    def is_gain(self) -> bool:
        """Return whether the best is faster than everything that it was compared with."""
        return self.kind == "faster"

    @property
    def mark(self) -> str:
        """Return the CSS class of the word: green for a gain only."""
        return "mark-ok" if self.is_gain else "" if self.kind == "unknown" else "mark-warn"


def job_outcome(job: TuneJob) -> JobOutcome | None:
    """Return what a job that is done found; None for every other state.

    The paired rounds of the finalists decide; without them a gain is 1 % or more.
    """
    if job.status != TuneJob.Status.DONE or not job.best_ms:
        return None
    if job.default_ms is None and job.library_ms is None:
        return JobOutcome("unknown", "neither the default configuration nor a library was measured to compare with")
    if keep := library_text(job):
        return JobOutcome("library", keep)
    if kind := _default_stands(job):
        words = {"default": "nothing faster than the default configuration found",
                 "tie": "nothing found that can be told apart from the default configuration"}[kind]
        return JobOutcome(kind, words)
    if job.library_ms and job.library_ms / job.best_ms - 1 < LEAST_GAIN:
        return JobOutcome("tie", f"no faster than {texts.library_name(job.operator)}")
    return JobOutcome("faster")


def library_won(job: TuneJob) -> float | None:
    """Return how many times as fast the library is as the best of a job; None where it is not surely faster.

    The finalists of a job that is done were measured in turn with the library; of any other job medians alone are known.
    """
    if not job.best_ms:
        return None
    finalists = job.finalists if job.status == TuneJob.Status.DONE else []
    first = next((finalist for finalist in finalists if finalist.get("median_ms")), {"median_ms": job.best_ms})
    check = check_library(first, job.library_ms)
    return library_gain(check.as_json()) if check else None


def library_text(job: TuneJob) -> str:
    """Return that the library is faster than the best of a job, in words; "" where it is not surely, or nothing was measured."""
    won = library_won(job)
    if won and job.status in LIVE_STATUSES:
        return f"so far {texts.library_name(job.operator)} is {won:.2f}× faster"
    return texts.keep_library_text(job.operator, won)


def _default_stands(job: TuneJob) -> str:
    """Return "default" or "tie" where the default configuration was not beaten, else ""."""
    winner, default = _finalist(job.finalists[:1]), _finalist(job.finalists)
    if winner is not None:
        return "default"
    if default is not None:
        return "tie" if default.get("tie") else ""
    return "default" if job.default_ms is not None and job.best_ms and job.best_ms > job.default_ms * (1 - LEAST_GAIN) else ""


def _finalist(finalists: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the default configuration among finalists that were measured."""
    return next((finalist for finalist in finalists if finalist.get("default") and not finalist.get("reason")), None)
