"""Rows beside the cache's entries: bucket policies, the environments seen on GPUs, and the files that people brought."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from workers.scope import OfProject


class BucketPolicy(models.Model):
    """How the shapes of one operator are rounded, where somebody chose otherwise than `tuner.cache.buckets.BUCKETS`."""

    operator = models.CharField(max_length=60, unique=True)
    exact_up_to = models.IntegerField()
    steps_per_doubling = models.FloatField()
    max_distance = models.FloatField()
    changed = models.DateTimeField(auto_now=True)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)

    class Meta:
        ordering = ["operator"]

    def __str__(self) -> str:
        return self.operator


class GpuEnvironment(models.Model):
    """A toolkit and driver that some job ran with on a GPU model: entries measured under an older one are unverified."""

    gpu = models.CharField(max_length=120)
    toolkit = models.CharField(max_length=80)
    driver = models.CharField(max_length=40, blank=True)
    first_seen = models.DateTimeField(auto_now_add=True)
    last_seen = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["gpu", "first_seen"]
        constraints = [models.UniqueConstraint(fields=["gpu", "toolkit", "driver"], name="gpu_environment_once")]

    def __str__(self) -> str:
        return f"{self.gpu}: {self.toolkit}, driver {self.driver or 'unknown'}"


class ImportedFile(OfProject):
    """A file of another project: what it held, what became of it, and its trials where it has them."""

    name = models.CharField(max_length=255)
    format = models.CharField(max_length=24)                     # tuner.cache.formats.FORMATS
    sha256 = models.CharField(max_length=64)
    size_bytes = models.IntegerField()
    operator = models.CharField(max_length=60, blank=True)
    dtype = models.CharField(max_length=16, blank=True)
    shape = models.JSONField(default=dict)
    gpu = models.CharField(max_length=120, blank=True)
    toolkit = models.CharField(max_length=80, blank=True)
    entries = models.IntegerField(default=0)                     # configurations that became entries of the cache
    refused = models.JSONField(default=dict)                     # why -> how many
    tested = models.BinaryField(null=True)                       # zlib of JSON {configuration: median ms}, where it has trials
    n_trials = models.IntegerField(default=0)
    best_ms = models.FloatField(null=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created", "-id"]

    def __str__(self) -> str:
        return self.name
