"""Rows of what production says of kernels over days: its points, and from which build on a kernel takes longer."""

from __future__ import annotations

from statistics import median

from django.contrib.postgres.fields import ArrayField
from django.db import models

from tuner.gate.builds.models import Slowdown
from workers.scope import FleetWide


class ProductionDay(models.Model):
    """A day of the fleet whose points are kept. One that was summed again since is read again."""

    day = models.DateField(primary_key=True)
    summed = models.DateTimeField()                 # `FleetDay.rolled` of what was read
    computed = models.DateTimeField(auto_now=True)
    watched = models.JSONField(null=True)           # Watched.as_json; None: kept before this was counted

    objects = FleetWide()

    def __str__(self) -> str:
        return self.day.isoformat()


class ProductionPoint(models.Model):
    """What launches of one signature took on one day: of one build, on one GPU model, in one model."""

    day = models.DateField()
    signature = models.BigIntegerField()            # profiles.FleetSignature
    gpu_model = models.CharField(max_length=200)
    model = models.CharField(max_length=200, blank=True)
    simulated = models.BooleanField(default=False)
    build = models.CharField(max_length=200, blank=True)
    first_hour = models.IntegerField()              # of the day's launches, since 1970
    us = ArrayField(models.FloatField())            # medians of the day's blocks, oldest first: tuner.gate.production.series
    launches = models.BigIntegerField()
    total_ns = models.BigIntegerField()
    gpus = models.IntegerField()                    # most of them in an hour

    objects = FleetWide()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["day", "signature", "gpu_model", "model", "simulated", "build"],
                                               name="productionpoint_once")]
        indexes = [models.Index(fields=["signature", "gpu_model", "model", "day"], name="productionpoint_series")]

    def __str__(self) -> str:
        return f"{self.signature} {self.build} {self.day}"

    @property
    def middle_us(self) -> float | None:
        return median(self.us) if self.us else None


class ProductionRegression(Slowdown):
    """A kernel of the fleet that takes longer since a day or build."""

    class State(models.TextChoices):
        OPEN = "open"
        ACKNOWLEDGED = "acknowledged"    # somebody looks at it
        INTENDED = "intended"            # the new speed is meant
        FIXED = "fixed"                  # by a person's word, or back at its old speed
        GONE = "gone"                    # more days no longer show it

    signature = models.BigIntegerField()
    kernel = models.TextField()                     # full name, kept with the row: names of a simulated fleet may be forgotten
    short_name = models.CharField(max_length=80, blank=True)
    shape = models.JSONField(default=dict)          # {"grid", "block", "shared_bytes"}
    gpu_model = models.CharField(max_length=200)
    model = models.CharField(max_length=200, blank=True)
    simulated = models.BooleanField(default=False)
    from_build = models.CharField(max_length=200, blank=True)    # last that is surely not slower
    to_build = models.CharField(max_length=200, blank=True)      # first that is slower; the same where the build did not change
    since = models.DateField()                      # first day at the new speed
    ratio = models.FloatField()                     # its interval is one of 95 %
    before_us = models.FloatField()
    after_us = models.FloatField()
    p_value = models.FloatField()
    days_before = models.IntegerField()
    days_after = models.IntegerField()
    day_ns = models.BigIntegerField(default=0)      # GPU time seen of it on its newest day
    gpus = models.IntegerField(default=0)
    series = models.IntegerField(default=1)         # how many were looked at when it was found
    state = models.CharField(max_length=16, choices=State, default=State.OPEN)
    fixed_in = models.CharField(max_length=200, blank=True)
    guarded_by = models.ForeignKey("tuner.SuiteKernel", null=True, on_delete=models.SET_NULL, related_name="+")

    objects = FleetWide()

    class Meta(Slowdown.Meta):
        constraints = [models.UniqueConstraint(fields=["signature", "gpu_model", "model", "simulated", "to_build", "since"],
                                               name="productionregression_once")]

    def __str__(self) -> str:
        return f"{self.short_name} since {self.to_build}"
