"""Rows of measured ceilings: what a GPU reached when a kernel did one thing, with the clocks it ran at."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models

from workers.leases import JobStatus, LeasedJob, Leases


class CeilingRun(LeasedJob):
    """One measuring job on one GPU, or a recorded one. `status` is its truth; results come one by one."""

    Status = JobStatus

    status = models.CharField(max_length=12, choices=Status, default=Status.QUEUED)
    gpu = models.CharField(max_length=120, blank=True, db_index=True)      # as its driver names it; "" until it runs
    gpu_uuid = models.CharField(max_length=80, blank=True)
    environment = models.JSONField(default=dict, blank=True)               # driver, CUDA, torch, SMs, L2
    results = models.JSONField(default=dict, blank=True)  # name -> tuner.tuning.measure.ceilings.measure_ceiling(…) | {"rejected"}
    recorded = models.CharField(max_length=120, blank=True)                # "recorded on …" where it was read from a file
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)

    leases: ClassVar[Leases[CeilingRun]] = Leases(Status.QUEUED, Status.RUNNING)

    class Meta:
        ordering = ["-created", "-id"]

    def __str__(self) -> str:
        return f"ceilings of {self.gpu or 'a GPU'}"


