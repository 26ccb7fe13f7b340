"""What a project decided about keeping."""

from __future__ import annotations

from django.db import models

from workers.scope import OfProject


class Keeping(OfProject):
    """One row a project; without one everything is kept."""

    class State(models.TextChoices):
        REST = ""
        WAITING = "waiting"
        RUNNING = "running"

    days = models.JSONField(default=dict)                       # kind (workers.retention.run) -> days after which it goes
    quota_bytes = models.BigIntegerField(null=True)             # of profiles' files; null: without limit
    state = models.CharField(max_length=8, choices=State, blank=True, default=State.REST)
    report = models.JSONField(default=dict)                     # of the last run: kind -> {"old", "go", "bytes", "kept", "gone"}
    ran = models.DateTimeField(null=True)
    created = models.DateTimeField(auto_now_add=True)
    touched = models.DateTimeField(auto_now_add=True)           # by the worker that runs it, or by who asked for the run

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project"], name="keeping_once_per_project")]

    def __str__(self) -> str:
        return f"keeping of project {self.project_id}"
