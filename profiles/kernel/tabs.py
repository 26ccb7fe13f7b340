"""The tabs of a kernel's page. A new tab is a line in `TABS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.db.models import Case, When
from django.urls import reverse
from django.utils.http import urlencode

from profiles.models import KernelStat
from profiles.overview.workspace import Tab
from profiles.source.selectors import what_is_inside

KEPT = ("launch", "baseline")            # what the address keeps from tab to tab


@dataclass(frozen=True)
class Holdings:
    """What a kernel has. `complete`: launches counted whole -> their duration."""

    complete: Mapping[int, float | None]
    ruled: bool
    instructions: bool
    samples: bool


def holdings(kernel: KernelStat) -> Holdings:
    """Return what the report holds of a kernel, by one question to the database."""
    has_rules = Case(When(rules=[], then=False), default=True)
    rows = list(kernel.counter_launches.annotate(has_rules=has_rules).values_list(
        "index", "duration_ns", "incomplete", "has_rules"))
    inside = what_is_inside(kernel.profile_id) if rows else {}
    known = [inside[index] for index, *_ in rows if index in inside]
    return Holdings({index: duration_ns for index, duration_ns, incomplete, _ in rows if not incomplete},
                    any(ruled for _, _, incomplete, ruled in rows if not incomplete),
                    any(each.instructions for each in known), any(each.samples for each in known))


@dataclass(frozen=True)
class _Page:
    """`name`: of its address, "" the first. `parts`: anchors that stand on it. `has`: whether a kernel has data for it."""

    title: str
    name: str
    parts: tuple[str, ...]
    has: Callable[[Holdings], bool]


def _always(holds: Holdings) -> bool:
    return True


def _counted(holds: Holdings) -> bool:
    return bool(holds.complete)


TABS = (
    _Page("Summary", "", ("advice", "speed", "judged", "roofline-part", "beside"), _always),
    _Page("Memory", "memory", ("memory", "memory-tables"), _counted),
    _Page("Warps", "warps", ("stalls-part", "stalls", "occupancy", "shares", "pipes"), _counted),
    _Page("Source", "source", (), lambda holds: holds.instructions),
    _Page("Over time", "sampling", (), lambda holds: holds.samples),
    _Page("Launches", "launches", ("launches",), _always),
    _Page("Rules", "rules", ("rules",), lambda holds: holds.ruled),
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


def tabs(kernel: KernelStat, holds: Holdings, current: str, params: dict[str, str]) -> list[Tab]:
    """Return the tabs that have data, and the one that is open, which says why it has none."""
    query = kept_query(params)
    return [Tab(page.title, address(kernel, page.name) + query, page.name == current)
            for page in TABS if page.name == current or page.has(holds)]
