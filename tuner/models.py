"""Rows of the tuner: jobs, every trial of them (losers too), and the configurations that launches are served."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from workers.leases import LeasedJob, Leases
from workers.scope import BelowProject, OfProject


class TuneJob(OfProject, LeasedJob):
    """One search. `status` is its truth; a killed worker's job goes on from its trials."""

    class Status(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        PAUSED = "paused"         # by a person; waits for "resume", a worker is free for others meanwhile
        DONE = "done"
        STOPPED = "stopped"       # by a person; what was measured is kept
        FAILED = "failed"

    operator = models.CharField(max_length=60)
    shape = models.JSONField()                         # {"M": 4096, …}
    dtype = models.CharField(max_length=16)
    device = models.CharField(max_length=120)          # "gpu" or "replay:<landscape file stem>"
    strategy = models.CharField(max_length=40)
    seed = models.BigIntegerField(default=0)
    purpose = models.CharField(max_length=16, default="search")      # "revalidate": of before suite jobs measured winners again
    only = models.JSONField(null=True, blank=True)     # configurations to measure in this order, and no search
    first = models.JSONField(default=list, blank=True)           # tried before the strategy is asked
    space = models.JSONField(null=True, blank=True)    # tuner.spaces.edit.Edit.as_json; null: the operator's own
    effort = models.CharField(max_length=16, blank=True)         # tuner.jobs.create_services; "": numbers of one's own
    budget_trials = models.IntegerField()
    budget_seconds = models.FloatField()
    timing = models.CharField(max_length=8, default="cold")      # tuner.tuning.measure.policy.KINDS: how configurations are timed
    plateau = models.IntegerField(null=True, blank=True)         # trials in a row that win nothing; null: never ends by it
    ceiling_pct = models.FloatField(null=True, blank=True)       # % of the ceiling that ends it; null: never
    group = models.ForeignKey("tuner.TuneGroup", null=True, blank=True, on_delete=models.SET_NULL, related_name="jobs")
    group_place = models.IntegerField(default=0)       # in its group, from 0
    worth_s = models.FloatField(null=True, blank=True)           # GPU-seconds of the fleet that a winner may save; null: unknown
    priority = models.FloatField(null=True, blank=True)          # a person's place in the queue, highest first; null: by worth
    status = models.CharField(max_length=12, choices=Status, default=Status.QUEUED)
    stop_requested = models.BooleanField(default=False)
    pause_requested = models.BooleanField(default=False)
    ended_by = models.CharField(max_length=12, blank=True)       # trials | seconds | plateau | ceiling | space | stopped

    gpu = models.CharField(max_length=120, blank=True)           # as the device reports it
    recorded = models.CharField(max_length=120, blank=True)      # "recorded on NVIDIA H200, …" for replay
    environment = models.JSONField(default=dict)       # driver, cuda, torch, triton, clocks at start
    toolkit = models.CharField(max_length=80, blank=True)        # tuner.cache.rules.toolkit_text(environment)
    source_hash = models.CharField(max_length=64, blank=True)    # of the kernel's source
    space_size = models.IntegerField(null=True)        # configurations in the space
    valid_size = models.IntegerField(null=True)        # after pruning by constraints
    pruned = models.JSONField(default=dict)            # reason -> configurations, before compiling
    library_ms = models.FloatField(null=True)          # cuBLAS / torch in the same session
    default_ms = models.FloatField(null=True)          # the operator's default configuration, same session
    policy = models.JSONField(default=dict)            # how it was measured
    best_ms = models.FloatField(null=True)
    best_config = models.JSONField(null=True)
    finalists = models.JSONField(default=list)         # interleaved re-measurement
    counters = models.JSONField(default=dict)          # what the runners counted: GPU busy seconds, children replaced, …

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    elapsed_s = models.FloatField(default=0)           # over all attempts
    version = models.BigIntegerField(db_default=0, editable=False)         # changes of the row so far, counted by a trigger

    leases: ClassVar[Leases[TuneJob]] = Leases(Status.QUEUED, Status.RUNNING)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["status", "heartbeat"])]
        constraints = [
            models.CheckConstraint(name="tunejob_budget_positive", condition=Q(budget_trials__gt=0) & Q(budget_seconds__gt=0)),
            models.CheckConstraint(name="tunejob_plateau_positive", condition=Q(plateau=None) | Q(plateau__gt=0)),
            models.CheckConstraint(name="tunejob_ceiling_pct_range",
                                   condition=Q(ceiling_pct=None) | (Q(ceiling_pct__gt=0) & Q(ceiling_pct__lte=100))),
        ]

    def __str__(self) -> str:
        return f"{self.operator} {self.shape} on {self.device}"




class TrialRow(BelowProject):
    """One configuration that was compiled or run, and what came of it."""

    project_path = "job__project"

    job = models.ForeignKey(TuneJob, on_delete=models.CASCADE, related_name="trials")
    number = models.IntegerField()                     # order in which it was known, from 0
    worker = models.CharField(max_length=120, blank=True)        # who measured it …
    gpu_uuid = models.CharField(max_length=64, blank=True)       # … on which physical device; "" for a replay
    config = models.JSONField()
    config_key = models.CharField(max_length=200)      # canonical text of config: unique within the job
    outcome = models.CharField(max_length=12)          # "measured" | "rejected"
    reason = models.CharField(max_length=40, blank=True)       # rejected: trial.Reason
    message = models.TextField(blank=True)
    median_ms = models.FloatField(null=True)
    min_ms = models.FloatField(null=True)
    p90_ms = models.FloatField(null=True)
    n = models.IntegerField(null=True)                 # samples
    facts = models.JSONField(default=dict)             # registers, spills, smem_bytes, relative_error, compile_s, clocks, samples
    at_s = models.FloatField()                         # seconds of job time when it was known
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["job", "config_key"], name="trial_once_per_config"),
            models.UniqueConstraint(fields=["job", "number"], name="trial_number_once"),
            models.CheckConstraint(name="trial_measured_has_time", condition=~Q(outcome="measured") | Q(median_ms__gt=0)),
        ]

    def __str__(self) -> str:
        return f"{self.job_id}#{self.number}"


