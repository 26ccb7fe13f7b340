"""Roofline: where a launch stands under its roofs.

Source: Williams, Waterman, Patterson, "Roofline" (CACM 2009). Work, bytes and roofs are read by `work`, `metrics`,
`levels` and `roofs` of this package. The compute roof of a mix of precisions is the rate at which one pipe would be
full: total / max(work_p / peak_p).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from profiles.analysis.core.roof import roof_side
from profiles.analysis.kernel.metrics import DURATION, Metrics, dram_bytes, number, sm_clock
from profiles.analysis.kernel.roofs import Roofs, roofs
from profiles.analysis.kernel.work import TENSOR_PIPE, Work, tensor_instructions, tensor_opcodes, work

__all__ = ["DURATION", "TENSOR_PIPE", "Metrics", "Point", "Roofs", "Work", "dram_bytes", "number", "point", "roofs", "sm_clock",
           "tensor_instructions", "tensor_opcodes", "work"]



@dataclass(frozen=True)
class Point:
    """Where a launch (or the sum of several) stands. Unknown is None; `reason` says why there is no dot."""

    duration_ns: float | None
    flop: float | None                        # all precisions
    by_precision: dict[str, float]
    precision: str | None                     # the one whose pipe would be full first
    dram_bytes: float | None
    intensity: float | None                   # FLOP per DRAM byte
    flop_s: float | None
    compute_roof: float | None                # FLOP/s of this mix of precisions
    dram_bytes_s: float | None                # achieved
    dram_roof: float | None                   # bytes/s
    ridge: float | None                       # intensity at which both roofs meet
    side: str | None                          # "memory" | "compute": which roof is lower at this intensity
    roof: float | None                        # FLOP/s attainable at this intensity
    roof_pct: float | None                    # of that roof reached, 0-100
    reason: str | None = None
    notes: tuple[str, ...] = field(default=())


def point(duration_ns: float | None, done: Work, moved_bytes: float | None, ceilings: Roofs) -> Point:
    """Return where this work in this time stands under these roofs."""
    seconds = duration_ns * 1e-9 if duration_ns else None
    flop = done.total if done.by_precision or done.unknown is None else None
    intensity = flop / moved_bytes if flop and moved_bytes else None
    flop_s = flop / seconds if flop is not None and seconds else None
    full_s = {p: amount / ceilings.compute[p] for p, amount in done.by_precision.items() if ceilings.compute.get(p)}
    precision = max(full_s, key=lambda p: full_s[p]) if full_s else max(
        done.by_precision, key=lambda p: done.by_precision[p], default=None)
    whole = flop is not None and len(full_s) == len(done.by_precision)
    compute_roof = flop / max(full_s.values()) if flop and full_s and whole else None
    ridge = compute_roof / ceilings.dram_bytes_s if compute_roof and ceilings.dram_bytes_s else None
    side = roof_side(intensity, ridge) or None
    roof = None
    if compute_roof and intensity is not None and ceilings.dram_bytes_s:
        roof = min(compute_roof, intensity * ceilings.dram_bytes_s)
    return Point(
        duration_ns=duration_ns, flop=flop, by_precision=done.by_precision, precision=precision, dram_bytes=moved_bytes,
        intensity=intensity, flop_s=flop_s, compute_roof=compute_roof,
        dram_bytes_s=moved_bytes / seconds if moved_bytes is not None and seconds else None,
        dram_roof=ceilings.dram_bytes_s, ridge=ridge, side=side, roof=roof,
        roof_pct=100.0 * flop_s / roof if flop_s and roof else None,
        reason=_no_dot(duration_ns, flop, moved_bytes, done), notes=(done.note,) if done.note else (),
    )


def _no_dot(duration_ns: float | None, flop: float | None, moved_bytes: float | None, done: Work) -> str | None:
    if not duration_ns:
        return "its duration was not measured"
    if done.unknown:
        return done.unknown
    if not flop:
        return "no floating-point or tensor operations: it moves data or works on integers"
    if not moved_bytes:
        return ("no bytes moved to or from DRAM" if moved_bytes == 0.0 else
                "no DRAM byte counters in the report: capture with --set full")
    return None
