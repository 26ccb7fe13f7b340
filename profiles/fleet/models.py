"""Rows of the fleet: agents, batches that wait, and what launches are called. The sums themselves: `tables`."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models

from workers.scope import BelowProject, FleetWide, OfProject


class FleetAgent(OfProject):
    """One agent of one host, as it last told of itself."""

    name = models.CharField(max_length=200)
    machine = models.CharField(max_length=64, blank=True, default="", db_default="")   # as it tells: a digest of the machine's id
    token = models.ForeignKey("webapp.ApiToken", null=True, on_delete=models.SET_NULL, related_name="+")    # whose its name is
    host = models.CharField(max_length=200, blank=True)
    simulated = models.BooleanField(default=False)
    first_seen = models.DateTimeField(auto_now_add=True)
    last_seen = models.DateTimeField(null=True)
    conflicts = models.BigIntegerField(default=0, db_default=0)     # batches of another content or token under what is its
    conflict = models.CharField(max_length=300, blank=True, default="", db_default="")     # the last of them
    conflicted = models.DateTimeField(null=True)
    refused = models.BigIntegerField(default=0, db_default=0)       # batches of minutes that are not taken
    refused_why = models.CharField(max_length=300, blank=True, default="", db_default="")
    batches = models.BigIntegerField(default=0)
    received_bytes = models.BigIntegerField(default=0)
    lag_s = models.FloatField(null=True)                    # from the end of its newest minute to when it came
    run = models.BigIntegerField(default=0)                 # when it was started, ms since 1970, as it tells
    state = models.JSONField(default=dict, blank=True)      # of the agent itself: version, memory, spool, loss by job

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["project", "name", "machine"], name="fleetagent_machine_once")]

    def __str__(self) -> str:
        return self.name


class FleetBatch(BelowProject):
    """A batch that was acknowledged. Its sequence and digest stay when it is merged: what comes twice counts once, and another
    content under the same sequence is no batch that was acknowledged."""

    project_path = "agent__project"

    agent = models.ForeignKey(FleetAgent, on_delete=models.CASCADE, related_name="batch_rows")
    sequence = models.BigIntegerField()
    sha256 = models.CharField(max_length=64, blank=True, default="", db_default="")     # of the payload; "" of older rows
    received = models.DateTimeField(auto_now_add=True)
    rows = models.IntegerField(default=0)
    payload = models.BinaryField(null=True)                 # None once merged
    # names the merge that it is in, where the sums are in another database: what was begun is done again with the same batches
    merge = models.BigIntegerField(null=True)
    error = models.CharField(max_length=300, blank=True)    # of one that no worker could merge: its payload stays

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "sequence"], name="fleetbatch_once")]
        indexes = [models.Index(fields=["id"], name="fleetbatch_waiting", condition=models.Q(payload__isnull=False, error=""))]

    def __str__(self) -> str:
        return f"{self.agent_id} {self.sequence}"


class FleetCapture(OfProject):
    """A deep capture of one process that was ordered here; its agent learns of it with the receipt of its next batch."""

    class State(models.TextChoices):
        ORDERED = "ordered"
        ASKED = "asked"             # the process was told to record
        UPLOADING = "uploading"
        UPLOADED = "uploaded"
        FAILED = "failed"
        STOPPED = "stopped"

    agent = models.ForeignKey(FleetAgent, on_delete=models.CASCADE, related_name="captures")
    pid = models.IntegerField()
    job = models.CharField(max_length=200, blank=True)
    rank = models.IntegerField(null=True)
    steps = models.IntegerField(default=0)                  # 0: a time
    milliseconds = models.IntegerField(default=0)
    start_ms = models.BigIntegerField(default=0)            # since 1970, of processes that begin together; 0: at once
    shapes = models.BooleanField(default=True)
    stacks = models.BooleanField(default=False)
    together = models.UUIDField(null=True, db_index=True)   # of processes whose traces become one profile
    part = models.CharField(max_length=400, blank=True)     # its trace in the object store until the others' are there
    cost = models.JSONField(null=True)                      # of its steps (workers.agent.deep.pace); {"why"}: unknown
    schedule = models.ForeignKey("profiles.CaptureSchedule", null=True, on_delete=models.SET_NULL, related_name="process_captures")
    why_ordered = models.CharField(max_length=300, blank=True)
    ordered_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)
    changed = models.DateTimeField(auto_now=True)
    state = models.CharField(max_length=12, choices=State.choices, default=State.ORDERED)
    why = models.CharField(max_length=300, blank=True)
    took_s = models.FloatField(null=True)                   # from the order's arrival at the agent to the whole trace
    bytes = models.BigIntegerField(null=True)
    profile = models.ForeignKey("profiles.Profile", null=True, on_delete=models.SET_NULL, related_name="fleet_captures")

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["agent"], name="fleetcapture_open", condition=models.Q(
            state__in=["ordered", "asked", "uploading"]))]

    def __str__(self) -> str:
        return f"{self.job} {self.pid}"


class FleetKernel(models.Model):
    id = models.BigIntegerField(primary_key=True)           # `naming.key_of` of the name
    name = models.TextField()
    short_name = models.CharField(max_length=80, blank=True)
    first_seen = models.DateTimeField(auto_now_add=True)

    objects = FleetWide()

    def __str__(self) -> str:
        return self.short_name


class FleetSignature(models.Model):
    """A kernel with its grid, block and shared memory."""

    id = models.BigIntegerField(primary_key=True)
    kernel = models.ForeignKey(FleetKernel, on_delete=models.CASCADE, related_name="signatures")
    grid = ArrayField(models.BigIntegerField(), size=3)
    block = ArrayField(models.BigIntegerField(), size=3)
    shared_bytes = models.BigIntegerField()

    objects = FleetWide()

    def __str__(self) -> str:
        return f"{self.kernel_id} {self.grid}"


class FleetContext(models.Model):
    """What launches of one job on one model of GPU have in common; "" is unknown."""

    id = models.BigIntegerField(primary_key=True)
    job = models.CharField(max_length=200, db_index=True)
    build = models.CharField(max_length=200)
    gpu_model = models.CharField(max_length=200)
    model = models.CharField(max_length=200)
    framework = models.CharField(max_length=200)
    driver = models.CharField(max_length=200)
    simulated = models.BooleanField(default=False)
    first_seen = models.DateTimeField(auto_now_add=True)

    objects = FleetWide()

    def __str__(self) -> str:
        return f"{self.job} {self.build}"


class FleetGpu(models.Model):
    id = models.BigIntegerField(primary_key=True)
    uuid = models.CharField(max_length=200, db_index=True)
    model = models.CharField(max_length=200)
    host = models.CharField(max_length=200, db_index=True)
    simulated = models.BooleanField(default=False)          # a simulated job was seen on it
    first_seen = models.DateTimeField(auto_now_add=True)

    objects = FleetWide()

    def __str__(self) -> str:
        return self.uuid


class FleetDay(models.Model):
    """Days with data: which hours' rows their day's rows hold, so that a question is answered from each launch once."""

    day = models.DateField(primary_key=True)
    written = models.DateTimeField()                        # when rows of hours last came
    compacted = models.BigIntegerField(default=0)           # its hours before this one (since 1970) hold one row a key
    rolled = models.DateTimeField(null=True)                # when the day was last summed of its hours; None: never
    closed = models.DateTimeField(null=True)                # from when on rows of it are refused: its hours are forgotten soon

    def __str__(self) -> str:
        return self.day.isoformat()


class FleetHour(models.Model):
    """Hours with data, and what their GPUs are told from once they rest: `compared` (docs/fleet.md, "Slow GPUs")."""

    hour = models.BigIntegerField(primary_key=True)         # since 1970
    written = models.DateTimeField()                        # when rows of it last came
    compared = models.BinaryField(null=True)                # `compared.packed`; None: rows came since, or it is too old to be kept

    class Meta:
        indexes = [models.Index(fields=["hour"], name="fleethour_compared", condition=models.Q(compared__isnull=False))]

    def __str__(self) -> str:
        return f"{self.hour}"


class FleetMonth(models.Model):
    """Months that were summed of their days; whether the sum still holds follows from `FleetDay`."""

    month = models.DateField(primary_key=True)              # its first day
    rolled = models.DateTimeField()                         # when it was last summed
    closed = models.DateTimeField(null=True)                # from when on rows of it are refused: its days are forgotten soon

    def __str__(self) -> str:
        return f"{self.month:%Y-%m}"
