"""Time of a kernel from a trace beside its counters from a report: the same family on the same GPU model, in one row."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.analysis.kernel import counters
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.models import KernelStat, Profile

MOST = 5                        # rows: the newest profiles of the other kind


@dataclass(frozen=True)
class Beside:
    """`timed` of a trace, `counted` of a report; `whole` the facts of all its complete launches."""

    timed: KernelStat
    counted: KernelStat
    whole: LaunchFacts | None


def beside(kernel: KernelStat) -> list[Beside]:
    """Return a row for each of the newest profiles of the other kind that hold this kernel on this GPU."""
    profile = kernel.profile
    if not kernel.family_id or not profile.gpu or profile.kind == Profile.Kind.SUMMARY:
        return []
    is_counted = profile.kind == Profile.Kind.COUNTERS
    other = Profile.Kind.TRACE if is_counted else Profile.Kind.COUNTERS
    rows = KernelStat.objects.filter(family=kernel.family_id, profile__kind=other, profile__gpu=profile.gpu,
                                     profile__status=Profile.Status.READY).select_related("profile").order_by("-profile__created")
    found = list(rows[:MOST])
    if is_counted:
        whole = _whole(kernel) if found else None
        return [Beside(each, kernel, whole) for each in found]
    return [Beside(kernel, each, _whole(each)) for each in found]


def _whole(kernel: KernelStat) -> LaunchFacts | None:
    return counters.combine_launches([counters.from_json(row.facts) for row in kernel.counter_launches.filter(incomplete="")])
