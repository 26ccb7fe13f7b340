"""Rows of teams' own kernels: packages whose operators may be run, and who decided that."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class OperatorPackage(models.Model):
    """A Python distribution with entry points `ridgepoint.operators`. Its code is imported by children of workers only."""

    class Status(models.TextChoices):
        WAITING = "waiting"       # for a worker that has it and describes it
        READY = "ready"           # `operators` says what it offers
        FAILED = "failed"

    name = models.CharField(max_length=120, unique=True)         # as the distribution is called, normalised
    enabled = models.BooleanField(default=True)
    status = models.CharField(max_length=8, choices=Status, default=Status.WAITING)
    version = models.CharField(max_length=60, blank=True)        # as described
    operators = models.JSONField(default=list, blank=True)       # tuner.tuning.team.description: what each operator is
    error = models.JSONField(null=True, blank=True)              # {"where", "what", "hint"}
    worker = models.CharField(max_length=120, blank=True)        # that described it
    described = models.DateTimeField(null=True)
    enabled_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class OperatorAudit(models.Model):
    """What was done to a package's permission to run, kept when the package is removed."""

    package = models.CharField(max_length=120)
    what = models.CharField(max_length=20)                       # enabled | disabled | removed | described | failed
    detail = models.CharField(max_length=300, blank=True)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-at", "-id"]

    def __str__(self) -> str:
        return f"{self.package} {self.what}"
