"""What a GPU could do, and how near work came to it: rates, intensity, class, share of the ceiling, and what cannot be.

Roofline: time is at least the longer of FLOP at the peak and bytes at the memory's bandwidth (Williams, Waterman and Patterson,
CACM 52(4), 2009). Ceilings measured on the team's GPU come first, the data sheet's stand in (`core.gpus`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis.core import gpus
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.gpus import MEMORY, roof_side
from profiles.analysis.core.sentences import si_text
from profiles.analysis.trace.layer.launches import LaunchWork, gpu_of_rows, launch_work, precision_of
from profiles.analysis.trace.layer.work import PRODUCTS
from profiles.ingest.arrays import Floats
from profiles.ingest.trace import Category

IMPOSSIBLE, FROM_L2, ABOVE_MEASURED = "impossible", "impossible from DRAM", "above the measured ceiling"
_INSTEAD = {"bf16_tensor": "fp16_tensor", "tf32_tensor": "fp16_tensor"}      # GPUs before Ampere have FP16 alone
_CUDA_CORES = {"fp64_tensor": "fp64", "tf32_tensor": "fp32", "fp32": "fp32"}


@dataclass(frozen=True)
class Ceilings:
    """Rates per second of one model of GPU: "dram" in bytes, precisions of `gpus.PRECISIONS` in operations."""

    gpu: str
    sheet: Mapping[str, float]
    measured: Mapping[str, float]
    label: str = ""                     # of what was measured: "measured 2026-11-21"
    l2_bytes: int | None = None

    def rate(self, key: str) -> tuple[float, str] | None:
        """Return the ceiling and where it is from ("measured", "data sheet"); None where neither is known."""
        for name in dict.fromkeys((key, _INSTEAD.get(key, key), _CUDA_CORES.get(key, key))):
            if name in self.measured:
                return self.measured[name], "measured"
            if name in self.sheet:
                return self.sheet[name], "data sheet"
        return None


def ceilings_of(gpu: str, measured: Mapping[str, Any] | None = None) -> Ceilings:
    """Return the ceilings of a GPU by its name. `measured`: {"label", "rates": {"dram": …, "fp16_tensor": …}}."""
    model = gpus.peaks_of(gpu) if gpu else None
    sheet = {"dram": model.dram_bytes_s, **model.peaks} if model else {}
    rates = {key: float(value) for key, value in (measured or {}).get("rates", {}).items() if value and value > 0}
    return Ceilings(gpu, sheet, rates, str((measured or {}).get("label", "")), model.l2_bytes if model else None)


@dataclass(frozen=True)
class Judged:
    """How near work came to the ceilings. None is unknown; `mark` is set wherever `roof_pct` is above 100."""

    flop_s: float | None = None
    bytes_s: float | None = None
    intensity: float | None = None      # FLOP per byte
    ridge: float | None = None          # intensity at which memory and arithmetic take as long
    side: str = ""                      # "memory" | "compute"; "" unknown
    floor_ns: float | None = None       # at the ceiling
    roof_pct: float | None = None       # 100 · floor / time
    ceiling: str = ""                   # "DRAM 4.80 TB/s, data sheet"
    limit: str = ""                     # which ceiling the share is of: "memory" | "compute"
    mark: str = ""
    why: str = ""                       # what may be wrong


def judge(flop: float | None, moved: float | None, total_ns: float, launches: int, precision: str, ceilings: Ceilings) -> Judged:
    """Return how near `launches` launches, which together take `total_ns` for `flop` and `moved` bytes, came to their ceilings.

    The class needs both amounts and both ceilings; the share stands on what is known of them, as a lower bound of the time.
    """
    if total_ns <= 0 or (flop is None and moved is None):
        return Judged()
    peak, dram = (ceilings.rate(precision) if precision else None), ceilings.rate("dram")
    intensity = flop / moved if flop is not None and moved else None
    ridge = peak[0] / dram[0] if peak and dram else None
    side = MEMORY if flop == 0 and moved else roof_side(intensity, ridge)
    compute_ns = 1e9 * flop / peak[0] if flop is not None and peak else None
    memory_ns = 1e9 * moved / dram[0] if moved is not None and dram else None
    limit = "compute" if (compute_ns or 0.0) > (memory_ns or 0.0) else "memory"
    floor = max((bound_ns for bound_ns in (compute_ns, memory_ns) if bound_ns is not None), default=None)
    used = peak if limit == "compute" else dram
    share = 100.0 * floor / total_ns if floor else None
    name = gpus.PRECISIONS.get(precision, precision) if limit == "compute" else "DRAM"
    text = f"{name} {si_text(used[0], 'FLOP/s' if limit == 'compute' else 'B/s')}, {used[1]}" if used and share is not None else ""
    mark, why = _mark(share, limit, precision, (moved or 0.0) / max(launches, 1), (flop or 0.0), total_ns, ceilings)
    return Judged(1e9 * flop / total_ns if flop is not None else None, 1e9 * moved / total_ns if moved is not None else None,
                  intensity, ridge, side, floor, share, text, limit if share is not None else "", mark, why)


def _mark(share: float | None, limit: str, precision: str, moved_each: float, flop: float, total_ns: float,
          ceilings: Ceilings) -> tuple[str, str]:
    """Return ("", "") up to 100 %, else what the excess is called and what may be wrong."""
    if share is None or share <= 100.0:
        return "", ""
    if limit == "memory" and ceilings.l2_bytes and moved_each <= ceilings.l2_bytes:
        return FROM_L2, (f"{si_text(moved_each, 'B')} of a launch fit in the L2 cache ({si_text(ceilings.l2_bytes, 'B')}): "
                         "what an earlier kernel left there need not come from DRAM")
    key = precision if limit == "compute" else "dram"
    rate, origin = ceilings.rate(key) or (0.0, "")
    sheet = Ceilings(ceilings.gpu, ceilings.sheet, {}).rate(key)
    if origin == "measured" and sheet and rate * share / 100.0 <= sheet[0]:
        sheet_text = si_text(sheet[0], "FLOP/s" if limit == "compute" else "B/s")
        return ABOVE_MEASURED, f"{ceilings.label or 'what was measured'} reached less; the data sheet allows {sheet_text}"
    if limit == "compute":
        more = ("TF32 instead of FP32, " if precision == "fp32" else "") + "a sparse product, a narrower type (FP8) than recorded"
        return IMPOSSIBLE, f"the shapes may be of another call; else {more}, or a mask that leaves work out"
    return IMPOSSIBLE, ("the shapes may be of another call; else an operand that is expanded or only partly read, or data that "
                        "stayed in the L2 cache")


# The least time of every launch by its work from shapes and the GPU's data sheet: what a ranking holds launches against.



@dataclass(frozen=True)
class LaunchFloors:
    """Of every launch in the order of `frame.kernels`: its least time in ns, and the FLOP of a product; NaN where unknown."""

    floor_ns: Floats
    flop: Floats


def floors_of(frame: Frame) -> LaunchFloors:
    """Return the floors of all launches: the longer of FLOP at the peak and bytes at DRAM bandwidth.

    NaN where the work or the ceiling is not known, and of what only helps an operator whose work another kernel does.
    """
    """Return the least times, as `launch_floors` has them, and the FLOP that matrix products, convolutions and attention take."""
    kernels = frame.kernels
    floors, flop = np.full(kernels.size, np.nan), np.full(kernels.size, np.nan)
    every = launch_work(frame)
    if not every.rows.size:
        return LaunchFloors(floors, flop)
    gpu, models = gpu_of_rows(frame, every.rows)
    ceilings = [ceilings_of(model) for model in models]
    names = frame["name"][every.rows].astype(np.int64)
    packed = (names * (len(every.works) + 1) + every.work + 1) * len(models) + gpu      # `np.unique(axis=0)` is 20 times slower
    _, first, kind = np.unique(packed, return_index=True, return_inverse=True)
    rates = np.array([_rates(every, frame, at, ceilings[int(gpu[at])]) for at in first.tolist()])[kind.reshape(-1)]
    peak, dram = rates[:, 0], rates[:, 1]
    compute = frame["category"][kernels] == Category.COMPUTE
    floors[compute] = 1e9 * np.fmax(every.flop / peak, every.bytes / dram)
    is_product = np.array([work.kind in PRODUCTS for work in every.works] + [False], np.bool_)[every.work]
    flop[compute] = np.where(is_product, every.flop, np.nan)
    return LaunchFloors(floors, flop)


def _rates(every: LaunchWork, frame: Frame, index: int, ceilings: Ceilings) -> tuple[float, float]:
    """Operations and bytes per second that the launch at `index` could reach; NaN where the GPU or the type is not known."""
    number = int(every.work[index])
    precision = precision_of(every.works[number], frame.text(int(every.rows[index]))) if number >= 0 else ""
    rates = ceilings.rate(precision) if precision else None, ceilings.rate("dram")
    peak, dram = (rate[0] if rate else float("nan") for rate in rates)
    return peak, dram
