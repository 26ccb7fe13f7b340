"""What the roofline page shows: the answer, the figure's choices, what each kernel loses, what would move it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django.db import transaction
from django.db.models import QuerySet

from profiles.analysis.kernel import bounds
from profiles.analysis.trace.layer.launches import DTYPES, MOST_TYPED, OPERATORS, typed_work
from profiles.base.refused import Refused
from profiles.models import KernelStat, Profile
from profiles.rooflines.selectors import COUNTED, roofline_json, without_shapes
from profiles.store.objects import typed_read, typed_write

# What people may say of a trace's kernels: the operator's shape, where the trace tells none.


def typed_set(kernel: KernelStat, *, operator: str, dims: str, dtype: str) -> None:
    """Keep an operator's shape and type for every launch of a kernel that the trace tells none of; empty `dims` forget it.

    Raises Refused with the reason. The topic "layer" is made again when it is next asked for.
    """
    with transaction.atomic():
        Profile.objects.select_for_update().get(pk=kernel.profile_id)           # one writer at a time
        document = typed_read(kernel.profile_id)
        document.pop(kernel.name, None)
        if dims.strip():
            typed_work(operator, dims, dtype)
            if len(document) >= MOST_TYPED:
                raise Refused(f"at most {MOST_TYPED} kernels of a profile")
            document[kernel.name] = {"operator": operator, "dims": dims.strip(), "dtype": dtype}
        typed_write(kernel.profile_id, document)


COLOURS = {"bound": "what bounds it", "precision": "precision", "profile": "profile", "build": "build", "family": "family"}
SHOWN = 25                       # kernels in the tables of losses and of moves; the API has all


def roofline_page(profiles: Sequence[Profile], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything but the figure, which is made of the same points."""
    document = roofline_json(profiles, params)
    dots = [point for point in document["points"] if not point["reason"] and point["intensity"]]
    none = [point for point in document["points"] if point["reason"] or not point["intensity"]]
    colour = str(params.get("colour", ""))
    colour = colour if colour in COLOURS else "profile" if len(profiles) > 1 else "bound"
    families = {point["family"]: point["family_label"] for point in dots}
    family = str(params.get("family", ""))
    place = {id(point): index for index, point in enumerate(dots)}
    pairs = [(place[id(document["points"][a])], place[id(document["points"][b])]) for a, b in document["pairs"]
             if id(document["points"][a]) in place and id(document["points"][b]) in place]
    rated = sorted((point for point in document["points"]
                    if point["bounded"] and point["bound"] and point["recoverable_ns"] != 0.0),
                   key=lambda point: -(point["recoverable_ns"] or 0.0))
    traces = [profile for profile in profiles if profile.kind == Profile.Kind.TRACE]
    return document | {
        "from_shapes": bool(traces), "beyond": [dot for dot in dots if dot["mark"]],
        "only_shapes": bool(profiles) and len(traces) == len(profiles),
        "typable": without_shapes(traces[0], [point for point in document["points"] if point["profile_id"] == traces[0].pk])[:SHOWN]
        if traces else [], "typable_of": traces[0] if traces else None,
        "typed_operators": [(name, what, example) for name, (_, what, example) in OPERATORS.items()], "typed_dtypes": list(DTYPES),
        "shown": profiles, "dots": dots, "without": none, "colour": colour, "colours": COLOURS,
        "family": family if family in families else "", "families": sorted(families.items(), key=lambda pair: pair[1].lower()),
        "dot_pairs": pairs, "joined": [next((point["profile_label"] for point in dots if point["profile_id"] == pk), "") for pk in
                                       (document["before"], document["after"])] if pairs else [],
        "precisions": list(dict.fromkeys(point["precision_label"] for point in dots)),
        "bounds": [(bound, bounds.WORDS[bound]) for bound in bounds.WORDS if any(point["bound"] == bound for point in dots)],
        "answer": answer(document["points"], dots), "losses": losses(document["points"]), "moves": rated[:SHOWN],
        "moves_more": max(0, len(rated) - SHOWN),
        "threshold_rows": [{"name": name.rsplit("_", 1)[0].replace("_", " "), "key": name, "value": value,
                            "unit": bounds.MEANINGS[name][0], "meaning": bounds.MEANINGS[name][1]}
                           for name, value in bounds.THRESHOLDS.items()],
        "query": urlencode({"profiles": ",".join(str(profile.pk) for profile in profiles), "per": document["per"]}),
        "version": (tuple((profile.pk, profile.sha256, profile.gpu_time_ns) for profile in profiles), tuple(families.items()),
                    tuple((point["basis"], point["flop"]) for point in dots if point["basis"] != COUNTED),
                    tuple(sorted((device, gpu["label"], gpu["url"]) for device, gpu in document["measured"].items()))),
    }


