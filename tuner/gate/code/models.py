"""Rows of where the code of a suite's builds comes from: what an owner allowed, archives of builds, tries."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models

from workers.leases import LeasedJob, Leases
from workers.scope import BelowProject


class SuiteCode(BelowProject):
    """The source that an owner allowed for a suite: a git repository, or archives that are uploaded for each build."""

    project_path = "suite__project"

    class Kind(models.TextChoices):
        GIT = "git"
        ARCHIVE = "archive"

    suite = models.OneToOneField("tuner.Suite", on_delete=models.CASCADE, related_name="code")
    kind = models.CharField(max_length=8, choices=Kind, default=Kind.GIT)
    address = models.CharField(max_length=300, blank=True)       # git: tuner.gate.code.services
    folder = models.CharField(max_length=200, blank=True)        # inside, first on the path of the suite's processes; "": its root
    allowed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    changed = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return self.address or "archives"


class SuiteArchive(BelowProject):
    """The code of one build, as it was uploaded."""

    project_path = "code__suite__project"

    code = models.ForeignKey(SuiteCode, on_delete=models.CASCADE, related_name="archives")
    build = models.CharField(max_length=80)
    sha256 = models.CharField(max_length=64)
    size_bytes = models.IntegerField()
    data = models.BinaryField()
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created", "-id"]
        constraints = [models.UniqueConstraint(fields=["code", "build"], name="suitearchive_once")]

    def __str__(self) -> str:
        return f"{self.build} {self.sha256[:12]}"


class CodeFetch(BelowProject, LeasedJob):
    """One try to fetch the code of a build, on a worker, with nothing measured."""

    project_path = "code__suite__project"

    class Status(models.TextChoices):
        WAITING = "waiting"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        STOPPED = "stopped"       # by a person: `said` names who

    code = models.ForeignKey(SuiteCode, on_delete=models.CASCADE, related_name="fetches")
    build = models.CharField(max_length=80)
    status = models.CharField(max_length=8, choices=Status, default=Status.WAITING)
    said = models.CharField(max_length=200, blank=True)          # how far it is
    commit = models.CharField(max_length=80, blank=True)         # git's, or "sha256:" and the archive's
    files = models.IntegerField(null=True)
    size_bytes = models.BigIntegerField(null=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    leases: ClassVar[Leases[CodeFetch]] = Leases(Status.WAITING, Status.RUNNING)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["status", "heartbeat"], name="codefetch_status")]

    def __str__(self) -> str:
        return f"{self.code_id} {self.build}"


