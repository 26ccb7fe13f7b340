"""Reads of rooflines: dots of one or several reports with everything a page or a program asks of them.

Dots without counters: of a trace, one per kernel and shape, from the topic "layer". They stand on least bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypedDict

from django.urls import reverse

from profiles.analysis.core import gpus
from profiles.analysis.core.sentences import si_text
from profiles.analysis.kernel import bounds, counters
from profiles.analysis.kernel.ceilings import Ceiling, MeasuredCeilings, Rung, ceilings, ladder, newest_of_model
from profiles.analysis.kernel.facts import Bound, LaunchFacts
from profiles.analysis.kernel.roofline import Level
from profiles.base.answers import Paged
from profiles.ceilings.selectors import measured_gpus
from profiles.models import KernelStat, Profile
from profiles.store.objects import typed_read
from profiles.topics.work import layer_document

COUNTED, SHAPES = "counters", "from shapes"
MOST_DOTS = 300                 # of a trace, the longest times


def shape_points(profile: Profile, label: str) -> tuple[list[dict[str, Any]], list[Ceiling], bool]:
    """Return (points, ceilings, whether a worker still makes them) of a trace; points have the fields of those from counters."""
    document = layer_document(profile)
    if document is None:
        return [], [], True
    rows = document["numbers"].get("work", [])[:MOST_DOTS]
    kernels = {kernel.name: kernel for kernel in profile.kernels.filter(name__in={row["kernel"] for row in rows})
               .select_related("family")}
    points = [_point(row, index, kernels.get(row["kernel"]), profile, label) for index, row in enumerate(rows)
              if not row["part_of"]]
    used = {(point["device"], point["precision"]) for point in points if point["flop"]}
    lines = [line for name, gpu in document["numbers"].get("gpus", {}).items() for line in _ceilings(name, gpu, used)]
    return points, lines, False


def _point(row: Mapping[str, Any], index: int, kernel: KernelStat | None, profile: Profile, label: str) -> dict[str, Any]:
    short = kernel.short_name if kernel else row["kernel"][:80]
    left = row["total_ns"] - row["floor_ns"] if row["floor_ns"] is not None and not row["mark"] else None
    family = kernel.family if kernel else None
    notes = [text for text in (f"{row['operator']} {row['text']}".strip(), row["note"], f"{row['mark']}: {row['why']}"
                               if row["mark"] else "") if text]
    return {
        "kernel_id": kernel.pk if kernel else None, "name": row["kernel"], "short_name": f"{short} {row['text']}".strip(),
        "index": index, "url": reverse("kernel", args=[profile.pk, kernel.pk]) if kernel else "", "launches": row["launches"],
        "profile_id": profile.pk, "profile_label": label, "build": profile.build,
        "family": f"f{family.pk}" if family else short, "family_label": family.name if family else short,
        "time_ns": float(row["total_ns"]), "flop": row["flop"], "dram_bytes": row["bytes"], "intensity": row["intensity"],
        "flop_s": row["flop_s"], "dram_bytes_s": row["bytes_s"], "precision": row["precision"],
        "precision_label": gpus.PRECISIONS.get(row["precision"], row["precision"]),
        "by_precision": {row["precision"]: row["flop"]} if row["precision"] and row["flop"] else {}, "side": row["side"],
        "roof": row["flop_s"] * 100.0 / row["roof_pct"] if row["flop_s"] and row["roof_pct"] else None,
        "roof_pct": row["roof_pct"], "ridge": row["ridge"], "bound": row["side"],
        "bound_reason": "by intensity, from shapes" if row["side"] else "", "bounded": None,
        "recoverable_ns": max(0.0, left) if left is not None else None, "levels": {}, "ladder": [], "sm_clock_hz": None,
        "device": row["gpu"], "reason": _reason(row), "notes": notes, "grid": None, "block": None,
        "basis": row["basis"] or SHAPES, "shape": row["text"], "mark": row["mark"], "why": row["why"],
    }


def _reason(row: Mapping[str, Any]) -> str:
    """Why there is no dot, "" where there is one."""
    if not row["basis"]:
        return "the trace holds no shapes of its operator (record_shapes=True); they can be typed below"
    if row["flop"] == 0:
        return "it only moves data: no FLOP, no intensity"
    if row["flop"] is None or row["bytes"] is None:
        return row["note"] or "its arguments do not say enough"
    return "" if row["intensity"] else "its time or its bytes are zero"


def _ceilings(name: str, each: Mapping[str, Any], used: set[tuple[str, str]]) -> list[Ceiling]:
    """The data sheet's lines and the measured ones, of DRAM and the precisions that dots have."""
    model, lines = gpus.peaks_of(name), []
    for origin, rates in (("sheet", each["sheet"]), ("measured", each["measured"])):
        for key, value in rates.items():
            if key != "dram" and (name, key) not in used:
                continue
            label = gpus.PRECISIONS.get(key, "DRAM")
            source = each["label"] if origin == "measured" else f"{model.source} (table of {gpus.VERSION})" if model else ""
            text = f"{'measured ' if origin == 'measured' else ''}{label} {si_text(value, 'B/s' if key == 'dram' else 'FLOP/s')}"
            lines.append(Ceiling("dram" if key == "dram" else "compute", label, text, value, source,
                                 precision="" if key == "dram" else key, device=name, origin=origin))
    return lines


