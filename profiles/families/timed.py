"""How many launches the time of a kernel is the sum of: a counter report may hold launches that were not measured to their end."""

from __future__ import annotations

from django.db.models import BigIntegerField, Case, F, When
from django.db.models.functions import Cast, Round

from profiles.models import KernelStat, Profile

# of KernelStat with a time. A report's mean is that of the launches that were measured
TIMED = Case(When(profile__kind=Profile.Kind.COUNTERS, mean_ns__gt=0,
                  then=Cast(Round(F("total_ns") / F("mean_ns")), BigIntegerField())),
             default=F("launches"), output_field=BigIntegerField())


def timed_launches(stat: KernelStat) -> int:
    """Return what TIMED counts, of one kernel."""
    if stat.profile.kind == Profile.Kind.COUNTERS and stat.total_ns and stat.mean_ns:
        return round(stat.total_ns / stat.mean_ns)
    return stat.launches
