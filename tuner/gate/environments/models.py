"""Rows of environments: whether winners are measured, or searched, again under a new one without anybody's asking."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q


class RevalidationPolicy(models.Model):
    """One row, or none: then nothing is measured by itself. Bounds hold for each GPU model and new environment."""

    by_itself = models.BooleanField(default=False)
    most_entries = models.IntegerField(default=20)               # the hottest ones
    most_seconds = models.FloatField(default=1800.0)             # GPU-seconds that these may take, as expected beforehand
    searches = models.BooleanField(default=False, db_default=False)          # the hottest are searched again, one by one
    most_searches = models.IntegerField(default=5, db_default=5)
    search_seconds = models.FloatField(default=600.0, db_default=600.0)      # GPU-seconds of each
    from_hour = models.IntegerField(default=0, db_default=0)                 # UTC: searches begin from this hour on …
    until_hour = models.IntegerField(default=24, db_default=24)              # … and before this one; 22 to 6 is a night
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    changed = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.CheckConstraint(name="revalidationpolicy_bounds", condition=Q(most_entries__gte=1, most_seconds__gt=0)),
            models.CheckConstraint(name="revalidationpolicy_searches", condition=Q(
                most_searches__gte=1, search_seconds__gt=0, from_hour__range=(0, 23), until_hour__range=(1, 24)))]

    def __str__(self) -> str:
        return "by itself" if self.by_itself else "when asked"
