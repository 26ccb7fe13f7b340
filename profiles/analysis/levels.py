"""Traffic of a launch at each level of the memory hierarchy: L1, L2, DRAM. One dot each on a hierarchical roofline.

Sources: Yang, Kurth, Williams, "Hierarchical Roofline Analysis for GPUs" (2020); the metrics are those of Nsight
Compute's own section SpeedOfLight_HierarchicalSingleRooflineChart:

    L1     l1tex__lsu_writeback_active_mem_lgds × 128 B      what global, local and shared loads bring to registers
    L2     lts__lts2xbar_cycles_active × 32 B                what the L2 hands to the SMs
    DRAM   dram__bytes_read + dram__bytes_write

What TMA or cp.async bring into shared memory passes no register: a tensor kernel of Hopper has little traffic at L1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from profiles.analysis.metrics import DURATION, Metrics, dram_bytes, number
from profiles.analysis.roofs import Roofs

LEVELS = {"l1": "L1", "l2": "L2", "dram": "DRAM"}      # nearest to the SM first


@dataclass(frozen=True)
class Level:
    """Bytes of a launch at one level, with the level's roof. Unknown is None."""

    bytes: float
    bytes_s: float | None
    roof_bytes_s: float | None
    intensity: float | None                  # FLOP per byte of this level
    roof_pct: float | None                   # of this level's bandwidth
    source: str


def levels(metrics: Metrics, duration_ns: float | None, flop: float | None, roofs: Roofs) -> dict[str, Level]:
    """The levels whose traffic the report counts."""
    found = {}
    for name, read in (("l1", l1_bytes), ("l2", l2_bytes), ("dram", _dram)):
        moved, source = read(metrics)
        if moved is not None:
            found[name] = level(name, moved, duration_ns, flop, roofs, source)
    return found


def level(name: str, moved: float, duration_ns: float | None, flop: float | None, roofs: Roofs, source: str = "") -> Level:
    roof = getattr(roofs, f"{name}_bytes_s")
    rate = moved / (duration_ns * 1e-9) if duration_ns else None
    return Level(moved, rate, roof, flop / moved if flop and moved else None,
                 100.0 * rate / roof if rate is not None and roof else None, source)


def _dram(metrics: Metrics) -> tuple[float | None, str]:
    return dram_bytes(metrics), "dram__bytes_read.sum + dram__bytes_write.sum"


def l1_bytes(metrics: Metrics) -> tuple[float | None, str]:
    """Bytes that loads of global, local and shared memory brought to registers."""
    return _summed(metrics, "l1tex__lsu_writeback_active_mem_lgds.sum", 128.0, "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum")


def l2_bytes(metrics: Metrics) -> tuple[float | None, str]:
    """Bytes that the L2 handed to the SMs; in older reports what the SMs asked of it and wrote to it."""
    moved = _summed(metrics, "lts__lts2xbar_cycles_active.sum", 32.0, "derived__lts__lts2xbar_bytes.sum")
    return moved if moved[0] is not None else _summed(metrics, "lts__t_sectors_srcunit_tex.sum", 32.0, "lts__t_bytes.sum")


def _summed(metrics: Metrics, name: str, each: float, derived: str) -> tuple[float | None, str]:
    """count × bytes, or a rate × the duration; the name that it rests on."""
    count = number(metrics, name)
    if count is not None:
        return each * count, f"{name} × {each:g} B"
    duration = number(metrics, DURATION)
    for other, factor in ((f"{name}.per_second", each), (f"{derived}.per_second", 1.0)):
        rate = number(metrics, other)
        if rate is not None and duration is not None:
            return factor * rate * duration * 1e-9, f"{other} × {DURATION}" + (f" × {factor:g} B" if factor != 1 else "")
    total = number(metrics, derived)
    return total, derived


def combined_levels(parts: list[tuple[float | None, Mapping[str, Level]]], flop: float | None, roofs: Roofs) -> dict[str, Level]:
    """Σ bytes over several launches (duration_ns, levels) under time-weighted roofs; a level that one lacks is absent."""
    if not parts:
        return {}
    total_ns = sum(duration or 0.0 for duration, _ in parts)
    names = [name for name in LEVELS if all(name in each for _, each in parts)]
    return {name: level(name, sum(each[name].bytes for _, each in parts), total_ns, flop, roofs, parts[0][1][name].source)
            for name in names}