def losses(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return where each kernel lost the data sheet's rate, in percent of it."""
    rows: list[dict[str, Any]] = []
    for point in points:
        rungs = {rung["name"]: rung for rung in point["ladder"]}
        if "achieved" not in rungs or len(rungs) < 2:
            continue
        rows.append({"point": point, "rungs": rungs, "segments": _segments(point["ladder"]),
                     "unit": "FLOP/s" if point["side"] == "compute" else "B/s",
                     "clock_pct": rungs["clock"]["lost_pct"] if "clock" in rungs and "sheet" in rungs else None,
                     "kernel_lost_ns": _worth(point, rungs)})
    return sorted(rows, key=lambda row: -(row["kernel_lost_ns"] or 0.0))[:SHOWN]


def _segments(rungs: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, float]]:
    """(what, percent, where it begins) from what was achieved up to the highest rung: they end at 100."""
    kinds = {"clock": "clock", "measured": "nobody", "achieved": "kernel"}
    parts, level = [], 0.0
    for kind, reaches in [("achieved", rungs[-1]["pct"]), *((kinds[low["name"]], high["pct"]) for high, low in
                                                            zip(rungs[-2::-1], rungs[:0:-1], strict=True))]:
        end = min(100.0, max(level, reaches))
        if end > level:
            parts.append((kind, end - level, level))
        level = end
    return parts


def _worth(point: Mapping[str, Any], rungs: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Time to win if it reached what was measured (else its roof) at its own clock."""
    goal = rungs.get("measured") or rungs.get("clock")
    if goal is None or not point["time_ns"] or not goal["rate"]:
        return None
    worth_ns: float = point["time_ns"] * (1.0 - rungs["achieved"]["rate"] / goal["rate"])
    return max(0.0, worth_ns)


def answer(points: Sequence[Mapping[str, Any]], dots: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what bounds how much of the whole time, and the farthest kernel that matters."""
    total = sum(dot["time_ns"] for dot in dots)
    if not total:
        return {}
    rated = [dot for dot in dots if dot["roof_pct"] is not None and dot["recoverable_ns"] is not None]
    gap = {id(dot): dot["recoverable_ns"] for dot in rated}
    farthest = max(rated, key=lambda dot: gap[id(dot)], default=None)
    kinds = {bound: sum(point["time_ns"] or 0.0 for point in points if point["bound"] == bound) for bound in bounds.WORDS}
    whole = sum(point["time_ns"] or 0.0 for point in points)
    return {"total_ns": total, "is_sided": any(dot["side"] for dot in dots), "whole_ns": whole,
            "no_dot_ns": max(0.0, whole - total), "farthest": farthest,
            "gap_ns": gap[id(farthest)] if farthest else None, "count": len(dots),
            "kinds": [(bounds.WORDS[bound], 100.0 * spent / whole) for bound, spent in kinds.items() if spent]}


def choosable() -> QuerySet[Profile]:
    """Reports and traces that can be put on a roofline together."""
    return Profile.objects.filter(status=Profile.Status.READY, kind__in=(Profile.Kind.COUNTERS, Profile.Kind.TRACE)).only(
        "pk", "name", "build", "gpu")[:200]
