"""Rows of gates: the question whether a build made a suite slower, and its answer kernel by kernel."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import models

from tuner.gate.builds.models import quantity_of
from workers.scope import BelowProject


class Gate(BelowProject):
    """One build of one suite in one environment, judged. `verdict` is "" until it is known."""

    project_path = "suite__project"

    class Status(models.TextChoices):
        WAITING = "waiting"          # for uploaded runs
        MEASURING = "measuring"      # a suite job of its own is queued or runs
        DONE = "done"
        STOPPED = "stopped"
        FAILED = "failed"

    UNDER_WAY = (Status.WAITING, Status.MEASURING)

    suite = models.ForeignKey("tuner.Suite", on_delete=models.CASCADE, related_name="gates")
    build = models.ForeignKey("tuner.Build", on_delete=models.CASCADE, related_name="gates")
    against = models.ForeignKey("tuner.Build", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")  # null: baseline
    configs = models.JSONField(default=dict, blank=True)         # kernel key -> config that this build is measured with
    environment = models.JSONField(default=dict, blank=True)     # what CI asked for: {"gpu"?, "toolkit"?, "driver"?, "device"?}
    status = models.CharField(max_length=12, choices=Status, default=Status.MEASURING)
    verdict = models.CharField(max_length=12, blank=True)        # one of tuner.gate.stats.rule.Verdict
    reason = models.TextField(blank=True)                        # one sentence
    rounds = models.IntegerField(default=0)                      # of measuring so far: the first, and re-runs
    report = models.JSONField(default=dict, blank=True)          # tuner.gate.stats.suite.SuiteVerdict as JSON
    error = models.JSONField(null=True, blank=True)
    url = models.CharField(max_length=500, blank=True)           # of the pull request or pipeline that asked; http(s) only
    gpu = models.CharField(max_length=120, blank=True)           # where it was decided
    toolkit = models.CharField(max_length=80, blank=True)
    driver = models.CharField(max_length=40, blank=True)
    recorded = models.CharField(max_length=120, blank=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    allow_gone = models.BooleanField(default=False)              # kernels that the baseline has and this build has not are meant
    request_key = models.CharField(max_length=80, blank=True)    # Idempotency-Key of the request that asked for it
    created = models.DateTimeField(auto_now_add=True)
    finished = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["status"], name="gate_status")]
        constraints = [models.UniqueConstraint(fields=["owner", "request_key"], condition=~models.Q(request_key=""),
                                               name="gate_request_once")]

    def __str__(self) -> str:
        return f"gate {self.pk}"


class GateKernel(BelowProject):
    """What a gate says of one kernel, and which runs it rests on."""

    project_path = "gate__suite__project"

    gate = models.ForeignKey(Gate, on_delete=models.CASCADE, related_name="kernels")
    kernel = models.ForeignKey("tuner.SuiteKernel", on_delete=models.CASCADE, related_name="verdicts")
    verdict = models.CharField(max_length=12)
    reason = models.TextField(blank=True)
    baseline_us = models.FloatField(null=True)         # median of run medians
    candidate_us = models.FloatField(null=True)
    ratio_p50 = models.FloatField(null=True)           # candidate / baseline
    low = models.FloatField(null=True)
    high = models.FloatField(null=True)
    ratio_p95 = models.FloatField(null=True)
    p_value = models.FloatField(null=True)
    detectable = models.FloatField(null=True)          # smallest slowdown that these runs could have shown, 0.034 is 3.4 %
    facts = models.JSONField(default=dict, blank=True)           # all else of the comparison: p95's interval, clocks, metrics
    baseline_runs = models.JSONField(default=list)     # ids of KernelRun
    candidate_runs = models.JSONField(default=list)
    regression = models.ForeignKey("tuner.Regression", null=True, blank=True, on_delete=models.SET_NULL, related_name="told_by")
    place = models.IntegerField(default=0)             # worst first

    class Meta:
        ordering = ["place", "id"]
        constraints = [models.UniqueConstraint(fields=["gate", "kernel"], name="gatekernel_once")]

    def __str__(self) -> str:
        return f"{self.kernel_id}: {self.verdict}"

    @property
    def decided(self) -> Decided:
        """Return the quantity that decided; the p50 where a metric or nothing did."""
        quantity = self.quantity(quantity_of(self.reason))
        return quantity if quantity.ratio else self.quantity("p50")

    def quantity(self, name: str) -> Decided:
        """Return a quantity of the kernel's time: "p50", "p95" or "mean"."""
        facts = self.facts.get(name) or {}
        return Decided(name, self.ratio_p50, self.low, self.high) if name == "p50" else Decided(
            name, facts.get("ratio"), facts.get("low"), facts.get("high"))


@dataclass(frozen=True)
class Decided:
    """A quantity of a kernel's time with its ratio, candidate ÷ baseline, and the interval of that; None: not known."""

    name: str                                          # "p50", "p95", "mean"
    ratio: float | None
    low: float | None
    high: float | None


class SlowerVerdict(BelowProject):
    """The first SLOWER of a kernel of a build in one environment, and how that gate was asked.

    It stands until a gate that was asked in at least the same way says otherwise, or a person accepts the new speed; it outlives
    the gate's own row and its re-runs.
    """

    project_path = "suite__project"

    suite = models.ForeignKey("tuner.Suite", on_delete=models.CASCADE, related_name="slower_verdicts")
    build = models.ForeignKey("tuner.Build", on_delete=models.CASCADE, related_name="slower_verdicts")
    kernel = models.ForeignKey("tuner.SuiteKernel", on_delete=models.CASCADE, related_name="slower_verdicts")
    gpu = models.CharField(max_length=120, blank=True)
    toolkit = models.CharField(max_length=80, blank=True)
    driver = models.CharField(max_length=40, blank=True)
    recorded = models.CharField(max_length=120, blank=True)
    gate = models.ForeignKey(Gate, null=True, on_delete=models.SET_NULL, related_name="+")
    number = models.BigIntegerField()                  # of that gate, known after its row is gone
    against = models.CharField(max_length=80, blank=True)        # build that it was told to compare with; "": the baseline
    first = models.BooleanField(default=True)          # no gate of this suite had decided on the build before
    basis = models.JSONField(default=dict)             # how it was asked: tuner.gate.verdicts.standing_services.Basis
    ratio = models.FloatField(null=True)
    said_slower = models.IntegerField(default=1)       # gates that were asked in at least the same way and say SLOWER …
    said_not = models.IntegerField(default=0)          # … and PASS or FASTER
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created = models.DateTimeField(auto_now_add=True)
    over = models.DateTimeField(null=True)             # since when it does not stand any more …
    over_because = models.TextField(blank=True)        # … and why

    class Meta:
        ordering = ["created", "id"]
        constraints = [models.UniqueConstraint(fields=["build", "kernel", "gpu", "toolkit", "driver", "recorded", "against"],
                                               name="slowerverdict_once")]

    def __str__(self) -> str:
        return f"{self.kernel_id} of {self.build_id}"
