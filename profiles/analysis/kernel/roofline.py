"""Roofs of a launch: what its GPU can do at the clocks of the measurement.

A report's own figures (`…peak_sustained` per cycle × the clock measured beside it) come first, then the tables of
`profiles.analysis.core.gpus`. A roof that nobody states is absent. All rates are dense.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from profiles.analysis.core import gpus
from profiles.analysis.core.gpus import roof_side
from profiles.analysis.kernel.metrics import DURATION, Metrics, dram_bytes, number, sm_clock
from profiles.analysis.kernel.work import PATH, SASS, SCALAR, SRC, TENSOR_PIPE, Work, tensor_instructions, tensor_opcodes, work


@dataclass(frozen=True)
class Roofs:
    """Ceilings at the clocks of the measurement. Rates are dense operations per second, bytes per second."""

    dram_bytes_s: float | None
    l2_bytes_s: float | None
    compute: dict[str, float]                 # precision -> operations per second at sm_clock_hz
    per_cycle: dict[str, float]               # the same per SM clock cycle of the whole GPU
    sm_clock_hz: float | None
    source: dict[str, str] = field(default_factory=dict)     # "dram", "l2", "l1" or precision -> where the figure is from
    l1_bytes_s: float | None = None


def roofs(
    metrics: Metrics, device: str = "", compute_capability: str | None = None, sm_count: int | None = None
) -> Roofs:
    """Return the ceilings of a launch at its clocks.

    What the report states first, then `profiles.analysis.core.gpus`; a roof nobody states is absent.
    """
    model = gpus.lookup(device)
    clock = sm_clock(metrics)
    source: dict[str, str] = {}
    per_cycle = _stated_rates(metrics, source)
    for precision in gpus.PRECISIONS:
        rate = gpus.ops_per_sm_cycle(compute_capability, precision)
        if precision not in per_cycle and rate and sm_count:
            per_cycle[precision] = float(rate * sm_count)
            source[precision] = f"{rate} operations per SM and clock of compute capability {compute_capability}"
    compute = {precision: rate * clock for precision, rate in per_cycle.items()} if clock else {}
    for precision, peak in (model.peaks if model else {}).items():
        if precision not in compute:
            compute[precision] = peak
            source[precision] = f"data sheet at {model.boost_hz / 1e6:.0f} MHz: {model.source}" if model else ""
    return Roofs(_dram_roof(metrics, model, source), _l2_roof(metrics, source), compute, per_cycle, clock, source,
                 _l1_roof(metrics, sm_count, source))


def _stated_rates(metrics: Metrics, source: dict[str, str]) -> dict[str, float]:
    """Dense operations per cycle of the whole GPU as `…peak_sustained` states them."""
    per_cycle: dict[str, float] = {}
    for precision, (letter, per_fma, _) in SCALAR.items():
        name = f"sm__{SASS}{letter}fma_pred_on.sum.peak_sustained"
        rate = number(metrics, name)
        if rate:
            per_cycle[precision], source[precision] = per_fma * rate, name
    for name in metrics:
        if not name.endswith(".sum.peak_sustained"):
            continue
        match = PATH.match(name.removesuffix(".peak_sustained"))
        rate = number(metrics, name) if match else None
        # an aggregate over sparsities states the sparse rate: only leaves that say "off", or types without sparsity
        if match is None or rate is None or not (match[4] == "off" or match[2] in ("fp64", "int1")):
            continue
        precision = f"{SRC.get(match[2], match[2])}_tensor"
        if rate > per_cycle.get(precision, 0.0):
            per_cycle[precision], source[precision] = rate, name
    return per_cycle


def _dram_roof(metrics: Metrics, model: gpus.Gpu | None, source: dict[str, str]) -> float | None:
    per_cycle, clock = (
        number(metrics, "dram__bytes.sum.peak_sustained"),
        number(metrics, "dram__cycles_elapsed.avg.per_second"),
    )
    if per_cycle and clock:
        source["dram"] = "dram__bytes.sum.peak_sustained × dram__cycles_elapsed.avg.per_second"
        return per_cycle * clock
    if model is None:
        return None
    source["dram"] = f"data sheet: {model.source}"
    return model.dram_bytes_s


def _l2_roof(metrics: Metrics, source: dict[str, str]) -> float | None:
    """What the L2 can hand to the SMs: 32 B per cycle and port (`lts__lts2xbar…`), at the L2's clock."""
    per_cycle, clock = (
        number(metrics, "lts__lts2xbar_cycles_active.sum.peak_sustained"),
        number(metrics, "lts__cycles_elapsed.avg.per_second"),
    )
    if not per_cycle or not clock:
        return None
    source["l2"] = "lts__lts2xbar_cycles_active.sum.peak_sustained × 32 B × lts__cycles_elapsed.avg.per_second"
    return 32.0 * per_cycle * clock


