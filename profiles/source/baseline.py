"""Which result lies over a kernel's pages."""

from __future__ import annotations

from collections.abc import Mapping

from profiles.models import KernelStat, Profile


def baseline_of(params: Mapping[str, str]) -> tuple[KernelStat, str] | None:
    """Return the result that `?baseline=KERNEL` or `KERNEL-LAUNCH` names: the kernel and the launch, "" for all."""
    number, _, launch = params.get("baseline", "").partition("-")
    if not (number.isascii() and number.isdecimal() and len(number) < 18):
        return None
    kernel = KernelStat.objects.select_related("profile").filter(
        pk=int(number), profile__status=Profile.Status.READY).first()
    if kernel is None:
        return None
    is_launch = launch.isascii() and launch.isdecimal() and len(launch) < 10
    known = is_launch and kernel.counter_launches.filter(incomplete="", index=int(launch)).exists()
    return (kernel, launch if known else "")
