"""What counts for a profile: the report whose counters speak for a kernel of a trace, the job whose files hold its own."""

from __future__ import annotations

from collections.abc import Sequence

from profiles.analysis.kernel.worth import FamilyCounters, FamilyTime, LaunchShape, is_same_shape
from profiles.models import KernelShape, KernelStat, Profile, held_by

MOST_COUNTED = 2_000            # shapes of reports that are held against those of a trace


def counted_kernels(profile: Profile, stats: Sequence[KernelStat]) -> dict[int, KernelStat]:
    """Return row of a kernel of a trace -> the kernel in the newest report of the same GPU that counted its shapes.

    Only where that report's launches are of the shapes that most of the kernel's time is spent in.
    """
    if profile.kind == Profile.Kind.COUNTERS or not profile.gpu:
        return {}
    families = {stat.family_id for stat in stats if stat.family_id}
    reports = (KernelShape.objects.filter(
        kernel__family__in=families, kernel__profile__kind=Profile.Kind.COUNTERS, kernel__profile__gpu=profile.gpu,
        kernel__profile__status=Profile.Status.READY).exclude(grid="").select_related("kernel__profile")
        .order_by("-kernel__profile__created", "-kernel"))
    counted = [(row, FamilyCounters(row.kernel.family_id or 0, profile.gpu, LaunchShape(row.grid, row.block, row.flop),
                                    float(row.total_ns), row.roof_pct, launches=row.launches)) for row in reports[:MOST_COUNTED]]
    if not counted:
        return {}
    own: dict[int, list[FamilyTime]] = {}
    for shape in KernelShape.objects.filter(kernel__in=stats, shapes=1).select_related("kernel").defer("tune"):
        own.setdefault(shape.kernel_id, []).append(FamilyTime(
            shape.kernel.family_id or 0, profile.gpu, LaunchShape(shape.grid, shape.block, shape.flop), shape.kernel.category,
            float(shape.total_ns), shape.launches))
    kernels_by_stat, kernels = {}, {row.kernel_id: row.kernel for row, _ in counted}      # newest report first
    for stat in stats:
        spoken: dict[int, float] = {}
        for part in own.get(stat.pk, []):
            for pk in {row.kernel_id for row, counts in counted if counts.family == part.family and is_same_shape(part, counts)}:
                spoken[pk] = spoken.get(pk, 0.0) + part.total_ns
        best = next((pk for pk in kernels if spoken.get(pk, 0.0) > 0.5 * (stat.total_ns or 0)), None)
        if best is not None:
            kernels_by_stat[stat.pk] = kernels[best]
    return kernels_by_stat


def counted_in(profile: Profile) -> list[Profile]:
    """Return the jobs among whose files all of this profile's are: sums over profiles count those, not this one again."""
    holders = held_by(Profile.objects.filter(status=Profile.Status.READY)).filter(held=profile.pk).values("holder")
    return list(Profile.objects.filter(pk__in=holders).exclude(sha256=profile.sha256).order_by("created")[:5])