class CachedConfig(OfProject):
    """What launches are served for one key, with its evidence: a tune job, or a listener or file that never go above one."""

    operator = models.CharField(max_length=60)
    dtype = models.CharField(max_length=16)
    shape = models.JSONField(default=dict)             # at which it was measured
    shape_key = models.CharField(max_length=200, default="", blank=True)      # canonical text of shape
    shape_bucket = models.CharField(max_length=200)    # tuner.cache.rules.bucket(shape) under the operator's bucket policy
    gpu = models.CharField(max_length=120)             # model, never one physical device
    compute_capability = models.CharField(max_length=8, blank=True)
    toolkit = models.CharField(max_length=80)          # "cuda 13.0, triton 3.6.0"
    driver = models.CharField(max_length=40, blank=True)
    policy = models.CharField(max_length=16, blank=True)         # how it was timed: cold, warm, graph
    flush = models.CharField(max_length=40, blank=True, db_default="")       # policy.flush_text: how L2 was flushed; "": not known
    source_hash = models.CharField(max_length=64, blank=True)    # of the kernel's source
    config = models.JSONField()
    median_ms = models.FloatField(null=True)           # unknown of a file that holds no times
    default_ms = models.FloatField(null=True)
    library_ms = models.FloatField(null=True)
    evidence = models.JSONField(default=dict)          # n, guard against the default, near-ties, policy, clocks, history
    recorded = models.CharField(max_length=120, blank=True)
    state = models.CharField(max_length=16, default="verified")  # tuner.cache.rules.State
    state_why = models.CharField(max_length=300, blank=True)
    origin = models.CharField(max_length=16, default="tune")     # tuner.cache.rules.Origin
    job = models.ForeignKey(TuneJob, null=True, blank=True, on_delete=models.PROTECT, related_name="cached")
    imported = models.ForeignKey("tuner.ImportedFile", null=True, blank=True, on_delete=models.SET_NULL, related_name="cached")
    updated = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["operator", "dtype", "shape_bucket", "gpu", "origin", "id"]
        indexes = [models.Index(fields=["gpu", "state"], name="cachedconfig_gpu_state")]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "operator", "dtype", "shape_key", "gpu", "toolkit", "driver", "policy", "flush",
                        "source_hash", "recorded", "origin"],
                name="cachedconfig_key",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.operator} {self.dtype} {self.shape_bucket} {self.gpu}"


from tuner.bring.checks.models import KernelCheck  # noqa: E402
from tuner.bring.own.models import OwnKernel  # noqa: E402
from tuner.cache.compiled.models import CompiledFile  # noqa: E402
from tuner.cache.entries.models import BucketPolicy, GpuEnvironment, ImportedFile  # noqa: E402
from tuner.cache.serve.models import ConfigSnapshot, ServedCount, SnapshotView  # noqa: E402
from tuner.candidates.models import Candidate, CandidatePermit  # noqa: E402
from tuner.clocks.models import GpuClockRule  # noqa: E402
from tuner.gate.baselines.models import BaselineChange  # noqa: E402  they stand beside the rows above
from tuner.gate.builds.models import Build, KernelSeries, Regression  # noqa: E402
from tuner.gate.channels.models import Delivery, Notified  # noqa: E402
from tuner.gate.code.models import CodeFetch, SuiteArchive, SuiteCode  # noqa: E402
from tuner.gate.environments.models import RevalidationPolicy  # noqa: E402
from tuner.gate.production.models import ProductionDay, ProductionPoint, ProductionRegression  # noqa: E402
from tuner.gate.suites.models import KernelRun, Suite, SuiteCapture, SuiteJob, SuiteKernel  # noqa: E402
from tuner.gate.verdicts.models import Gate, GateKernel, SlowerVerdict  # noqa: E402
from tuner.jobs.models import Quarantine, TuneGroup, TuneMember, TuneTask  # noqa: E402  they refer to the rows above
from tuner.spaces.models import ListedSpace  # noqa: E402
from tuner.team.models import OperatorAudit, OperatorPackage  # noqa: E402

__all__ = ["BaselineChange", "BucketPolicy", "Build", "CachedConfig",
           "Candidate", "CandidatePermit", "CodeFetch", "CompiledFile", "ConfigSnapshot", "Delivery", "Gate", "GateKernel",
           "GpuClockRule", "GpuEnvironment", "ImportedFile", "KernelCheck", "KernelRun", "KernelSeries", "ListedSpace", "Notified",
           "OperatorAudit", "OperatorPackage", "OwnKernel", "ProductionDay", "ProductionPoint",
           "ProductionRegression", "Quarantine", "Regression", "RevalidationPolicy", "ServedCount",
           "SlowerVerdict", "SnapshotView", "Suite", "SuiteArchive", "SuiteCapture", "SuiteCode", "SuiteJob",
           "SuiteKernel", "TrialRow", "TuneGroup", "TuneJob", "TuneMember", "TuneTask"]
