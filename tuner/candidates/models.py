"""Rows of candidates: kernels that were submitted for an operator, and where an owner lets their code run."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models

from workers.leases import LeasedJob, Leases
from workers.scope import OfProject

PER_DAY, SECONDS = 50, 180


class CandidatePermit(OfProject):
    """Candidates of this operator may run, in this project. Without a row they may not."""

    operator = models.CharField(max_length=60)
    per_day = models.PositiveIntegerField(default=PER_DAY)       # candidates of one token (or person on the page) a UTC day
    seconds = models.PositiveIntegerField(default=SECONDS)       # that one may hold a GPU
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["operator"]
        constraints = [models.UniqueConstraint(fields=["project", "operator"], name="candidatepermit_once")]

    def __str__(self) -> str:
        return f"candidates of {self.operator}"


class Candidate(OfProject, LeasedJob):
    """One kernel file, and what came of judging it. `status` is the truth of the job; `verdict` of the kernel."""

    class Status(models.TextChoices):
        WAITING = "waiting"
        RUNNING = "running"
        DONE = "done"             # judged: `verdict` says how, FAILED where it does not run
        FAILED = "failed"         # not judged: no sandbox, no GPU, a fault of the operator's own code
        CANCELLED = "cancelled"

    class Stage(models.TextChoices):
        COMPILE = "compile"       # without a GPU
        MEASURE = "measure"

    class Review(models.TextChoices):
        OPEN = "open"
        ACCEPTED = "accepted"
        DECLINED = "declined"

    operator = models.CharField(max_length=60)
    dtype = models.CharField(max_length=16)
    shape = models.JSONField(default=dict)             # {"M": 4096, …}
    text = models.TextField()                          # the whole file, as it is judged
    diff = models.TextField(blank=True)                # as submitted, where it was a diff
    base_path = models.CharField(max_length=200, blank=True)     # the operator's file beside it: what a diff is against
    base_hash = models.CharField(max_length=64, blank=True)      # SHA-256 of that file
    config = models.JSONField(null=True, blank=True)   # parameters for the launch; null: the operator's default
    wanted_gpu = models.CharField(max_length=120, blank=True)    # model; "": any
    note = models.TextField(blank=True)                # what was tried and why
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="children")
    series = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="attempts_of")     # its first

    status = models.CharField(max_length=12, choices=Status, default=Status.WAITING)
    stage = models.CharField(max_length=8, choices=Stage, default=Stage.COMPILE)
    step = models.CharField(max_length=60, blank=True)           # what the judge does now
    verdict = models.CharField(max_length=12, blank=True)        # tuner.candidates.verdicts.Verdict
    reason = models.CharField(max_length=600, blank=True)
    answer = models.JSONField(default=dict, blank=True)          # what the judge measured: tuner.candidates.answer
    gpu = models.CharField(max_length=120, blank=True)
    environment = models.JSONField(default=dict, blank=True)     # driver, cuda, torch, triton, clocks

    review = models.CharField(max_length=8, choices=Review, default=Review.OPEN)
    review_note = models.CharField(max_length=1000, blank=True)
    reviewed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    reviewed = models.DateTimeField(null=True, blank=True)

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    token_key = models.CharField(max_length=40, blank=True)      # first characters of the API token that submitted it; "": the page
    token_name = models.CharField(max_length=80, blank=True)
    seconds = models.PositiveIntegerField(default=SECONDS)       # that it may hold a GPU

    leases: ClassVar[Leases[Candidate]] = Leases(Status.WAITING, Status.RUNNING)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["status", "heartbeat"], name="candidate_status"),
                   models.Index(fields=["operator", "created"], name="candidate_operator")]

    def __str__(self) -> str:
        return f"candidate {self.pk} of {self.operator}"


