"""What one launch of a kernel leads to: its counters where they were taken, a capture of just this launch, a tune job."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import numpy as np
from django.urls import reverse
from django.utils.http import urlencode

from profiles.analysis.core.tunable import is_problem, tunable
from profiles.analysis.kernel import counters
from profiles.capture.selectors import bare_name
from profiles.ingest.naming.names import family
from profiles.ingest.trace import KERNELS, Category
from profiles.models import KernelStat, Profile
from profiles.store.area import Area, windows
from profiles.store.timeline import Timeline
from profiles.timeline.slice_selectors import slice_detail

ELSEWHERE = 3                   # counter profiles that are told
_CANDIDATES = 500
Work = Generator[float, None, dict[str, Any]]


def slice_kernel(profile: Profile, timeline: Timeline, row: int) -> Work:
    """Return everything around one launch.

    `row` is a kernel's slice.
    """
    told = slice_detail(profile, timeline, row)
    before = yield from _launches_before(timeline, row, told)
    around = [(each["name"], each["detail"]) for each in told["stack"] if each["category"] == Category.CPU_OP.name.lower()]
    return {
        "slice": row, "name": told["name"], "name_key": told["name_key"], "kernel_id": told["kernel_id"],
        "index": before["same"], "matching": before["matching"], "bare_name": bare_name(told["name"]),
        "counters": _counters(profile, told["name"], told["short_name"]),
        "capture": _capture(profile, told["name"], before["matching"]),
        "tune": _tune(told["name"], around),
    }


def _launches_before(timeline: Timeline, row: int, told: dict[str, Any]) -> Generator[float, None, dict[str, int]]:
    """Launches that began before this one: of the same name, and of all names that ncu's expression finds."""
    wanted = bare_name(told["name"])
    matching = np.array([wanted in bare_name(name) for name in timeline.names], np.bool_)      # as ncu searches it
    same = np.zeros(matching.size, np.bool_)
    same[int(told["name_key"].rpartition(":")[2])] = True
    counts = {"same": 0, "matching": 0}
    for window in windows(timeline, Area(0, told["start_ns"] + 1), ("name_id", "category")):
        rows = window.counted_rows
        kernel = np.isin(rows["category"], [int(kind) for kind in KERNELS]) & ~rows["instant"]
        at_once = (rows["start_ns"] == told["start_ns"]) & (rows["slice"] < row)
        earlier = kernel & ((rows["start_ns"] < told["start_ns"]) | at_once)
        counts["same"] += int(np.count_nonzero(same[rows["name_id"][earlier]]))
        counts["matching"] += int(np.count_nonzero(matching[rows["name_id"][earlier]]))
        yield window.done
    return counts


def _counters(profile: Profile, name: str, short: str) -> list[dict[str, Any]]:
    """The same kernel in profiles with counters: those of the same build first, then the newest."""
    ready = KernelStat.objects.filter(
        profile__status=Profile.Status.READY, profile__kind=Profile.Kind.COUNTERS).select_related("profile")
    exact = list(ready.filter(short_name=short).order_by("-profile__created")[:50])
    if not exact:
        alike = family(name)
        exact = [each for each in ready.order_by("-profile__created")[:_CANDIDATES] if family(each.name) == alike]
    ranked = sorted(exact, key=lambda each: not (profile.build and each.profile.build == profile.build))
    return [_numbers(profile, each) for each in ranked[:ELSEWHERE]]


def _numbers(profile: Profile, kernel: KernelStat) -> dict[str, Any]:
    whole = counters.combine_launches([counters.from_json(each.facts) for each in kernel.counter_launches.filter(incomplete="")])
    numbers: dict[str, Any] = {} if whole is None else {
        "Compute (SM) %": whole.sol.sm_pct, "Memory %": whole.sol.memory_pct, "DRAM %": whole.sol.dram_pct,
        "Occupancy achieved %": whole.occupancy.achieved_pct, "Occupancy theoretical %": whole.occupancy.theoretical_pct,
        "Waves": whole.occupancy.waves}
    return {
        "profile": kernel.profile_id, "profile_name": kernel.profile.name, "build": kernel.profile.build,
        "same_build": bool(profile.build) and kernel.profile.build == profile.build, "same_name": kernel.name,
        "url": reverse("kernel", args=[kernel.profile_id, kernel.pk]), "launches": kernel.launches, "mean_ns": kernel.mean_ns,
        "gpu": kernel.profile.gpu, "bound": kernel.bound, "bound_reason": kernel.bound_reason, "recorded": kernel.profile.recorded,
        "numbers": {name: value for name, value in numbers.items() if value is not None}}


def _capture(profile: Profile, name: str, skip: int) -> str:
    query: dict[str, str | int] = {"tool": "ncu", "kernel": re.escape(bare_name(name)), "launch_skip": skip, "launch_count": 1,
             "profile": profile.pk, "build": profile.build, "model": profile.model}
    return f"{reverse('capture-new')}?{urlencode({key: value for key, value in query.items() if value != ''})}"


def _tune(name: str, around: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    made = tunable(name, around)
    query: dict[str, str | int] = {"operator": made.operator, **made.shape, "dtype": made.dtype}
    if not is_problem(query):
        return {"operator": "", "url": None, "why": made.why}
    return {"operator": made.operator, "shape": made.shape, "dtype": made.dtype, "source": made.source, "why": made.why,
            "url": f"{reverse('tune-new')}?{urlencode(query)}"}