def without_shapes(profile: Profile, points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the kernels of a trace that a person could type a shape for: those without one, and those typed already."""
    typed, kernels, out = typed_read(profile.pk), set(), []
    for point in points:
        work = typed.get(point["name"])
        if point["kernel_id"] is None or point["kernel_id"] in kernels or (point["basis"] != "typed" and not _unshaped(point)):
            continue
        kernels.add(point["kernel_id"])
        out.append({"pk": point["kernel_id"], "name": point["name"], "short_name": point["short_name"], "time_ns": point["time_ns"],
                    "typed": work})
    return out


def _unshaped(point: Mapping[str, Any]) -> bool:
    return str(point["reason"]).startswith("the trace holds no shapes")


MAX_PROFILES = 12
MAX_ROWS = 4000                  # launches read for one page, the longest first


def requested_profiles(params: Mapping[str, Any], first: Profile | None = None) -> list[Profile]:
    """Return the ready counter reports and traces of `?profiles=1,2` in the order asked.

    Also repeated; `first` stands in front.
    """
    texts = params.getlist("profiles") if hasattr(params, "getlist") else [params.get("profiles", "")]
    numbers = [int(part) for text in texts for part in str(text).split(",") if part.strip().isdecimal() and len(part.strip()) < 10]
    ids = list(dict.fromkeys(([first.pk] if first else []) + numbers))[:MAX_PROFILES]
    ready = Profile.objects.filter(pk__in=ids, status=Profile.Status.READY, kind__in=(Profile.Kind.COUNTERS, Profile.Kind.TRACE))
    by_id = {profile.pk: profile for profile in ready}
    return [by_id[pk] for pk in ids if pk in by_id]


Launches = list[tuple[Profile, KernelStat, list[LaunchFacts]]]


def launches_of(profiles: Sequence[Profile]) -> Launches:
    """Return each profile's kernels with their complete launches, in the report's order."""
    return [(profile, kernel, launches) for profile in profiles for kernel, launches in _groups(profile)]


def points_of(read: Launches, measured: Sequence[MeasuredCeilings] = (), *, per_launch: bool = False) -> list[dict[str, Any]]:
    """Return one point per kernel of each profile (the sum of its launches), or per launch.

    Those without a dot say the `reason`.
    """
    points = []
    labels = labels_of(list({profile.pk: profile for profile, _, _ in read}.values()))
    for profile, kernel, launches in read:
        sets = [([launch], f"#{launch.index}") for launch in launches] if per_launch else [(launches, "")]
        points += [point_of(kernel, group, mark, profile, labels[profile.pk], measured) for group, mark in sets]
    return sorted(points, key=lambda point: -(point["time_ns"] or 0.0))


def labels_of(profiles: Sequence[Profile]) -> dict[int, str]:
    """Names of profiles as legends say them: the build goes with it where names are the same."""
    names = [profile.name for profile in profiles]
    return {profile.pk: profile.name if names.count(profile.name) == 1 else f"{profile.name} ({profile.build or f'#{profile.pk}'})"
            for profile in profiles}


def _groups(profile: Profile) -> list[tuple[KernelStat, list[LaunchFacts]]]:
    groups: dict[int, list[LaunchFacts]] = {}
    kernels: dict[int, KernelStat] = {}
    rows = profile.counter_launches.filter(incomplete="").select_related("kernel", "kernel__family", "kernel__profile")
    for row in rows.defer("rules").order_by("-duration_ns")[:MAX_ROWS]:
        kernels[row.kernel_id] = row.kernel
        groups.setdefault(row.kernel_id, []).append(counters.from_json(row.facts))
    return [(kernels[pk], sorted(launches, key=lambda each: each.index)) for pk, launches in groups.items()]


def rungs(launches: Sequence[LaunchFacts], measured: Sequence[MeasuredCeilings]) -> list[Rung]:
    """Return the steps from the data sheet to what these launches achieved together."""
    device = launches[0].device
    return ladder(counters.combine_points(launches), counters.combine_roofs(launches), gpus.lookup(device),
                  newest_of_model(measured, device))


def by_device(launches: Sequence[LaunchFacts], measured: Sequence[MeasuredCeilings]) -> dict[str, MeasuredCeilings]:
    return {device: rates for device in {launch.device for launch in launches} if (rates := newest_of_model(measured, device))}


def point_of(kernel: KernelStat, launches: Sequence[LaunchFacts], mark: str, profile: Profile, label: str,
             measured: Sequence[MeasuredCeilings]) -> dict[str, Any]:
    """Return one dot with everything known of it, for a program and for the page."""
    whole = counters.combine_launches(launches)
    point = whole.point if whole else launches[0].point
    longest = max(launches, key=lambda each: each.duration_ns or 0.0)
    bounded = whole.bounded if whole else None
    device = launches[0].device
    reached = bounds.reached_roof(point, whole.sol, bounded) if whole else None
    return {
        "kernel_id": kernel.pk, "name": kernel.name, "short_name": f"{kernel.short_name} {mark}".strip(),
        "index": launches[0].index,
        "url": reverse("kernel", args=[kernel.profile_id, kernel.pk]), "launches": len(launches),
        "profile_id": profile.pk, "profile_label": label, "build": profile.build,
        "family": f"f{kernel.family_id}" if kernel.family_id else kernel.short_name,
        "family_label": kernel.family.name if kernel.family else kernel.short_name,
        "time_ns": point.duration_ns, "flop": point.flop, "dram_bytes": point.dram_bytes, "intensity": point.intensity,
        "flop_s": point.flop_s, "dram_bytes_s": point.dram_bytes_s, "precision": point.precision or "",
        "precision_label": gpus.PRECISIONS.get(point.precision or "", point.precision or ""),
        "by_precision": point.by_precision, "side": point.side or "", "roof": point.roof, "roof_pct": point.roof_pct,
        "ridge": point.ridge, "bound": whole.bound if whole else "", "bound_reason": whole.bound_reason if whole else "",
        "bounded": bounded.as_json() if bounded else None,
        "recoverable_ns": bounds.recoverable_ns(point.duration_ns, reached[0]) if reached else None,
        "levels": {name: asdict(level) for name, level in whole.levels.items()} if whole else {},
        "ladder": [asdict(rung) for rung in rungs(launches, measured)] if whole else [],
        "sm_clock_hz": longest.roofs.sm_clock_hz, "device": device, "reason": point.reason or "",
        "notes": list(point.notes), "grid": launches[0].grid, "block": launches[0].block,
        "basis": COUNTED, "shape": "", "mark": "", "why": "",
    }


def pairs_of(points: Sequence[Mapping[str, Any]], before: int, after: int) -> list[tuple[int, int]]:
    """Return the indices of the same kernel in both profiles.

    By full name (per launch in order), then by family where each side has one.
    """
    pairs: list[tuple[int, int]] = []
    for key in ("name", "family"):
        pair_indices = {index for pair in pairs for index in pair}
        sides: list[dict[Any, list[int]]] = [{}, {}]
        for index, point in enumerate(points):
            if index not in pair_indices and point["profile_id"] in (before, after):
                sides[point["profile_id"] == after].setdefault(point[key], []).append(index)
        for name, old in sides[0].items():
            new = sides[1].get(name, [])
            if key == "name" or len(old) == len(new) == 1:
                order = [sorted(side, key=lambda i: points[i]["index"]) for side in (old, new)]
                pairs += list(zip(*order, strict=False))
    return pairs


class RateStepJson(TypedDict):
    """A step down from the data sheet (`analysis.kernel.ceilings.Rung`)."""

    name: str
    label: str
    rate: float
    pct: float
    lost_pct: float
    source: str


class RooflinePointJson(TypedDict):
    """A kernel, or a launch, under its roofs: counted, or by the shapes of a trace (`basis`, `mark`, `why`)."""

    kernel_id: int | None
    name: str
    short_name: str
    index: int
    url: str
    launches: int
    profile_id: int
    profile_label: str
    build: str
    family: str
    family_label: str
    time_ns: float | None
    flop: float | None
    dram_bytes: float | None
    intensity: float | None
    flop_s: float | None
    dram_bytes_s: float | None
    precision: str
    precision_label: str
    by_precision: dict[str, float]
    side: str
    roof: float | None
    roof_pct: float | None
    ridge: float | None
    bound: str
    bound_reason: str
    bounded: Bound | None
    recoverable_ns: float | None
    levels: dict[str, Level]
    ladder: list[RateStepJson]
    sm_clock_hz: float | None
    device: str
    reason: str
    notes: list[str]
    grid: list[int] | None
    block: list[int] | None
    basis: str
    shape: str
    mark: str
    why: str


class MeasuredOnJson(TypedDict):
    label: str
    url: str


class RooflineJson(Paged):
    """Ceilings and points, the longest first; `pairs`: positions of one kernel in both profiles; `waiting`: workers make them."""

    profiles: list[int]
    profile: int | None
    per: str
    ceilings: list[Ceiling]
    points: list[RooflinePointJson]
    waiting: list[int]
    measured: dict[str, MeasuredOnJson]
    before: int | None
    after: int | None
    pairs: list[list[int]]
    thresholds: dict[str, float]
    data_sheets: str


def roofline_json(profiles: Sequence[Profile], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return ceilings and points.

    `per=launch` for single launches; `before` and `after` name the profiles that arrows join.
    """
    measured, groups = measured_gpus(), launches_of(profiles)
    per_launch = params.get("per") == "launch"
    points = points_of(groups, measured, per_launch=per_launch)
    launches = [facts for _, _, group in groups for facts in group]
    devices = by_device(launches, measured)
    lines, waiting = ceilings(launches, devices), []
    labels = labels_of(profiles)
    for profile in profiles:
        if profile.kind == Profile.Kind.TRACE:
            more, drawn, is_waiting = shape_points(profile, labels[profile.pk])
            points += more
            lines += [line for line in drawn if not any((line.device, line.kind, line.precision, line.origin) == (
                ceiling.device, ceiling.kind, ceiling.precision, ceiling.origin) for ceiling in lines)]
            waiting += [profile.pk] if is_waiting else []
            devices |= {name: rates for name in {line.device for line in drawn} if (rates := newest_of_model(measured, name))}
    points.sort(key=lambda point: -(point["time_ns"] or 0.0))
    old, new = _requested_arrows(profiles, params)
    return {
        "profiles": [profile.pk for profile in profiles], "profile": profiles[0].pk if profiles else None,
        "per": "launch" if per_launch else "kernel",
        "ceilings": [ceiling.as_json() for ceiling in lines], "points": points, "waiting": waiting,
        "measured": {device: {"label": rates.label, "url": rates.url} for device, rates in devices.items()},
        "before": old, "after": new, "pairs": [list(pair) for pair in pairs_of(points, old, new)] if old and new else [],
        "thresholds": bounds.THRESHOLDS, "data_sheets": gpus.VERSION,
    }


def _requested_arrows(profiles: Sequence[Profile], params: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """`before=1&after=2`; both must be among the profiles."""
    ids = {str(profile.pk): profile.pk for profile in profiles}
    old, new = ids.get(str(params.get("before", ""))), ids.get(str(params.get("after", "")))
    return (old, new) if old and new and old != new else (None, None)
