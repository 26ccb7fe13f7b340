"""Rows of gates: the question whether a build made a suite slower, its answer, what it is compared with, and who is told."""

from __future__ import annotations

from django.conf import settings
from django.db import models

VERDICTS = ["PASS", "SLOWER", "FASTER", "AMBIGUOUS", "NO DATA"]      # profiles.analysis.gate.rule.Verdict


class Gate(models.Model):
    """One build of one suite in one environment, judged. `verdict` is "" until it is known."""

    class Status(models.TextChoices):
        WAITING = "waiting"          # for uploaded runs
        MEASURING = "measuring"      # a suite job of its own is queued or runs
        DONE = "done"
        STOPPED = "stopped"
        FAILED = "failed"

    suite = models.ForeignKey("tuner.Suite", on_delete=models.CASCADE, related_name="gates")
    build = models.ForeignKey("tuner.Build", on_delete=models.CASCADE, related_name="gates")
    against = models.ForeignKey("tuner.Build", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")  # null: baseline
    configs = models.JSONField(default=dict, blank=True)         # kernel key -> config that this build is measured with
    environment = models.JSONField(default=dict, blank=True)     # what CI asked for: {"gpu"?, "toolkit"?, "driver"?, "device"?}
    status = models.CharField(max_length=12, choices=Status, default=Status.MEASURING)
    verdict = models.CharField(max_length=12, blank=True)
    reason = models.TextField(blank=True)                        # one sentence
    rounds = models.IntegerField(default=0)                      # of measuring so far: the first, and re-runs
    report = models.JSONField(default=dict, blank=True)          # profiles.analysis.gate.suite.SuiteVerdict as JSON
    error = models.JSONField(null=True, blank=True)
    url = models.CharField(max_length=500, blank=True)           # of the pull request or pipeline that asked; http(s) only
    gpu = models.CharField(max_length=120, blank=True)           # where it was decided
    toolkit = models.CharField(max_length=80, blank=True)
    driver = models.CharField(max_length=40, blank=True)
    recorded = models.CharField(max_length=120, blank=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)
    finished = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["status"], name="gate_status")]

    def __str__(self) -> str:
        return f"gate {self.pk}"


class GateKernel(models.Model):
    """What a gate says of one kernel, and which runs it rests on."""

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


class BaselineChange(models.Model):
    """What a person said a kernel is compared with. Rows are never changed: the newest that applies is in force."""

    class Action(models.TextChoices):
        PIN = "pin"                  # always compare with the runs of `build`
        ROLL = "roll"                # with the newest runs of builds that passed: the default
        INTENDED = "intended"        # rolling, but only runs of `build` and later: the change was meant

    suite = models.ForeignKey("tuner.Suite", on_delete=models.CASCADE, related_name="baseline_changes")
    kernel = models.ForeignKey("tuner.SuiteKernel", null=True, blank=True, on_delete=models.CASCADE,
                               related_name="baseline_changes")          # null: all kernels of the suite
    gpu = models.CharField(max_length=120, blank=True)           # "": on every GPU
    action = models.CharField(max_length=12, choices=Action)
    build = models.ForeignKey("tuner.Build", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    note = models.TextField(blank=True)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created", "-id"]

    def __str__(self) -> str:
        return f"{self.action} {self.build_id or ''}"


class Notified(models.Model):
    """Somewhere that verdicts are sent to: a webhook or a mailbox."""

    class Kind(models.TextChoices):
        WEBHOOK = "webhook"
        EMAIL = "email"

    kind = models.CharField(max_length=8, choices=Kind)
    address = models.CharField(max_length=500)
    secret = models.CharField(max_length=120, blank=True)        # webhook: key of the signature header
    suite = models.ForeignKey("tuner.Suite", null=True, blank=True, on_delete=models.CASCADE, related_name="notified")   # null: all
    verdicts = models.JSONField(default=list, blank=True)        # which are told; []: SLOWER alone
    enabled = models.BooleanField(default=True)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["kind", "address", "id"]
        verbose_name_plural = "notified"

    def __str__(self) -> str:
        return f"{self.kind} {self.address}"


class Delivery(models.Model):
    """One message to one place, and whether it arrived."""

    to = models.ForeignKey(Notified, on_delete=models.CASCADE, related_name="deliveries")
    gate = models.ForeignKey(Gate, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries")
    regression = models.ForeignKey("tuner.Regression", null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=24, blank=True)          # "SLOWER" …, "regression found" …, "test"
    body = models.JSONField(default=dict)                        # what is said, as it was when it happened
    status = models.CharField(max_length=8, default="waiting")   # waiting | sent | kept (a file: no mail server) | failed
    tries = models.IntegerField(default=0)
    due = models.DateTimeField(null=True)                        # next try; a worker that sends has moved it ahead
    answer = models.CharField(max_length=120, blank=True)        # of the one who took it: "204 after 0.12 s"
    error = models.CharField(max_length=300, blank=True)         # of the last try
    created = models.DateTimeField(auto_now_add=True)
    sent = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created", "-id"]
        verbose_name_plural = "deliveries"
        indexes = [models.Index(fields=["status", "due"], name="delivery_due")]
        constraints = [                                          # nobody is told the same twice
            models.UniqueConstraint(fields=["to", "gate", "event"], name="delivery_gate_once"),
            models.UniqueConstraint(fields=["to", "regression", "event"], name="delivery_regression_once"),
        ]

    def __str__(self) -> str:
        return f"{self.to_id}: {self.status}"
