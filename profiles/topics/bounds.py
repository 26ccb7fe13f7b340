"""What bounds the kernels of a trace: by the dimensions of their launches, as the topic "layer" classifies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profiles.analysis.core.roof import COMPUTE, MEMORY
from profiles.analysis.core.sentences import pct_text
from profiles.models import KernelStat, Profile
from profiles.rows import text

LEAST_KNOWN = 0.5               # share of a kernel's time whose roof must be known


def kernel_bounds(work: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return (roof that most of its time stands under, the numbers) by kernel, of rows by kernel and shape of the topic "layer"."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in work:
        rows.setdefault(row["kernel"], []).append(row)
    return {kernel: bound for kernel, own in rows.items() if (bound := _bound(own)) is not None}


def _bound(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    spent = {side: sum(row["total_ns"] for row in rows if row["side"] == side) for side in (MEMORY, COMPUTE)}
    known_ns, whole_ns = sum(spent.values()), sum(row["total_ns"] for row in rows)
    if not known_ns or known_ns < LEAST_KNOWN * whole_ns:
        return None
    side = max(spent, key=lambda each: spent[each])
    rated = [row for row in rows if row["side"] == side and row["floor_ns"] is not None and not row["mark"]]
    rated_ns = sum(row["total_ns"] for row in rated)
    words = f"under its {side} roof"
    if rated_ns:
        words = f"{pct_text(100.0 * sum(row['floor_ns'] for row in rated) / rated_ns)} of its {side} roof"
    part = "" if spent[side] == whole_ns else f" for {pct_text(100.0 * spent[side] / whole_ns)} of its time"
    return side, f"{words}{part}, by the dimensions of its launches"


def bounds_write(profile: Profile, work: Sequence[Mapping[str, Any]]) -> None:
    """Keep what bounds the kernels of a trace in their rows: pages, API and files read it there, as they do of counters."""
    made = kernel_bounds(work)
    changed = []
    for stat in KernelStat.objects.filter(profile=profile).only("pk", "name", "bound", "bound_reason").iterator():
        bound, reason = made.get(stat.name, ("", ""))
        if (stat.bound, stat.bound_reason) != (bound, reason):
            stat.bound, stat.bound_reason = bound, text(reason)
            changed.append(stat)
    KernelStat.objects.bulk_update(changed, ["bound", "bound_reason"], batch_size=500)
