"""Reads of a kernel's page: which result lies over it, and which may."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Q

from profiles.counters.selectors import kernel_page, rule_rows
from profiles.kernel import tabs
from profiles.kernel.measures import versus
from profiles.kernel.rules_at import rules_at
from profiles.models import KernelStat, Profile

OFFERED = 30                             # results in the list of baselines


def page_of(kernel: KernelStat, params: Mapping[str, str]) -> dict[str, Any]:
    """Return what a kernel shows, of all launches or of one."""
    page = kernel_page(kernel, params)
    if page["whole"] is None:
        return page | {"rules_at": {}, "rules": []}
    return page | {"rules_at": rules_at(page["rules"])}


def rules_for(kernel: KernelStat, part: str) -> list[Mapping[str, Any]]:
    """Return the rules that stand at one part, for the pages of a kernel that are not made of its counters."""
    return rules_at(rule_rows(kernel.counter_launches.filter(incomplete="")))[part]


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


def with_baseline(page: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    """Return the page with the overlay that the address asks for."""
    chosen = baseline_of(params)
    if chosen is None:
        return page | {"baseline": None, "overlay": {}}
    kernel, launch = chosen
    base = page_of(kernel, {"launch": launch} if launch else {})
    return page | {"baseline": {"kernel": kernel, "launch": launch, "page": base}, "overlay": versus(page, base)}


def candidates(kernel: KernelStat, find: str) -> list[dict[str, Any]]:
    """Return results that may lie over this one: the same kernel first, then what has its counters; `find` in any of its words."""
    rows = KernelStat.objects.filter(profile__status=Profile.Status.READY).exclude(pk=kernel.pk).select_related("profile")
    rows = rows.filter(profile__kind=kernel.profile.kind)
    for word in find.split()[:6]:
        rows = rows.filter(Q(short_name__icontains=word) | Q(profile__name__icontains=word) | Q(profile__build__icontains=word)
                           | Q(profile__gpu__icontains=word))
    same = Q(short_name=kernel.short_name) | Q(family=kernel.family_id) if kernel.family_id else Q(short_name=kernel.short_name)
    newest = "-profile__created"
    first = list(rows.filter(same).order_by(newest, "-total_ns")[:OFFERED])
    more = list(rows.exclude(pk__in=[each.pk for each in first]).order_by(newest, "-total_ns")[:OFFERED - len(first)])
    return [{"baseline": str(each.pk), "kernel": each.short_name, "profile": each.profile.name, "build": each.profile.build,
             "gpu": each.profile.gpu, "created": each.profile.created, "mean_ns": each.mean_ns, "is_same": number < len(first)}
            for number, each in enumerate([*first, *more])]


def launches_offered(page: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Other launches of the same kernel, which may lie over one that is shown alone."""
    kernel = page["kernel"]
    return [{"baseline": f"{kernel.pk}-{row.index}", "index": row.index, "duration_ns": row.duration_ns}
            for row in page.get("launches", []) if hasattr(row, "incomplete") and not row.incomplete][:OFFERED]


def frame(kernel: KernelStat, current: str, params: Mapping[str, str]) -> dict[str, Any]:
    """Return what the pinned header and the tabs of every page of a kernel show."""
    given = {name: params[name] for name in tabs.KEPT if params.get(name)}
    chosen = baseline_of(params)
    find = params.get("find", "")[:200]
    launches = list(kernel.counter_launches.filter(incomplete="").only("index", "duration_ns", "kernel_id"))
    return {"kernel": kernel, "profile": kernel.profile, "tabs": tabs.tabs(kernel, current, given), "chosen": chosen,
            "given": given, "candidates": candidates(kernel, find), "find": find, "moved": tabs.MOVED,
            "here": tabs.address(kernel, current),
            "own_launches": launches_offered({"kernel": kernel, "launches": launches}) if len(launches) > 1 else []}


def overlay_json(kernel: KernelStat, params: Mapping[str, str]) -> dict[str, Any] | None:
    """Return every number of the page beside the baseline's; None where no known baseline is named."""
    page = with_baseline(page_of(kernel, params), params)
    if page["baseline"] is None:
        return None
    return {"kernel": kernel.pk, "baseline": page["baseline"]["kernel"].pk, "baseline_launch": page["baseline"]["launch"] or None,
            "measures": [{"key": key, "tab": each.measure.tab or "summary", "label": each.measure.label, "unit": each.measure.unit,
                          "value": each.measure.value, "baseline": each.baseline, "change_pct": each.change_pct}
                         for key, each in page["overlay"].items()]}
