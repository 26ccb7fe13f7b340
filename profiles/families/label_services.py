"""Labels of kernels that an earlier version stored, made anew: what tells a profile's kernels apart."""

from __future__ import annotations

from collections.abc import Mapping

from profiles.ingest.naming.names import short_names
from profiles.models import Finding, KernelStat, Profile
from profiles.rows import text

_BATCH = 1_000


def labels_make() -> int:
    """Give every kernel the label that an ingest would give it today; returns how many changed.

    Titles of findings begin with the label of their kernel, or quote it: they change with it.
    """
    profiles = Profile.objects.filter(kernels__isnull=False).distinct().order_by("pk").only("pk", "top_kernel")
    return sum(_relabel(profile) for profile in profiles)


def _relabel(profile: Profile) -> int:
    kernels = list(profile.kernels.only("pk", "name", "short_name", "total_ns"))
    labels = short_names(kernel.name for kernel in kernels)
    changed: dict[int, str] = {}
    for kernel in kernels:
        label = text(labels[kernel.name], 200)
        if label != kernel.short_name:
            changed[kernel.pk] = kernel.short_name
            kernel.short_name = label
    KernelStat.objects.bulk_update([kernel for kernel in kernels if kernel.pk in changed], ["short_name"], batch_size=_BATCH)
    _retitle(changed, {kernel.pk: kernel.short_name for kernel in kernels})
    first = max(kernels, key=lambda kernel: kernel.total_ns or 0)
    if changed.get(first.pk) == profile.top_kernel:
        Profile.objects.filter(pk=profile.pk).update(top_kernel=first.short_name)
    return len(changed)


def _retitle(old: Mapping[int, str], new: Mapping[int, str]) -> None:
    findings = list(Finding.objects.filter(kernel__in=list(old)))
    for finding in findings:
        before, after = old[finding.kernel_id or 0], new[finding.kernel_id or 0]
        if finding.title.startswith(f"{before}: "):
            finding.title = after + finding.title.removeprefix(before)
        finding.title = finding.title.replace(f"`{before}`", f"`{after}`")
    Finding.objects.bulk_update(findings, ["title"], batch_size=_BATCH)
