"""Rows: what was uploaded, what was found in it, what may be captured. Launches themselves live in the object store."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import MD5
from django.shortcuts import get_object_or_404

from profiles.advice.models import AdviceDecision
from profiles.ceilings.models import CeilingRun
from profiles.families.models import BuildChange, BuildPair, FamilyEdit, FamilyNote, FamilyRule, KernelFamily, KernelShape
from profiles.fleet.models import (
    FleetAgent,
    FleetBatch,
    FleetCapture,
    FleetContext,
    FleetDay,
    FleetGpu,
    FleetHour,
    FleetKernel,
    FleetMonth,
    FleetSignature,
)
from profiles.retention.models import Keeping
from profiles.running.models import CaptureSchedule, EngineCapture, EngineFetch, EngineServer
from profiles.upload.models import StoredUpload
from workers.leases import JobStatus, LeasedJob, LeasedRow, Leases
from workers.scope import BelowProject, OfProject

__all__ = ["AdviceDecision", "BuildChange", "BuildPair", "Capture", "CaptureFile", "CaptureSchedule", "CaptureTarget",
           "CeilingRun", "EngineCapture", "EngineFetch", "EngineServer", "FamilyEdit", "FamilyNote", "FamilyRule", "Finding",
           "FleetAgent", "FleetBatch", "FleetCapture", "FleetContext", "FleetDay", "FleetGpu", "FleetHour",
           "FleetKernel", "FleetMonth", "FleetSignature", "Keeping", "KernelFamily", "KernelShape", "KernelStat",
           "LaunchCounters", "Profile", "SavedQuery", "StoredUpload", "TimelineNote", "first_uploads",
           "held_by"]


class Profile(OfProject, LeasedRow):
    """One uploaded, captured or recorded profile. `status` is the truth of its ingest."""

    class Status(models.TextChoices):
        UPLOADED = "uploaded"       # bytes stored, waiting for an ingest worker
        INGESTING = "ingesting"
        READY = "ready"
        FAILED = "failed"

    class Kind(models.TextChoices):
        UNKNOWN = ""
        TRACE = "trace"             # what ran when
        COUNTERS = "counters"       # hardware counters per launch
        SUMMARY = "summary"         # sums that a tool made: kernels and tables, no timeline

    name = models.CharField(max_length=300)
    status = models.CharField(max_length=12, choices=Status, default=Status.UPLOADED)
    kind = models.CharField(max_length=12, choices=Kind, default=Kind.UNKNOWN, blank=True)
    format = models.CharField(max_length=24, blank=True)
    build = models.CharField(max_length=80, blank=True, db_index=True)     # git sha or name of the build
    model = models.CharField(max_length=120, blank=True)
    tags = ArrayField(models.CharField(max_length=60), default=list, blank=True)
    notes = models.TextField(blank=True)
    recorded = models.CharField(max_length=120, blank=True)                # "recorded on NVIDIA H200, 2026-10" for examples
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)

    file_name = models.CharField(max_length=300)
    upload_key = models.CharField(max_length=400)
    upload_bytes = models.BigIntegerField(default=0)
    request_key = models.CharField(max_length=80, blank=True, default="", db_default="")   # Idempotency-Key of its upload
    sha256 = models.CharField(max_length=64, blank=True, db_index=True)

    error = models.JSONField(null=True, blank=True)                        # {"where", "what", "hint"}
    integrity = models.JSONField(default=dict, blank=True)                 # trace.Integrity.as_json()
    summary = models.JSONField(default=dict, blank=True)                   # analysis.breakdown.Breakdown / counters facts
    metadata = models.JSONField(default=dict, blank=True)                  # versions and settings the file states

    gpu = models.CharField(max_length=120, blank=True)
    steps = models.IntegerField(null=True)
    wall_ns = models.BigIntegerField(null=True)
    busy_ns = models.BigIntegerField(null=True)
    launches = models.BigIntegerField(default=0)                           # kernels only
    gpu_time_ns = models.BigIntegerField(null=True, default=0)             # summed kernel durations; null: none is stated
    top_kernel = models.TextField(blank=True)

    follow_due = models.DateTimeField(null=True)                           # what follows on ready is not done; by nobody since
    seconds = models.FloatField(null=True)                                 # from opening the file to ready
    peak_rss_bytes = models.BigIntegerField(null=True)
    stored_bytes = models.BigIntegerField(null=True)                       # columns and tiles, without the upload

    leases: ClassVar[Leases[Profile]] = Leases(Status.UPLOADED, Status.INGESTING)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["status", "heartbeat"]), GinIndex(fields=["tags"]),
                   models.Index(fields=["follow_due"], name="profile_follow_due", condition=Q(follow_due__isnull=False))]
        constraints = [
            models.CheckConstraint(name="profile_failed_has_error", condition=~Q(status="failed") | Q(error__isnull=False)),
            models.UniqueConstraint(fields=["project", "owner", "request_key"], condition=~Q(request_key=""),
                                    name="profile_request_key_once"),
            models.CheckConstraint(name="profile_upload_bytes_positive", condition=Q(upload_bytes__gte=0)),
        ]

    def __str__(self) -> str:
        return self.name


def first_uploads(profiles: models.QuerySet[Profile]) -> models.QuerySet[Profile]:
    """Return `profiles` without those whose bytes are all in another one among them: the same file counts once.

    Uploaded twice, the older one counts; alone and again among the ranks of a job, the job.
    """
    again = profiles.order_by().filter(sha256=models.OuterRef("sha256"), pk__lt=models.OuterRef("pk")).exclude(sha256="")
    return profiles.filter(~models.Exists(again)).exclude(pk__in=held_by(profiles).values("held"))


def held_by(profiles: models.QuerySet[Profile]) -> models.QuerySet[Any, dict[str, Any]]:
    """Return pairs (`held`, `holder`): a profile all of whose files another one of `profiles` has, and more, or since longer."""
    uploads: Any = StoredUpload.profiles.through._default_manager

    def files_of(which: str) -> models.Subquery:
        counted = uploads.filter(profile=models.OuterRef(which)).order_by().values("profile").annotate(n=models.Count("pk"))
        return models.Subquery(counted.values("n"), output_field=models.IntegerField())

    pairs = (uploads.annotate(held=F("profile_id"), holder=F("storedupload__profiles"))
             .filter(holder__in=profiles.order_by().values("pk")).exclude(holder=F("held")).order_by()
             .values("held", "holder").annotate(shared=models.Count("storedupload"))
             .annotate(own=files_of("held"), others=files_of("holder")))
    whole: models.QuerySet[Any, dict[str, Any]] = pairs.filter(shared=F("own")).filter(
        Q(others__gt=F("own")) | Q(holder__lt=F("held")))
    return whole


class KernelStat(BelowProject):
    """One kernel of one profile: the row of the kernel table."""

    project_path = "profile__project"

    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="kernels")
    name = models.TextField()                          # demangled, full
    short_name = models.CharField(max_length=200)
    family = models.ForeignKey(KernelFamily, null=True, on_delete=models.SET_NULL, related_name="stats")
    category = models.CharField(max_length=16)         # "compute" | "communication"
    launches = models.BigIntegerField()
    total_ns = models.BigIntegerField(null=True)       # null, as mean and share: counters that were taken without a duration
    mean_ns = models.FloatField(null=True)
    p50_ns = models.FloatField(null=True)              # these four: null where a tool's sums do not state them
    p95_ns = models.FloatField(null=True)
    min_ns = models.BigIntegerField(null=True)
    max_ns = models.BigIntegerField(null=True)
    share_pct = models.FloatField(null=True)           # of the profile's summed kernel time, 0-100
    bound = models.CharField(max_length=16, blank=True)       # "memory" | "compute" | "latency" | "" = unknown
    bound_reason = models.TextField(blank=True)        # the numbers it rests on, or why it is unknown
    registers_per_thread = models.IntegerField(null=True)
    smem_bytes = models.BigIntegerField(null=True)
    occupancy_pct = models.FloatField(null=True)

    class Meta:
        ordering = [F("total_ns").desc(nulls_last=True), "id"]
        # by digest: a btree row ends at 2704 bytes, C++ template names do not
        constraints = [models.UniqueConstraint(F("profile"), MD5("name"), name="kernelstat_once_per_profile")]
        indexes = [models.Index(fields=["short_name"])]

    def __str__(self) -> str:
        return self.short_name

    @classmethod
    def find_or_404(cls, profile_id: int, kernel_id: int) -> KernelStat:
        """Return a kernel with its profile. Raises Http404 where this profile has no such kernel."""
        return get_object_or_404(cls.objects.select_related("profile"), pk=kernel_id, profile_id=profile_id)


class LaunchCounters(BelowProject):
    """One launch with hardware counters. All raw metrics stay in the object store; `facts` is what pages read."""

    project_path = "profile__project"

    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="counter_launches")
    kernel = models.ForeignKey(KernelStat, on_delete=models.CASCADE, related_name="counter_launches")
    index = models.IntegerField()
    duration_ns = models.FloatField(null=True)         # gpu__time_duration.sum
    grid = models.CharField(max_length=60, blank=True)
    block = models.CharField(max_length=60, blank=True)
    facts = models.JSONField(default=dict)             # analysis.counters.LaunchFacts as JSON
    rules = models.JSONField(default=list)             # [trace.Rule as JSON]
    incomplete = models.TextField(blank=True)

    class Meta:
        ordering = ["index"]
        constraints = [models.UniqueConstraint(fields=["profile", "index"], name="launchcounters_once")]

    def __str__(self) -> str:
        return f"{self.kernel} #{self.index}"


class Finding(BelowProject):
    """Advice with the numbers it rests on, ranked."""

    project_path = "profile__project"

    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="findings")
    kernel = models.ForeignKey(KernelStat, null=True, on_delete=models.CASCADE, related_name="findings")
    source = models.CharField(max_length=24, blank=True)      # the topic that found it; "": the ingest
    rule = models.CharField(max_length=60)
    severity = models.CharField(max_length=12)         # "high" | "medium" | "info"
    title = models.TextField()                         # one sentence with numbers
    advice = models.TextField(blank=True)
    numbers = models.JSONField(default=dict)           # name -> value, units in the names
    worth_ns = models.FloatField(null=True)            # time that could be won back, where it can be known

    class Meta:
        ordering = ["-worth_ns", "id"]

    def __str__(self) -> str:
        return self.title


class CaptureTarget(OfProject):
    """A program that owners allow to be profiled: an argument vector, never a shell string."""

    name = models.CharField(max_length=120)
    description = models.TextField(blank=True)
    argv = ArrayField(models.CharField(max_length=1000))
    cwd = models.CharField(max_length=1000, blank=True)
    env = models.JSONField(default=dict, blank=True)
    enabled = models.BooleanField(default=True)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="capturetarget_once")]

    def __str__(self) -> str:
        return self.name


class Capture(OfProject, LeasedJob):
    """One asked-for capture of a target by one of the capture tools. `status` is its truth."""

    Status = JobStatus

    target = models.ForeignKey(CaptureTarget, on_delete=models.PROTECT, related_name="captures")
    tool = models.CharField(max_length=8)              # a name in profiles.capture.tools.CAPTURE_TOOLS
    options = models.JSONField(default=dict)           # the tool's Options as JSON
    build = models.CharField(max_length=80, blank=True)
    model = models.CharField(max_length=120, blank=True)
    tags = ArrayField(models.CharField(max_length=60), default=list, blank=True)
    status = models.CharField(max_length=12, choices=Status, default=Status.QUEUED)
    log = models.TextField(blank=True)                 # tail, bounded
    facts = models.JSONField(default=dict, blank=True)      # {"metrics": {wildcard: names}, "overhead": {…}}: what the worker found
    profile = models.ForeignKey(Profile, null=True, on_delete=models.SET_NULL, related_name="captures")
    baseline = models.ForeignKey(Profile, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")   # beside the result
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    stop_asked = models.DateTimeField(null=True)       # while it runs: the tool is to finish its report now
    dumps_asked = models.IntegerField(default=0)       # memory snapshots asked for while it runs, of this attempt

    leases: ClassVar[Leases[Capture]] = Leases(Status.QUEUED, Status.RUNNING)

    class Meta:
        ordering = ["-created", "-id"]

    def __str__(self) -> str:
        return f"{self.tool} {self.target}"


class CaptureFile(BelowProject):
    """A file that a capture left: part of its profile, a profile of its own, or kept for download."""

    project_path = "capture__project"

    capture = models.ForeignKey(Capture, on_delete=models.CASCADE, related_name="files")
    role = models.CharField(max_length=8)              # profiles.capture.tools.tool: PROFILE, LINKED, KEPT
    name = models.CharField(max_length=300)
    what = models.CharField(max_length=200, blank=True)                    # the tool's words for it
    profile = models.ForeignKey(Profile, null=True, on_delete=models.SET_NULL, related_name="capture_files")   # what it became
    key = models.CharField(max_length=400, blank=True)                     # in the store; "": the bytes are the profile's upload
    bytes = models.BigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.name


SMALL_UPLOAD_BYTES = 4_000_000          # as it came, packed or not


def is_small_upload() -> Q:
    """Match uploads that wait in the queue of small ones: what took a worker down, or lost one, is read with the large ones."""
    return Q(upload_bytes__lte=SMALL_UPLOAD_BYTES, attempts=0)


def ingest_queue(profile: Profile) -> str:
    """Return the queue in which an upload waits (`workers.jobs.QUEUES`)."""
    return "small" if profile.upload_bytes <= SMALL_UPLOAD_BYTES and not profile.attempts else "ingest"


class TimelineNote(BelowProject):
    """What somebody wrote at a place of a timeline, for everybody who reads the profile; without a text, a bookmark."""

    project_path = "profile__project"

    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="timeline_notes")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    track = models.IntegerField(null=True)             # number of the track; null: bound to the time alone
    depth = models.IntegerField(null=True)             # of the slice that it stands on
    start_ns = models.BigIntegerField()
    end_ns = models.BigIntegerField()                  # = start_ns: a moment
    text = models.TextField(blank=True)
    created = models.DateTimeField(auto_now_add=True)
    changed = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["start_ns", "id"]
        constraints = [models.CheckConstraint(name="timelinenote_ends_after_start",
                                              condition=Q(end_ns__gte=F("start_ns"), start_ns__gte=0))]
        permissions = [("moderate_timelinenote", "Can change and delete notes of others")]

    def __str__(self) -> str:
        return self.text[:60] or f"bookmark at {self.start_ns} ns"


class SavedQuery(OfProject):
    """A query that somebody keeps for the team: everybody may run it, its owner and the product's owners may change it."""

    name = models.CharField(max_length=120)
    description = models.TextField(blank=True)
    sql = models.TextField()
    chart = models.JSONField(default=dict, blank=True)     # {"kind", "x", "y"}: how its rows are drawn
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)
    changed = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name", "id"]
        verbose_name_plural = "saved queries"
        permissions = [("moderate_savedquery", "Can change and delete queries of others")]

    def __str__(self) -> str:
        return self.name