def _l1_roof(metrics: Metrics, sm_count: int | None, source: dict[str, str]) -> float | None:
    """What the L1s can write back to registers: 128 B per cycle and SM (`l1tex__lsu_writeback_active…`), at their clock.

    As Nsight Compute's hierarchical roofline has it. 128 B per clock and SM: white papers of V100, A100, H100.
    """
    clock = number(metrics, "l1tex__cycles_elapsed.avg.per_second") or sm_clock(metrics)
    if clock is None:
        return None
    per_cycle = number(metrics, "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.peak_sustained")
    if per_cycle:
        source["l1"] = "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.peak_sustained × l1tex__cycles_elapsed.avg.per_second"
        return per_cycle * clock
    ports = number(metrics, "l1tex__lsu_writeback_active_mem_lgds.sum.peak_sustained",
                   "l1tex__lsu_writeback_active_mem_lg.sum.peak_sustained")
    if ports:
        source["l1"] = "l1tex__lsu_writeback_active….sum.peak_sustained × 128 B × l1tex__cycles_elapsed.avg.per_second"
        return 128.0 * ports * clock
    if not sm_count:
        return None
    source["l1"] = "128 B per SM and clock × the SM clock of the report"
    return 128.0 * sm_count * clock


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
    by_name = {}
    for name, reader in (("l1", l1_bytes), ("l2", l2_bytes), ("dram", _dram)):
        moved, source = reader(metrics)
        if moved is not None:
            by_name[name] = level(name, moved, duration_ns, flop, roofs, source)
    return by_name


def level(name: str, moved: float, duration_ns: float | None, flop: float | None, roofs: Roofs, source: str = "") -> Level:
    roof = getattr(roofs, f"{name}_bytes_s")
    rate = moved / (duration_ns * 1e-9) if duration_ns else None
    return Level(moved, rate, roof, flop / moved if flop and moved else None,
                 100.0 * rate / roof if rate is not None and roof else None, source)


def _dram(metrics: Metrics) -> tuple[float | None, str]:
    return dram_bytes(metrics), "dram__bytes_read.sum + dram__bytes_write.sum"


def l1_bytes(metrics: Metrics) -> tuple[float | None, str]:
    """Return the bytes that loads of global, local and shared memory brought to registers."""
    return _bytes_from_count(metrics, "l1tex__lsu_writeback_active_mem_lgds.sum", 128.0,
                             "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum")


def l2_bytes(metrics: Metrics) -> tuple[float | None, str]:
    """Return the bytes that the L2 handed to the SMs.

    In older reports what the SMs asked of it and wrote to it.
    """
    moved = _bytes_from_count(metrics, "lts__lts2xbar_cycles_active.sum", 32.0, "derived__lts__lts2xbar_bytes.sum")
    return moved if moved[0] is not None else _bytes_from_count(metrics, "lts__t_sectors_srcunit_tex.sum", 32.0, "lts__t_bytes.sum")


def _bytes_from_count(metrics: Metrics, name: str, each: float, derived: str) -> tuple[float | None, str]:
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


def combine_levels(parts: list[tuple[float | None, Mapping[str, Level]]], flop: float | None, roofs: Roofs) -> dict[str, Level]:
    """Return Σ bytes per level over several launches under time-weighted roofs.

    `parts`: (duration_ns, levels); a level that one lacks is absent.
    """
    if not parts:
        return {}
    total_ns = sum(duration or 0.0 for duration, _ in parts)
    names = [name for name in LEVELS if all(name in levels_by_name for _, levels_by_name in parts)]
    return {name: level(name, sum(each[name].bytes for _, each in parts), total_ns, flop, roofs, parts[0][1][name].source)
            for name in names}


# Roofline: where a launch stands under its roofs.
#
# Source: Williams, Waterman, Patterson, "Roofline" (CACM 2009). Work, bytes and roofs are read by `work`, `metrics`,
# `levels` and `roofs` of this package. The compute roof of a mix of precisions is the rate at which one pipe would be
# full: total / max(work_p / peak_p).

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
