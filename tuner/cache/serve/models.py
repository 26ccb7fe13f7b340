"""Rows of what launches are served: snapshots of the cache, and how often each of its answers was used."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from workers.scope import BelowProject, OfProject


class ConfigSnapshot(OfProject):
    """The cache at one moment. A job that names its id gets the same answers on every rank, whatever is tuned meanwhile."""

    name = models.CharField(max_length=32, primary_key=True)     # tuner.cache.serve.resolve.content_id(content)
    content = models.JSONField()                                 # tuner.cache.serve.resolve.freeze(…)
    entries = models.IntegerField()
    created = models.DateTimeField(auto_now_add=True)
    used = models.DateTimeField(auto_now_add=True)               # asked for, to the day

    class Meta:
        ordering = ["-created"]

    def __str__(self) -> str:
        return self.name


class SnapshotView(BelowProject):
    """A snapshot as one GPU and toolkit are served it: resolved once, so that it does not change with measured losses."""

    project_path = "snapshot__project"

    snapshot = models.ForeignKey(ConfigSnapshot, on_delete=models.CASCADE, related_name="views")
    gpu = models.CharField(max_length=120)
    compute_capability = models.CharField(max_length=8)
    toolkit = models.CharField(max_length=80)
    document = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(
            fields=["snapshot", "gpu", "compute_capability", "toolkit"], name="snapshotview_once")]

    def __str__(self) -> str:
        return f"{self.snapshot_id} for {self.gpu}"


class ServedCount(OfProject):
    """Launches of one day that were served one answer, summed over all jobs that told, and how often it was only asked for."""

    day = models.DateField()
    operator = models.CharField(max_length=60)
    dtype = models.CharField(max_length=16)
    shape_bucket = models.CharField(max_length=200)
    gpu = models.CharField(max_length=120)
    toolkit = models.CharField(max_length=80)
    rule = models.CharField(max_length=24)                       # tuner.cache.rules.Rule
    entry = models.BigIntegerField()                             # CachedConfig.pk, which may be gone by now; 0: none served
    launches = models.BigIntegerField()
    asked = models.BigIntegerField(default=0, db_default=0)      # calls of best(); a client from before counted them as launches
    snapshot = models.CharField(max_length=32, blank=True)       # the last one it was served from
    host = models.CharField(max_length=120, blank=True)          # the last one that told
    reporter = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    updated = models.DateTimeField()

    class Meta:
        ordering = ["-day", "-launches"]
        constraints = [models.UniqueConstraint(
            fields=["project", "day", "operator", "dtype", "shape_bucket", "gpu", "toolkit", "rule", "entry"],
            name="servedcount_once")]

    def __str__(self) -> str:
        return f"{self.launches} × {self.operator} {self.shape_bucket}: {self.rule}"
