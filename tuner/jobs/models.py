"""Rows beside a tune job: groups of jobs, the workers that share one, what they were given, and what no worker runs again."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from workers.scope import BelowProject, OfProject


class TuneGroup(OfProject):
    """Many shapes tuned as one order: a model's list, or the hot shapes of a profile. What one learns, the next starts from."""

    name = models.CharField(max_length=120)
    source = models.JSONField(default=dict, blank=True)          # {"profile": id, "name": …}; {}: a list that somebody typed
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created", "-id"]

    def __str__(self) -> str:
        return self.name


class TuneMember(BelowProject):
    """One worker's part in a job: the lead asks the strategy and measures, helpers measure what the lead gives out."""

    project_path = "job__project"

    class Role(models.TextChoices):
        LEAD = "lead"
        HELPER = "helper"

    job = models.ForeignKey("tuner.TuneJob", on_delete=models.CASCADE, related_name="members")
    worker = models.CharField(max_length=120)
    role = models.CharField(max_length=8, choices=Role)
    host = models.CharField(max_length=120, blank=True)
    gpu = models.CharField(max_length=120, blank=True)           # model; "" for a replay
    gpu_uuid = models.CharField(max_length=64, blank=True)
    joined = models.DateTimeField(auto_now_add=True)
    heartbeat = models.DateTimeField(null=True)                  # null: has left
    left = models.DateTimeField(null=True)
    trials = models.IntegerField(default=0)
    reading = models.JSONField(default=dict, blank=True)         # clocks, temperature and power at the last heartbeat
    note = models.CharField(max_length=300, blank=True)          # why it left, when not because the job ended

    class Meta:
        ordering = ["joined", "id"]
        constraints = [models.UniqueConstraint(fields=["job", "worker"], name="member_once_per_job")]

    def __str__(self) -> str:
        return f"{self.worker} in {self.job_id}"


class TuneTask(BelowProject):
    """A configuration that the lead gave out. Gone in the transaction that stores its trial, or when it is taken back."""

    project_path = "job__project"

    job = models.ForeignKey("tuner.TuneJob", on_delete=models.CASCADE, related_name="tasks")
    config = models.JSONField()
    config_key = models.CharField(max_length=200)
    incumbent = models.JSONField(null=True)                      # the best so far, for racing: {"median_ms", "samples_ms"}
    worker = models.CharField(max_length=120, blank=True)        # "": nobody took it yet
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["job", "config_key"], name="task_once_per_config")]

    def __str__(self) -> str:
        return f"{self.job_id}: {self.config_key}"


class Quarantine(models.Model):
    """A configuration that crashed, hung or computed wrong somewhere: no worker of the fleet runs it again until it is lifted."""

    signature = models.CharField(max_length=64, unique=True)     # tuner.jobs.quarantine.signature
    operator = models.CharField(max_length=60)
    dtype = models.CharField(max_length=16)
    config = models.JSONField()
    config_key = models.CharField(max_length=200)
    capability = models.CharField(max_length=8, blank=True)      # compute capability: the class of GPUs it speaks for
    toolkit = models.CharField(max_length=80, blank=True)
    source_hash = models.CharField(max_length=64, blank=True)
    reason = models.CharField(max_length=40)                     # trial.Reason: crash | timeout | wrong
    message = models.TextField(blank=True)
    shape = models.JSONField(default=dict)                       # where it was seen last
    gpu = models.CharField(max_length=120, blank=True)
    job = models.ForeignKey("tuner.TuneJob", null=True, on_delete=models.SET_NULL, related_name="quarantined")
    count = models.IntegerField(default=1)                       # times seen
    first_seen = models.DateTimeField(auto_now_add=True)
    last_seen = models.DateTimeField(auto_now=True)
    lifted = models.DateTimeField(null=True, blank=True)         # null: in force
    lifted_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)

    class Meta:
        ordering = ["-last_seen", "-id"]
        indexes = [models.Index(fields=["operator", "dtype"], condition=Q(lifted=None), name="quarantine_in_force")]

    def __str__(self) -> str:
        return f"{self.operator} {self.config_key}: {self.reason}"
