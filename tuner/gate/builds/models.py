"""Rows of builds: in what order they came, and what got slower from which build on."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from django.conf import settings
from django.db import models

from workers.scope import BelowProject, InProject, OfProject


def quantity_of(reason: str) -> str:
    """Return which quantity of a kernel's time decided: its reason names it first; "p50" where it names none."""
    named = re.match(r"(?:not believed: [^;]*; )?(p95|mean)\b", reason)
    return named[1] if named else "p50"


class Team(InProject["Build"]):
    """States of the team's code, without the sides of a re-validation."""

    def get_queryset(self) -> models.QuerySet[Build]:
        return super().get_queryset().filter(side=False)


class Build(OfProject):
    """One state of the team's code. `name` is what profiles, captures and runs call it: a git sha or a name."""

    name = models.CharField(max_length=80)
    parent = models.CharField(max_length=80, blank=True)         # name of the build before it, where somebody said so
    branch = models.CharField(max_length=120, blank=True)
    refs = models.JSONField(default=list)                        # every branch and tag that was said of it, oldest first
    ancestors = models.JSONField(default=list)                   # first parents by name, nearest first, as far as CI sent them
    title = models.CharField(max_length=300, blank=True)         # first line of the commit message
    author = models.CharField(max_length=120, blank=True)
    url = models.CharField(max_length=500, blank=True)           # of the commit or pull request; http(s) only
    at = models.DateTimeField(db_index=True)                     # committed, else first seen here: the order of builds
    side = models.BooleanField(default=False)                    # no code: one side when cached winners are measured again
    created = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[Team] = Team()
    everything: ClassVar[InProject[Any]] = InProject()

    class Meta:
        ordering = ["-at", "-id"]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="build_once")]

    def __str__(self) -> str:
        return self.name


class Slowdown(models.Model):
    """What regressions of builds and of production have alike: how sure their size is, who answered them and how.

    A kind has its own `State`; the two of WATCHED, "intended" and "fixed" are those of both.
    """

    WATCHED: ClassVar[tuple[str, ...]] = ("open", "acknowledged")       # states that nobody answered yet

    low = models.FloatField(null=True)                           # interval of `ratio`
    high = models.FloatField(null=True)
    note = models.TextField(blank=True)                          # why it is intended, what fixed it
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)
    changed = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True
        ordering = ["-created", "-id"]

    @property
    def ci(self) -> list[float] | None:
        """Return the interval of `ratio`; None where an end is not known."""
        return None if self.low is None or self.high is None else [self.low, self.high]


class Regression(BelowProject, Slowdown):
    """A kernel family that a build made slower on one GPU: whatever gates and change points tell of it is one row."""

    project_path = "suite__project"

    class State(models.TextChoices):
        OPEN = "open"
        ACKNOWLEDGED = "acknowledged"    # somebody looks at it
        INTENDED = "intended"            # the new speed is the baseline from this build on
        FIXED = "fixed"                  # by a person's word or by a later gate
        ENVIRONMENT = "environment"      # the toolkit, driver or GPU did it, not the build

    class Kind(models.TextChoices):
        STEP = "step"                    # one build made it slower
        DRIFT = "drift"                  # many builds together did, `good` to `build`, and no single gate was SLOWER

    suite = models.ForeignKey("tuner.Suite", on_delete=models.CASCADE, related_name="regressions")
    family = models.CharField(max_length=200)                    # SuiteKernel.family: operator or kernel family
    build = models.ForeignKey(Build, on_delete=models.CASCADE, related_name="regressions")     # first that is known to be slower
    good = models.ForeignKey(Build, null=True, on_delete=models.SET_NULL, related_name="+")    # last that is known not to be
    gpu = models.CharField(max_length=120, blank=True)
    toolkit = models.CharField(max_length=80, blank=True)
    driver = models.CharField(max_length=40, blank=True)
    recorded = models.CharField(max_length=120, blank=True)
    kernels = models.JSONField(default=list)                     # keys of the suite's kernels, worst first
    ratio = models.FloatField(null=True)                         # of the worst one's `quantity`, new / old; null: not by its time
    found_by = models.CharField(max_length=12)                   # "gate" | "series"
    kind = models.CharField(max_length=8, choices=Kind, default=Kind.STEP)
    why = models.TextField(blank=True)                           # what the gate or the series said of it: one sentence
    state = models.CharField(max_length=16, choices=State, default=State.OPEN)
    history = models.JSONField(default=list)                     # {"at", "who", "state", "note"}, oldest first
    fixed_in = models.ForeignKey(Build, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta(Slowdown.Meta):
        constraints = [models.UniqueConstraint(fields=["suite", "family", "build", "gpu", "toolkit", "driver", "recorded", "kind"],
                                               name="regression_once")]

    def __str__(self) -> str:
        return f"{self.family} in {self.build_id}"

    @property
    def quantity(self) -> str:
        """Return what `ratio` is of."""
        return quantity_of(self.why)


class KernelSeries(BelowProject):
    """One kernel over builds in one environment: where its speed changed, worked out when runs arrive."""

    project_path = "kernel__suite__project"

    kernel = models.ForeignKey("tuner.SuiteKernel", on_delete=models.CASCADE, related_name="series")
    gpu = models.CharField(max_length=120, blank=True)
    toolkit = models.CharField(max_length=80, blank=True)
    driver = models.CharField(max_length=40, blank=True)
    recorded = models.CharField(max_length=120, blank=True)
    branch = models.CharField(max_length=120, blank=True)        # "": the main line
    changes = models.JSONField(default=list)                     # builds.series_selectors.Step as JSON, oldest first
    builds = models.IntegerField(default=0)                      # that were measured when it was worked out …
    runs = models.IntegerField(default=0)
    newest_run = models.BigIntegerField(default=0)               # … and the id of the newest run among them
    computed = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "kernel series"
        constraints = [models.UniqueConstraint(fields=["kernel", "gpu", "toolkit", "driver", "recorded", "branch"],
                                               name="kernelseries_once")]

    def __str__(self) -> str:
        return f"{self.kernel_id} on {self.gpu}"
