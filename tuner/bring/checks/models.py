"""Rows of kernel files that somebody pasted into the form."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models

from workers.leases import LeasedJob, Leases
from workers.scope import OfProject


class KernelCheck(OfProject, LeasedJob):
    """One file, what its text says, and what a worker found when it compiled samples of it. `status` is the truth of the job."""

    class Status(models.TextChoices):
        WAITING = "waiting"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        STOPPED = "stopped"

    file = models.CharField(max_length=80)             # a name, without a folder
    text = models.TextField()                          # "" until a worker has fetched it
    folder = models.CharField(max_length=250, blank=True, db_default="")         # of the file, below the root of `siblings`
    siblings = models.JSONField(null=True, blank=True)          # {path: text} of files that come with it, as it imports them
    source = models.JSONField(null=True, blank=True)   # of a file that was named: sources.read_source
    shape = models.JSONField(default=dict, blank=True)           # {"M": 4096, …}: values of dimensions and other whole numbers
    dtype = models.CharField(max_length=8, blank=True)
    status = models.CharField(max_length=8, choices=Status, default=Status.WAITING)
    result = models.JSONField(default=dict, blank=True)          # {"file", "operators"}, as `operators check --json` says it
    adapters = models.JSONField(default=list, blank=True)        # tuner.bring.pasted.adapters_of, from the text alone
    compiled = models.IntegerField(default=0)          # samples so far …
    samples = models.IntegerField(default=0)           # … of how many; 0: not known yet
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    leases: ClassVar[Leases[KernelCheck]] = Leases(Status.WAITING, Status.RUNNING)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["status", "heartbeat"], name="kernelcheck_status")]

    @property
    def title(self) -> str:
        """Return the file's name, or where its files are looked for."""
        source = self.source or {}
        return self.file or str(source.get("address") or f"{source.get('name')}=={source.get('version')}")

    def __str__(self) -> str:
        return self.title


