"""Rows of benchmark suites: what is measured, who asked for it, and every fresh run of every kernel with its samples."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from workers.leases import LeasedJob, Leases
from workers.scope import BelowProject, InProject, OfProject


class Team(InProject["Suite"]):
    """Suites that people made. What the cache measures its winners with shows nowhere among them."""

    def get_queryset(self) -> models.QuerySet[Suite]:
        return super().get_queryset().exclude(kind=Suite.Kind.WINNERS)


class Suite(OfProject):
    """Kernels that are watched together. A gate speaks for a suite."""

    class Kind(models.TextChoices):
        OPERATORS = "operators"      # operators × shapes, run by a gpu worker (or replayed)
        TARGET = "target"            # the kernels that an owner's capture target launches, one capture per run
        UPLOADED = "uploaded"        # runs that CI measured itself and sends
        WINNERS = "winners"          # the config cache's own, one for each GPU model: its builds are configurations

    name = models.SlugField(max_length=60)
    title = models.CharField(max_length=200, blank=True)
    kind = models.CharField(max_length=12, choices=Kind, default=Kind.OPERATORS)
    device = models.CharField(max_length=120, default="gpu")     # "gpu", "gpu:<model>" or "replay:<stem of recorded runs>"
    target = models.ForeignKey("profiles.CaptureTarget", null=True, blank=True, on_delete=models.PROTECT, related_name="suites")
    build_path = models.CharField(max_length=500, blank=True)    # owners: where a build's code lies on workers, "…/{build}"
    runs = models.IntegerField(default=5)                        # fresh runs of a candidate build
    baseline_runs = models.IntegerField(default=10)              # newest fresh runs that a rolling baseline holds
    rule = models.JSONField(default=dict, blank=True)            # fields of tuner.gate.stats.rule.Rule that differ
    metrics = models.JSONField(default=dict, blank=True)         # metric -> {"max_increase": …}: tuner.gate.stats.metrics
    policy = models.JSONField(default=dict, blank=True)          # fields of tuner.tuning.measure.policy.Policy for its runs
    every_hours = models.FloatField(null=True, blank=True)       # scheduled: the newest build is measured this often
    due = models.DateTimeField(null=True, blank=True)            # next scheduled run
    capture_slower = models.BooleanField(default=False)          # a SLOWER verdict asks for counters and timelines of both builds
    definition = models.TextField(blank=True)                    # the file it was read from, as it came; "": made on a page
    enabled = models.BooleanField(default=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)
    changed = models.DateTimeField(auto_now=True)

    objects: ClassVar[Team] = Team()
    everything: ClassVar[InProject[Any]] = InProject()

    class Meta:
        ordering = ["name"]
        constraints = [models.CheckConstraint(name="suite_runs_positive", condition=Q(runs__gte=1, baseline_runs__gte=1)),
                       models.UniqueConstraint(fields=["project", "name"], name="suite_once")]

    def __str__(self) -> str:
        return self.name


class SuiteKernel(BelowProject):
    """One kernel of a suite: declared as operator and shape, or seen in a capture or an upload."""

    project_path = "suite__project"

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="kernels")
    key = models.CharField(max_length=300)             # "matmul M=4096 N=4096 K=4096 bf16": canonical, unique in the suite
    op = models.CharField(max_length=200)              # operator, or the kernel's short name
    shape = models.JSONField(default=dict, blank=True)
    dtype = models.CharField(max_length=16, blank=True)
    config_from = models.CharField(max_length=8, default="default")      # "default" | "cache" | "given"
    config = models.JSONField(null=True, blank=True)   # where given
    family = models.CharField(max_length=200)          # what regressions are grouped by: operator, or the kernel family's name
    declared = models.BooleanField(default=True)       # false: seen
    enabled = models.BooleanField(default=True)
    rule = models.JSONField(default=dict, blank=True)  # goes before the suite's
    metrics = models.JSONField(default=dict, blank=True)
    place = models.IntegerField(default=0)

    class Meta:
        ordering = ["place", "id"]
        constraints = [models.UniqueConstraint(fields=["suite", "key"], name="suitekernel_once")]

    def __str__(self) -> str:
        return self.key


class SuiteJob(BelowProject, LeasedJob):
    """One order to measure a suite: so many fresh runs of one or more builds, interleaved. `status` is its truth."""

    project_path = "suite__project"

    class Status(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        STOPPED = "stopped"
        FAILED = "failed"

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="jobs")
    gate = models.ForeignKey("tuner.Gate", null=True, blank=True, on_delete=models.SET_NULL, related_name="jobs")
    reason = models.CharField(max_length=12, default="manual")   # tuner.gate.suites.job_services.REASONS
    builds = models.JSONField()                        # [{"build": name, "configs": {kernel key: config}}], measured in turn;
    #                                                    "only": true: of this build only the kernels that have a configuration
    about = models.JSONField(default=dict, blank=True)           # of a re-validation: tuner.revalidation.services
    kernels = models.JSONField(null=True, blank=True)  # keys; null: all that are enabled
    runs = models.IntegerField()                       # of each build
    device = models.CharField(max_length=120)
    status = models.CharField(max_length=12, choices=Status, default=Status.QUEUED)
    stop_requested = models.BooleanField(default=False)
    environment = models.JSONField(default=dict, blank=True)     # as the child reports it: driver, cuda, triton, clocks
    recorded = models.CharField(max_length=120, blank=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)

    leases: ClassVar[Leases[SuiteJob]] = Leases(Status.QUEUED, Status.RUNNING)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["status", "heartbeat"], name="suitejob_status")]

    def __str__(self) -> str:
        return f"{self.suite_id} job {self.pk}"




class KernelRun(BelowProject):
    """One kernel in one fresh process: the unit of replication. Samples in µs, in the order taken."""

    project_path = "kernel__suite__project"

    shown_facts: list[Any]                # both of rows that the page of a kernel shows, which sets them
    shown_config: dict[str, Any]

    kernel = models.ForeignKey(SuiteKernel, on_delete=models.CASCADE, related_name="runs")
    build = models.ForeignKey("tuner.Build", on_delete=models.CASCADE, related_name="runs")
    job = models.ForeignKey(SuiteJob, null=True, blank=True, on_delete=models.SET_NULL, related_name="results")
    run = models.CharField(max_length=80)              # of the fresh process: all kernels of one process share it
    number = models.IntegerField(default=0)            # of the run within its job and build, from 0
    us = ArrayField(models.FloatField(), default=list)
    p50_us = models.FloatField(null=True)              # null where it was rejected
    p95_us = models.FloatField(null=True)
    n = models.IntegerField(default=0)
    rejected = models.CharField(max_length=300, blank=True)      # why there are no samples
    sm_clock_mhz = models.FloatField(null=True)        # median while it was timed; null: not sampled
    facts = models.JSONField(default=dict, blank=True)           # registers, spills, smem_bytes, clocks, metrics by name
    config = models.JSONField(null=True, blank=True)
    source_hash = models.CharField(max_length=64, blank=True)
    gpu = models.CharField(max_length=120, blank=True)           # model
    gpu_uuid = models.CharField(max_length=80, blank=True)
    toolkit = models.CharField(max_length=80, blank=True)        # tuner.cache.rules.toolkit_text: "cuda 13.0, triton 3.6.0"
    driver = models.CharField(max_length=40, blank=True)
    environment = models.JSONField(default=dict, blank=True)     # what else was said of it
    recorded = models.CharField(max_length=120, blank=True)
    profile = models.ForeignKey("profiles.Profile", null=True, blank=True, on_delete=models.SET_NULL, related_name="kernel_runs")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["created", "id"]
        # what is counted and drawn of many runs is in the index: their samples, most of a row's bytes, are not touched
        indexes = [models.Index(fields=["kernel", "gpu", "toolkit", "driver", "recorded", "build"], name="kernelrun_place",
                                include=["id", "created", "p50_us"], condition=Q(rejected="")),
                   models.Index(fields=["build"], name="kernelrun_of_build", condition=Q(rejected=""))]      # counted in lists
        constraints = [
            models.UniqueConstraint(fields=["kernel", "build", "run"], name="kernelrun_once"),
            models.CheckConstraint(name="kernelrun_timed_or_rejected", condition=Q(p50_us__gt=0) | ~Q(rejected="")),
        ]

    def __str__(self) -> str:
        return f"{self.kernel_id} of {self.build_id}, run {self.run}"


class SuiteCapture(BelowProject):
    """One capture that a suite of kind `target` asked for: when its profile is ready, its kernels become runs."""

    project_path = "job__suite__project"

    job = models.ForeignKey(SuiteJob, on_delete=models.CASCADE, related_name="captures")
    build = models.CharField(max_length=80)
    number = models.IntegerField()
    capture = models.OneToOneField("profiles.Capture", on_delete=models.CASCADE, related_name="suite_capture")

    class Meta:
        ordering = ["number", "id"]
        constraints = [models.UniqueConstraint(fields=["job", "build", "number"], name="suitecapture_once")]

    def __str__(self) -> str:
        return f"{self.job_id} {self.build} {self.number}"
