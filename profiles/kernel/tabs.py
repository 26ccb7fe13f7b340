"""The tabs of a kernel's page. A new tab is a line in `TABS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.urls import reverse
from django.utils.http import urlencode

from profiles.models import KernelStat
from profiles.overview.workspace import Tab
from profiles.source.selectors import launches_inside

KEPT = ("launch", "baseline")            # what the address keeps from tab to tab


@dataclass(frozen=True)
class _Page:
    """`name`: of its address, "" the first. `parts`: anchors that stand on it. `has`: whether a kernel has data for it."""

    title: str
    name: str
    parts: tuple[str, ...]
    has: Callable[[KernelStat], bool]


def _counted(kernel: KernelStat) -> bool:
    return kernel.counter_launches.filter(incomplete="").exists()


def _inside(kind: str) -> Callable[[KernelStat], bool]:
    return lambda kernel: bool(launches_inside(kernel, kind))


def _ruled(kernel: KernelStat) -> bool:
    return kernel.counter_launches.filter(incomplete="").exclude(rules=[]).exists()


TABS = (
    _Page("Summary", "", ("advice", "speed", "judged", "roofline-part", "beside"), lambda kernel: True),
    _Page("Memory", "memory", ("memory", "memory-tables"), _counted),
    _Page("Warps", "warps", ("stalls-part", "stalls", "occupancy", "shares", "pipes"), _counted),
    _Page("Source", "source", (), _inside("instructions")),
    _Page("Over time", "sampling", (), _inside("samples")),
    _Page("Launches", "launches", ("launches",), lambda kernel: True),
    _Page("Rules", "rules", ("rules",), _ruled),
    _Page("Raw", "raw", ("details", "metrics"), _counted),
)
NAMES = tuple(page.name for page in TABS)
# anchors of the long page that it once was -> the tab that holds them now
MOVED = {part: page.name for page in TABS for part in page.parts}


def address(kernel: KernelStat, name: str) -> str:
    """Return the address of a tab."""
    return reverse("kernel", args=[kernel.profile_id, kernel.pk]) + (f"{name}/" if name else "")


def kept_query(params: dict[str, str]) -> str:
    """Return "?launch=…&baseline=…" of what is asked, "" without."""
    known = {name: params[name] for name in KEPT if params.get(name)}
    return f"?{urlencode(known)}" if known else ""


def tabs(kernel: KernelStat, current: str, params: dict[str, str]) -> list[Tab]:
    """Return the tabs that have data, and the one that is open, which says why it has none."""
    query = kept_query(params)
    return [Tab(page.title, address(kernel, page.name) + query, page.name == current)
            for page in TABS if page.name == current or page.has(kernel)]
