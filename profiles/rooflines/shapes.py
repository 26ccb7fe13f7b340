"""Dots without counters: of a trace, one per kernel and shape, from the topic "layer". They stand on least bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.urls import reverse

from profiles.analysis.core import gpus
from profiles.analysis.core.sentences import si_text
from profiles.analysis.kernel.ceilings import Ceiling
from profiles.models import KernelStat, Profile
from profiles.store.documents import typed_read
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
    lines = [line for name, each in document["numbers"].get("gpus", {}).items() for line in _ceilings(name, each, used)]
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
    typed, seen, out = typed_read(profile.pk), set(), []
    for point in points:
        said = typed.get(point["name"])
        if point["kernel_id"] is None or point["kernel_id"] in seen or (point["basis"] != "typed" and not _unshaped(point)):
            continue
        seen.add(point["kernel_id"])
        out.append({"pk": point["kernel_id"], "name": point["name"], "short_name": point["short_name"], "time_ns": point["time_ns"],
                    "typed": said})
    return out


def _unshaped(point: Mapping[str, Any]) -> bool:
    return str(point["reason"]).startswith("the trace holds no shapes")
