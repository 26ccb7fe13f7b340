"""The progress of one ingest: to the page at most five times a second, to the row once a second."""

from __future__ import annotations

import time
from typing import TypedDict

from django.db.models.functions import Now

from profiles.models import Profile
from workers import disk, jobs
from workers.leases import Superseded

PUBLISH_EVERY_S = 0.2
KEEP_EVERY_S = 1.0


class IngestProgressJson(TypedDict):
    """How far a file is read; `rate_bytes_s`, `eta_s` null: not known yet."""

    phase: str
    done_bytes: int
    total_bytes: int
    records: int
    rate_bytes_s: float | None
    eta_s: float | None


class Progress:
    """Called by readers and the store: ``progress(phase, done_bytes, total_bytes, records)``.

    The row keeps the latest state (`summary["progress"]`), so that a page that was away catches up, and its heartbeat.
    Raises `Superseded` when the row is no longer this worker's, NoRoom before the disk is full.
    """

    def __init__(self, profile_id: int, worker: str) -> None:
        self.profile_id, self.worker = profile_id, worker
        self.phase, self.phase_began_s = "", time.monotonic()
        self.published_s = self.kept_s = 0.0
        self.upload_bytes = 0

    def __call__(self, phase: str, done_bytes: int, total_bytes: int, records: int) -> None:
        now_s = time.monotonic()
        self.upload_bytes = max(self.upload_bytes, total_bytes)
        if phase != self.phase:
            self.phase, self.phase_began_s = phase, now_s
        if now_s - self.published_s < PUBLISH_EVERY_S:
            return
        self.published_s = now_s
        state = self._state(now_s, done_bytes, total_bytes, records)
        if now_s - self.kept_s >= KEEP_EVERY_S:
            self.kept_s = now_s
            disk.require_rest()
            self._keep(state)
        jobs.publish(f"profile.{self.profile_id}", "progress", {"status": Profile.Status.INGESTING, **state})

    def slices(self, phase: str, done: int, total: int) -> None:
        """Tell of a phase that goes over the slices.

        As the share of the upload that they are, so that the bar, the rate and the time left read the same in all phases.
        """
        self(phase, self.upload_bytes * min(done, total) // max(total, 1), self.upload_bytes, done)

    def now(self, phase: str, records: int = 0) -> None:
        """Tell at once that a phase without bytes to count (analysing, storing) begins."""
        self.published_s = 0.0
        self(phase, 0, 0, records)

    def _state(self, now_s: float, done_bytes: int, total_bytes: int, records: int) -> IngestProgressJson:
        elapsed_s = now_s - self.phase_began_s
        rate = done_bytes / elapsed_s if elapsed_s > PUBLISH_EVERY_S and done_bytes else None
        left = max(0, total_bytes - done_bytes)
        return {
            "phase": self.phase, "done_bytes": done_bytes, "total_bytes": total_bytes, "records": records,
            "rate_bytes_s": rate, "eta_s": left / rate if rate and total_bytes else None,
        }

    def _keep(self, state: IngestProgressJson) -> None:
        mine = Profile.objects.filter(pk=self.profile_id, status=Profile.Status.INGESTING, worker=self.worker)
        if not mine.update(heartbeat=Now(), summary={"progress": state}):
            raise Superseded(self.profile_id)
