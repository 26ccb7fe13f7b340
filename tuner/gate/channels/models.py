"""Rows of who is told of verdicts, and of every message."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from workers.scope import BelowProject, OfProject


class Notified(OfProject):
    """A channel: somewhere that verdicts are sent to."""

    kind = models.CharField(max_length=8)               # of tuner.gate.channels.kinds
    address = models.CharField(max_length=500)
    secret = models.CharField(max_length=500, blank=True)        # webhook: key of the signature header, sealed (workers.secret)
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


class Delivery(BelowProject):
    """One message to one place, and whether it arrived."""

    project_path = "to__project"

    to = models.ForeignKey(Notified, on_delete=models.CASCADE, related_name="deliveries")
    gate = models.ForeignKey("tuner.Gate", null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries")
    regression = models.ForeignKey("tuner.Regression", null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries")
    production = models.ForeignKey("tuner.ProductionRegression", null=True, blank=True, on_delete=models.CASCADE,
                                   related_name="deliveries")
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
            models.UniqueConstraint(fields=["to", "production", "event"], name="delivery_production_once"),
        ]

    def __str__(self) -> str:
        return f"{self.to_id}: {self.status}"
