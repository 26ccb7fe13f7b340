"""Ceilings that were measured on a GPU, and where a launch loses against what its GPU could do.

A measurement (`tuner.tuning.measure.ceilings`) comes with the clock it ran at, so its rate per cycle can be put at the clock of a
launch: what the best kernel of that kind would have done at the same clock. Then

    data sheet  →  at its own clock  →  measured at that clock  →  achieved

tells apart what the clock took, what nobody reaches on this model, and what the kernel leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from profiles.analysis.core import gpus
from profiles.analysis.kernel.roofline import Point, Roofs

KINDS = ("dram", "l2", "l1")


@dataclass(frozen=True)
class MeasuredCeiling:
    """The best of what was measured for one level of memory or one precision. Rates per second and per SM cycle."""

    key: str                     # "dram" | "l2" | "l1" | precision
    label: str                   # "DRAM read", "BF16 GEMM"
    rate: float                  # of the median sample
    clock_hz: float | None       # of the SMs, meanwhile
    per_cycle: float | None
    how: str
    spread: float                # half the distance of the 10th and 90th percentile, relative
    n: int

    def at(self, clock_hz: float | None) -> float:
        """Return the rate at another SM clock.

        DRAM has a clock of its own: its rate stays.
        """
        if self.key == "dram" or clock_hz is None or self.per_cycle is None:
            return self.rate
        return self.per_cycle * clock_hz


@dataclass(frozen=True)
class MeasuredCeilings:
    """Everything that one run of the measuring job found on one GPU."""

    gpu: str
    label: str                   # "measured 2026-11-21 on NVIDIA H200" | "recorded on …"
    ceilings: dict[str, MeasuredCeiling]
    url: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def best_ceilings(gpu: str, label: str, results: Mapping[str, Mapping[str, Any]], url: str = "") -> MeasuredCeilings:
    """Return, for each level and precision, the method that reached most.

    Results that were refused are left out.
    """
    best: dict[str, MeasuredCeiling] = {}
    for result in results.values():
        if not result.get("rate") or result.get("kind") not in (*KINDS, "compute"):
            continue
        key = str(result["precision"] if result["kind"] == "compute" else result["kind"])
        one = MeasuredCeiling(key, str(result["label"]), float(result["rate"]), result.get("sm_clock_hz"), result.get("per_cycle"),
                              str(result.get("how", "")), float(result.get("spread", 0.0)), int(result.get("n", 0)))
        if key not in best or one.rate > best[key].rate:
            best[key] = one
    return MeasuredCeilings(gpu, label, best, url)


@dataclass(frozen=True)
class Rung:
    """One step down from the data sheet. `lost_pct`: of the data sheet's rate, lost since the step above."""

    name: str                    # "sheet" | "clock" | "measured" | "achieved"
    label: str
    rate: float
    pct: float                   # of the highest rung
    lost_pct: float              # negative: this step reaches more than the one above
    source: str


def ladder(point: Point, roofs: Roofs, gpu: gpus.Gpu | None, measured: MeasuredCeilings | None) -> list[Rung]:
    """Return the steps from the data sheet down to what was achieved.

    On the side of the ridge that limits this work. Empty without a rate.
    """
    memory = point.side == "memory" or (point.side is None and point.dram_bytes_s is not None)
    achieved = point.dram_bytes_s if memory else point.flop_s
    if not achieved:
        return []
    steps: list[tuple[str, str, float | None, str]]
    if memory:
        steps = [
            ("sheet", "data sheet", gpu.dram_bytes_s if gpu else None, gpu.source if gpu else ""),
            ("clock", "at the memory clock of the launch", point.dram_roof, roofs.source.get("dram", "")),
            ("measured", _label(measured, "dram"),
             measured.ceilings["dram"].rate if measured and "dram" in measured.ceilings else None,
             measured.ceilings["dram"].how if measured and "dram" in measured.ceilings else ""),
        ]
    else:
        work = point.by_precision
        steps = [
            ("sheet", "data sheet", _mix(work, gpu.peaks) if gpu else None, gpu.source if gpu else ""),
            ("clock", f"at its SM clock, {(roofs.sm_clock_hz or 0.0) / 1e6:,.0f} MHz", point.compute_roof,
             roofs.source.get(point.precision or "", "")),
            ("measured", _label(measured, point.precision or ""),
             _mix(work, {key: each.at(roofs.sm_clock_hz) for key, each in measured.ceilings.items()}) if measured else None,
             measured.ceilings[point.precision or ""].how if measured and (point.precision or "") in measured.ceilings else ""),
        ]
    return _rungs([*steps, ("achieved", "achieved", achieved, "")])


def _label(measured: MeasuredCeilings | None, key: str) -> str:
    one = measured.ceilings.get(key) if measured else None
    return f"{one.label} at that clock, {measured.label}" if measured and one else ""


def _mix(work: Mapping[str, float], rates: Mapping[str, float]) -> float | None:
    """The rate at which one pipe would be full: total / max(work / rate). None where a rate is unknown."""
    full = [amount / rates[precision] for precision, amount in work.items() if rates.get(precision)]
    return sum(work.values()) / max(full) if full and len(full) == len(work) else None


def _rungs(steps: Sequence[tuple[str, str, float | None, str]]) -> list[Rung]:
    known = [(name, label, rate, source) for name, label, rate, source in steps if rate]
    top, rungs, above = known[0][2], [], known[0][2]
    for name, label, rate, source in known:
        rungs.append(Rung(name, label, rate, 100.0 * rate / top, 100.0 * (above - rate) / top, source))
        above = rate
    return rungs


def newest_of_model(runs: Iterable[MeasuredCeilings], gpu: str) -> MeasuredCeilings | None:
    """The first of `runs` (newest first) on a GPU of this model."""
    wanted = gpus.key(gpu)
    return next((run for run in runs if gpus.key(run.gpu) == wanted), None)
