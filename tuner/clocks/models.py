"""Rows of what owners let workers do to the clocks of GPUs while they measure."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class GpuClockRule(models.Model):
    """Workers hold the clocks of this GPU while a tune job or a suite runs on it. Without a row they leave them alone."""

    uuid = models.CharField(max_length=80, unique=True)          # of the physical device, as its driver names it
    gpu = models.CharField(max_length=120, blank=True)           # its model and …
    host = models.CharField(max_length=255, blank=True)          # … host as a worker announced them, when the rule was made
    graphics = models.CharField(max_length=8)              # tuner.clocks.wish.ClockWish: "75%" or "1410"
    memory_mhz = models.IntegerField(null=True, blank=True)
    persistence = models.BooleanField(default=True)
    required = models.BooleanField(default=False)                # else a job runs unlocked where the driver refuses
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    changed = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["host", "gpu", "uuid"]

    def __str__(self) -> str:
        return f"clocks of {self.gpu or 'a GPU'} {self.uuid}"
