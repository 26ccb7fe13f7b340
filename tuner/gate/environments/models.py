"""Rows of environments: whether winners that a new one made doubtful are measured again without anybody's asking."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q


class RevalidationPolicy(models.Model):
    """One row, or none: then nothing is measured by itself. Bounds hold for each GPU model and new environment."""

    by_itself = models.BooleanField(default=False)
    most_entries = models.IntegerField(default=20)               # the hottest ones
    most_seconds = models.FloatField(default=1800.0)             # GPU-seconds that these may take, as expected beforehand
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    changed = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.CheckConstraint(name="revalidationpolicy_bounds",
                                              condition=Q(most_entries__gte=1, most_seconds__gt=0))]

    def __str__(self) -> str:
        return "by itself" if self.by_itself else "when asked"
