"""Rows of what was decided about advice."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from workers.scope import BelowProject


class AdviceDecision(BelowProject):
    """What was decided about one piece of advice: of a kernel's family on one GPU model, or (`family` null) of a model's runs.

    It holds for every profile of that family and GPU until a later profile closes it: `outcome` with the gain measured.
    """

    project_path = "family__project"

    class State(models.TextChoices):
        TAKEN = "taken", "taken up"         # somebody works on it: the next profile of another build says whether it helped
        ASSIGNED = "assigned", "assigned"
        DISMISSED = "dismissed", "dismissed"

    class Outcome(models.TextChoices):
        OPEN = "", "open"
        VERIFIED = "verified", "verified"
        REFUTED = "refuted", "refuted"
        UNDECIDED = "undecided", "undecided"        # measured, but the interval holds both; stays open for the next profile

    family = models.ForeignKey("KernelFamily", null=True, on_delete=models.CASCADE, related_name="decisions")
    model = models.CharField(max_length=120, blank=True)           # of the run, where it is about no kernel
    gpu = models.CharField(max_length=120, blank=True)
    cause = models.CharField(max_length=60)                        # analysis.causes, or a finding's rule
    title = models.TextField()
    state = models.CharField(max_length=12, choices=State)
    assignee = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="advice_assigned")
    note = models.TextField(blank=True)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="advice_decided")
    base_profile = models.ForeignKey("Profile", null=True, on_delete=models.SET_NULL, related_name="+")
    base_kernel = models.ForeignKey("KernelStat", null=True, on_delete=models.SET_NULL, related_name="+")
    expected_ns = models.FloatField(null=True)                     # of all launches of the base profile
    expected_pct = models.FloatField(null=True)                    # of the kernel's time there
    outcome = models.CharField(max_length=12, choices=Outcome, blank=True)
    gain_pct = models.FloatField(null=True)                        # less time per launch, measured; negative: slower
    gain_low_pct = models.FloatField(null=True)                    # interval of two standard deviations of the noise
    gain_high_pct = models.FloatField(null=True)
    why = models.TextField(blank=True)                             # analysis.why's sentence, where both sides have counters
    still_there = models.BooleanField(null=True)                   # the same cause is found in the later profile
    later_profile = models.ForeignKey("Profile", null=True, on_delete=models.SET_NULL, related_name="+")
    later_kernel = models.ForeignKey("KernelStat", null=True, on_delete=models.SET_NULL, related_name="+")
    created = models.DateTimeField(auto_now_add=True)
    changed = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-changed", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["family", "gpu", "cause"], name="advicedecision_once_open",
                                    condition=Q(family__isnull=False, outcome__in=["", "undecided"])),
            models.UniqueConstraint(fields=["model", "gpu", "cause"], name="advicedecision_run_once_open",
                                    condition=Q(family__isnull=True, outcome__in=["", "undecided"])),
        ]

    def __str__(self) -> str:
        return f"{self.title}: {self.state}"

    @property
    def slower_pct(self) -> float | None:
        """Return a loss as a positive number."""
        return None if self.gain_pct is None else -self.gain_pct
