"""What programs did through tools, and how much each token may begin in a day."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from workers.scope import OfProject

WRITES_PER_DAY = 50
GPU_S_PER_DAY = 4 * 3600


class AgentCall(OfProject):
    """One call of a tool. Of a call that may begin work the row is there before it runs, so that two calls never spend the same."""

    class Outcome(models.TextChoices):
        RUNNING = "running"         # or its process ended before it did
        OK = "ok"
        REFUSED = "refused"         # by role, budget, limit or the arguments: what was answered is in `answer`
        FAILED = "failed"           # the server's mistake

    created = models.DateTimeField(auto_now_add=True, db_index=True)
    token = models.ForeignKey("webapp.ApiToken", null=True, on_delete=models.SET_NULL, related_name="agent_calls")
    token_name = models.CharField(max_length=80, blank=True)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    person_name = models.CharField(max_length=150, blank=True)
    tool = models.CharField(max_length=60)
    arguments = models.TextField(blank=True)            # JSON, cut at ARGUMENTS_CHARS of services
    outcome = models.CharField(max_length=8, choices=Outcome, default=Outcome.RUNNING)
    answer = models.TextField(blank=True)               # what a refused call was told
    ms = models.FloatField(null=True)                   # milliseconds; null while it runs
    writes = models.BooleanField(default=False)         # counts against the writes of the day
    gpu_s = models.FloatField(default=0)                # GPU-seconds that the job may take at most
    led_to = models.CharField(max_length=12, blank=True)        # "tune", "capture", "check", "candidate"
    led_to_id = models.BigIntegerField(null=True)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["token", "created"], name="agent_call_by_token")]

    def __str__(self) -> str:
        return f"{self.tool} by {self.token_name or self.person_name}"


class AgentBudget(OfProject):
    """What one token may begin in a day (UTC); without a token: what every other token of the project may."""

    token = models.OneToOneField("webapp.ApiToken", null=True, on_delete=models.CASCADE, related_name="agent_budget")
    writes_per_day = models.PositiveIntegerField(default=WRITES_PER_DAY)      # jobs and captures started
    gpu_s_per_day = models.PositiveIntegerField(default=GPU_S_PER_DAY)          # GPU-seconds of them
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project"], condition=models.Q(token=None), name="agent_budget_once")]

    def __str__(self) -> str:
        return f"budget of {self.token.name if self.token else 'every token'}"
