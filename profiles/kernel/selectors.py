"""Reads of a kernel's page: which result lies over it, and which may; which chart each of NVIDIA's rules explains;
its tabs. A new tab is a line in `TABS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from django.db.models import Case, Q, When
from django.urls import reverse
from django.utils.http import urlencode

from profiles.analysis.core.sentences import time_text
from profiles.base.answers import Choice
from profiles.counters.kernel_page import KernelPage
from profiles.counters.selectors import kernel_rules
from profiles.kernel.measures import Overlay
from profiles.models import KernelStat, Profile
from profiles.overview.workspace import Tab
from profiles.source.selectors import baseline_of, what_is_inside

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
    contents = [inside[index] for index, *_ in rows if index in inside]
    return Holdings({index: duration_ns for index, duration_ns, incomplete, _ in rows if not incomplete},
                    any(ruled for _, _, incomplete, ruled in rows if not incomplete),
                    any(content.instructions for content in contents), any(content.samples for content in contents))


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
    query = {name: params[name] for name in KEPT if params.get(name)}
    return f"?{urlencode(query)}" if query else ""


def tabs(kernel: KernelStat, holds: Holdings, current: str, params: dict[str, str]) -> list[Tab]:
    """Return the tabs that have data, and the one that is open, which says why it has none."""
    query = kept_query(params)
    return [Tab(page.title, address(kernel, page.name) + query, page.name == current)
            for page in TABS if page.name == current or page.has(holds)]


OFFERED = 30                             # results in the list of baselines
# what the list shows of each: a profile's summary is as large as all else of the page
CANDIDATE = ("short_name", "mean_ns", "profile__name", "profile__build", "profile__gpu", "profile__created")


@dataclass(frozen=True)
class Baseline:
    """The result that lies over a page. `launch`: its number, "" for all together."""

    kernel: KernelStat
    launch: str
    page: KernelPage


def baseline_page(params: Mapping[str, str]) -> Baseline | None:
    """Return the result that the address asks for, None without."""
    chosen = baseline_of(params)
    if chosen is None:
        return None
    kernel, launch = chosen
    return Baseline(kernel, launch, KernelPage(kernel, {"launch": launch} if launch else {}))


def rules_for(kernel: KernelStat, part: str) -> list[Mapping[str, Any]]:
    """Return the rules that stand at one part, for the pages of a kernel that are not made of its counters."""
    return rules_at(kernel_rules(kernel))[part]


class KernelBaselineJson(TypedDict):
    """A result that may lie over a kernel's."""

    baseline: str
    kernel: str
    profile: str
    build: str
    gpu: str
    created: datetime
    mean_ns: float | None
    is_same: bool


class OverlaidJson(TypedDict):
    """A number of the kernel's page beside the baseline's."""

    key: str
    tab: str
    label: str
    unit: str
    value: float | None
    baseline: float | None
    change_pct: float | None


class OverlayJson(TypedDict):
    kernel: int
    baseline: int
    baseline_launch: str | None
    measures: list[OverlaidJson]


def candidates(kernel: KernelStat, find: str) -> list[KernelBaselineJson]:
    """Return results that may lie over this one: the same kernel first, then what has its counters; `find` in any of its words."""
    rows = KernelStat.objects.filter(profile__status=Profile.Status.READY).exclude(pk=kernel.pk).select_related("profile")
    rows = rows.filter(profile__kind=kernel.profile.kind)
    for word in find.split()[:6]:
        rows = rows.filter(Q(short_name__icontains=word) | Q(profile__name__icontains=word) | Q(profile__build__icontains=word)
                           | Q(profile__gpu__icontains=word))
    same = Q(short_name=kernel.short_name) | Q(family=kernel.family_id) if kernel.family_id else Q(short_name=kernel.short_name)
    rows = rows.only(*CANDIDATE)
    newest = "-profile__created"
    first = list(rows.filter(same).order_by(newest, "-total_ns")[:OFFERED])
    more = list(rows.exclude(pk__in=[stat.pk for stat in first]).order_by(newest, "-total_ns")[:OFFERED - len(first)])
    return [{"baseline": str(stat.pk), "kernel": stat.short_name, "profile": stat.profile.name, "build": stat.profile.build,
             "gpu": stat.profile.gpu, "created": stat.profile.created, "mean_ns": stat.mean_ns, "is_same": number < len(first)}
            for number, stat in enumerate([*first, *more])]


