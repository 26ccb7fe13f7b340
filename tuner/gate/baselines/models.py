"""Rows of what people said that kernels are compared with."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from workers.scope import BelowProject


class BaselineChange(BelowProject):
    """What a person said a kernel is compared with. Rows are never changed: the newest that applies is in force."""

    project_path = "suite__project"

    class Action(models.TextChoices):
        PIN = "pin"                  # always compare with the runs of `build`
        ROLL = "roll"                # with the newest runs of builds that passed: the default
        INTENDED = "intended"        # rolling, but only runs of `build` and later: the change was meant
        GONE = "gone"                # the kernel is no more from `build` on, and that was meant

    suite = models.ForeignKey("tuner.Suite", on_delete=models.CASCADE, related_name="baseline_changes")
    kernel = models.ForeignKey("tuner.SuiteKernel", null=True, blank=True, on_delete=models.CASCADE,
                               related_name="baseline_changes")          # null: all kernels of the suite
    gpu = models.CharField(max_length=120, blank=True)           # "": on every GPU
    action = models.CharField(max_length=12, choices=Action)
    build = models.ForeignKey("tuner.Build", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    note = models.TextField(blank=True)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created", "-id"]

    def __str__(self) -> str:
        return f"{self.action} {self.build_id or ''}"
