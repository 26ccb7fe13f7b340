"""Rows of captures of what runs already: serving engines that may be asked, what was asked of them, and captures by a schedule."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from workers.leases import JobStatus, LeasedJob, Leases
from workers.scope import BelowProject, OfProject


class EngineServer(OfProject):
    """A vLLM or SGLang server that an owner named: engineers may capture it, nobody is shown its token."""

    class Kind(models.TextChoices):
        VLLM = "vllm", "vLLM"
        SGLANG = "sglang", "SGLang"

    class Results(models.TextChoices):
        FOLDER = "folder", "a folder that the worker sees"
        BUCKET = "bucket", "a folder of the object store"
        AGENT = "agent", "a folder of its host, fetched by the agent there"

    name = models.CharField(max_length=80)
    kind = models.CharField(max_length=8, choices=Kind)
    address = models.CharField(max_length=500)
    token = models.CharField(max_length=500, blank=True)            # sealed (workers.secret)
    results = models.CharField(max_length=8, choices=Results, default=Results.FOLDER)
    folder = models.CharField(max_length=400, blank=True)           # its traces: as the worker or its host sees it, or in the store
    host = models.CharField(max_length=200, blank=True)             # whose agent fetches them
    enabled = models.BooleanField(default=True)
    version = models.CharField(max_length=80, blank=True)           # as it answered last
    asked = models.DateTimeField(null=True)                         # when it was asked for it
    problem = models.CharField(max_length=300, blank=True)          # of that question
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="engineserver_once")]

    def __str__(self) -> str:
        return self.name


class EngineCapture(BelowProject, LeasedJob):
    """One capture of a serving engine: a worker starts and stops it over the engine's own routes and fetches what it wrote."""

    project_path = "server__project"

    Status = JobStatus

    class Until(models.TextChoices):
        SECONDS = "seconds", "a time"
        STEPS = "steps", "steps"
        SLOW = "slow", "the first slow request"

    server = models.ForeignKey(EngineServer, on_delete=models.CASCADE, related_name="captures")
    until = models.CharField(max_length=8, choices=Until, default=Until.SECONDS)
    seconds = models.FloatField(default=2.0)                        # a time; of steps and slow requests: at most
    threshold_ms = models.FloatField(null=True)                     # slow: of a request
    latency = models.CharField(max_length=8, blank=True)            # slow: "e2e" or "ttft"
    options = models.JSONField(default=dict)                        # parameters of the engine's own route
    build = models.CharField(max_length=80, blank=True)
    status = models.CharField(max_length=12, choices=Status, default=Status.QUEUED)
    phase = models.CharField(max_length=200, blank=True)            # what it is at
    started_at_engine = models.DateTimeField(null=True)             # it was told to record: whoever takes the row up stops it first
    slow_seen = models.BooleanField(null=True)                      # a slow request came within the time
    cost = models.JSONField(null=True)                              # time per output token before, during, after; {"why"}: unknown
    profile = models.ForeignKey("profiles.Profile", null=True, on_delete=models.SET_NULL, related_name="engine_captures")
    schedule = models.ForeignKey("profiles.CaptureSchedule", null=True, on_delete=models.SET_NULL, related_name="engine_captures")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)

    leases: ClassVar[Leases[EngineCapture]] = Leases(Status.QUEUED, Status.RUNNING)

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["server"], name="enginecapture_one_at_a_time",
                                               condition=Q(status__in=["queued", "running"]))]

    def __str__(self) -> str:
        return f"{self.server_id} {self.status}"


class EngineFetch(BelowProject):
    """Traces of one capture that the agent of the engine's host fetches: it learns of them as it asks for orders."""

    project_path = "capture__server__project"

    class State(models.TextChoices):
        ORDERED = "ordered"
        WATCHING = "watching"       # the agent knows what lay in the folder before
        UPLOADING = "uploading"
        FETCHED = "fetched"
        FAILED = "failed"

    capture = models.OneToOneField(EngineCapture, on_delete=models.CASCADE, related_name="fetch")
    agent = models.ForeignKey("profiles.FleetAgent", on_delete=models.CASCADE, related_name="fetches")
    folder = models.CharField(max_length=400)
    prefix = models.CharField(max_length=200)
    state = models.CharField(max_length=12, choices=State, default=State.ORDERED)
    collect = models.BooleanField(default=False)                    # the engine has stopped: what came is uploaded
    whole = models.BooleanField(default=False)                      # as the agent told: files came, and none grew lately
    why = models.CharField(max_length=300, blank=True)
    parts = models.JSONField(default=dict)                          # number -> [key in the object store, name, bytes]
    heard = models.DateTimeField(null=True)                         # when the agent spoke of it last
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.capture_id} {self.state}"


class CaptureSchedule(OfProject):
    """Captures that nobody asks for one by one: when, of what, and how many a day at most."""

    class When(models.TextChoices):
        NIGHT = "night", "every night"
        BUILD = "build", "each new build"
        REQUESTS = "requests", "one of so many requests"
        REGRESSION = "regression", "a production regression opens"

    name = models.CharField(max_length=120)
    enabled = models.BooleanField(default=True)
    when = models.CharField(max_length=12, choices=When)
    minute = models.IntegerField(default=120)                       # night: of the day, UTC
    requests = models.IntegerField(default=0)                       # requests: between two captures
    server = models.ForeignKey(EngineServer, null=True, blank=True, on_delete=models.CASCADE, related_name="schedules")
    job = models.CharField(max_length=200, blank=True)              # processes of it; "": of the regression's jobs
    host = models.CharField(max_length=200, blank=True)
    ranks = models.CharField(max_length=100, blank=True)            # "0,2-5"; "": the first `most`
    most = models.IntegerField(default=1)                           # processes
    options = models.JSONField(default=dict)                        # of `fleet.capture_services.Wanted`, or of an EngineCapture
    per_day = models.IntegerField(default=1)                        # captures of this schedule
    per_job_day = models.IntegerField(default=4)                    # captures of its job or server, whoever asked for them
    next_due = models.DateTimeField(null=True)                      # night: when; requests: when it is looked at again
    seen = models.JSONField(default=dict)                           # what it acted on: {"builds"}, {"requests"}
    last_run = models.DateTimeField(null=True)
    last_why = models.CharField(max_length=300, blank=True)         # why nothing was captured when it was due last; "": it was
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="captureschedule_once")]

    def __str__(self) -> str:
        return self.name