def baseline_choices(kernel: KernelStat, find: str) -> list[Choice]:
    """Return the same as lines of a searchable list: value, title and note (build, GPU, date)."""
    return [Choice(row["baseline"], row["profile"], " · ".join(filter(None, [
        "" if row["is_same"] else row["kernel"][:40], row["build"][:14], row["gpu"] or "GPU —",
        f"{row['created']:%Y-%m-%d %H:%M}",
        "" if row["mean_ns"] is None else f"{time_text(row['mean_ns'])} mean"]))) for row in candidates(kernel, find)]


def frame(kernel: KernelStat, current: str, params: Mapping[str, str]) -> dict[str, Any]:
    """Return what the pinned header and the tabs of every page of a kernel show."""
    query = {name: params[name] for name in KEPT if params.get(name)}
    chosen = baseline_of(params)
    holds = holdings(kernel)
    own = [Choice(f"{kernel.pk}-{index}", f"Launch #{index}",
                  f"of this kernel · {'time —' if duration_ns is None else time_text(duration_ns)}")
           for index, duration_ns in holds.complete.items()][:OFFERED]
    choices = [*(own if len(own) > 1 else []), *baseline_choices(kernel, "")]
    if chosen and query["baseline"] not in {choice.value for choice in choices}:
        other = chosen[0]
        choices = [Choice(query["baseline"], other.profile.name, " · ".join(filter(None, [
            other.profile.build[:14], other.profile.gpu, f"launch #{chosen[1]}" if chosen[1] else ""]))), *choices]
    return {"kernel": kernel, "profile": kernel.profile, "tabs": tabs(kernel, holds, current, query), "chosen": chosen,
            "given": query, "choices": choices, "moved": MOVED, "here": address(kernel, current),
            "overlay": Overlay(KernelPage(kernel, params), KernelPage(chosen[0], {})) if chosen else None}


def overlay_json(kernel: KernelStat, params: Mapping[str, str]) -> OverlayJson | None:
    """Return every number of the page beside the baseline's; None where no known baseline is named."""
    baseline = baseline_page(params)
    if baseline is None:
        return None
    return {"kernel": kernel.pk, "baseline": baseline.kernel.pk, "baseline_launch": baseline.launch or None,
            "measures": [{"key": versus.measure.key, "tab": versus.measure.tab or "summary", "label": versus.measure.label,
                          "unit": versus.measure.unit, "value": versus.measure.value, "baseline": versus.baseline,
                          "change_pct": versus.change_pct}
                         for versus in Overlay(KernelPage(kernel, params), baseline.page).all()]}


# part of the page -> beginnings of section identifiers; the longest that fits decides
SECTIONS = {
    "speed": ("SpeedOfLight",), "roofline": ("SpeedOfLight_",), "memory": ("Memory", "Nvlink", "NumaAffinity", "C2CLink"),
    "stalls": ("WarpState", "Scheduler"), "occupancy": ("Occupancy", "LaunchStats", "WorkloadDistribution"),
    "pipes": ("ComputeWorkload", "InstructionStats", "Tile"), "source": ("SourceCounters",), "sampling": ("PmSampling",),
}
_PART = {beginning: part for part, beginnings in SECTIONS.items() for beginning in beginnings}


def part_of(section: str) -> str:
    """Return the part of the page that a section's rules stand at, "" where none is known: those stand under Rules only."""
    fits = [beginning for beginning in _PART if section.startswith(beginning)]
    return _PART[max(fits, key=len)] if fits else ""


def rules_at(rules: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rules of each part, in the order given."""
    placed: dict[str, list[Mapping[str, Any]]] = {part: [] for part in SECTIONS}
    for rule in rules:
        if part := part_of(rule["section"]):
            placed[part].append(rule)
    return placed
