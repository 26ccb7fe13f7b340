"""Ceilings of a GPU: what was measured on it, and the lines of a roofline chart.

What was measured says where a launch loses against what its GPU could do. A line says what limits the launches shown, at which
clock, and where the figure is from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from profiles.analysis.core import gpus
from profiles.analysis.core.sentences import si_text
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.analysis.kernel.roofline import LEVELS, Point, Roofs

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
             _mix(work, {key: ceiling.at(roofs.sm_clock_hz) for key, ceiling in measured.ceilings.items()}) if measured else None,
             measured.ceilings[point.precision or ""].how if measured and (point.precision or "") in measured.ceilings else ""),
        ]
    return _rungs([*steps, ("achieved", "achieved", achieved, "")])


def _label(measured: MeasuredCeilings | None, key: str) -> str:
    ceiling = measured.ceilings.get(key) if measured else None
    return f"{ceiling.label} at that clock, {measured.label}" if measured and ceiling else ""


def _mix(work: Mapping[str, float], rates: Mapping[str, float]) -> float | None:
    """The rate at which one pipe would be full: total / max(work / rate). None where a rate is unknown."""
    full = [amount / rates[precision] for precision, amount in work.items() if rates.get(precision)]
    return sum(work.values()) / max(full) if full and len(full) == len(work) else None


def _rungs(steps: Sequence[tuple[str, str, float | None, str]]) -> list[Rung]:
    rate_steps = [(name, label, rate, source) for name, label, rate, source in steps if rate]
    top, rungs, above = rate_steps[0][2], [], rate_steps[0][2]
    for name, label, rate, source in rate_steps:
        rungs.append(Rung(name, label, rate, 100.0 * rate / top, 100.0 * (above - rate) / top, source))
        above = rate
    return rungs


def newest_of_model(runs: Iterable[MeasuredCeilings], gpu: str) -> MeasuredCeilings | None:
    """The first of `runs` (newest first) on a GPU of this model."""
    gpu_key = gpus.key(gpu)
    return next((run for run in runs if gpus.key(run.gpu) == gpu_key), None)


@dataclass(frozen=True)
class Ceiling:
    """One line: bytes/s (`kind` "dram", "l2" or "l1": a slope) or operations/s (`kind` "compute": level).

    `origin`: "stated" by the reports at their clocks, "other" the same for precisions without work, "measured", "sheet".
    """

    kind: str
    name: str                    # "DRAM", "BF16 tensor"
    label: str                   # the same with its rate
    value: float
    source: str
    precision: str = ""
    device: str = ""
    clock_hz: float | None = None
    origin: str = "stated"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ceilings(launches: Sequence[LaunchFacts], measured: Mapping[str, MeasuredCeilings] | None = None) -> list[Ceiling]:
    """Return the lines of a roofline chart per device model.

    DRAM, L2, L1 and every precision as the reports state them; then measured ones and the data sheet's.
    """
    lines: list[Ceiling] = []
    for device in dict.fromkeys(launch.device for launch in launches):
        here = [launch for launch in launches if launch.device == device]
        stated = _stated_ceilings(device, here)
        clock = max((launch.roofs.sm_clock_hz for launch in here if launch.roofs.sm_clock_hz), default=None)
        precisions = {ceiling.precision for ceiling in stated if ceiling.origin == "stated" and ceiling.precision}
        lines += [*stated, *_measured_ceilings(device, precisions, clock, (measured or {}).get(device)),
                  *_data_sheet_ceilings(device, precisions)]
    return lines


def _stated_ceilings(device: str, launches: Sequence[LaunchFacts]) -> list[Ceiling]:
    lines = []
    for kind in ("dram", "l2", "l1"):
        rates = [(value, x) for x in launches if (value := getattr(x.roofs, f"{kind}_bytes_s")) is not None]
        if rates:
            value, at = max(rates, key=lambda pair: pair[0])
            name = LEVELS[kind]
            lines.append(Ceiling(kind, name, f"{name} {si_text(value, 'B/s')}", value, at.roofs.source.get(kind, ""), device=device,
                                 clock_hz=at.dram_clock_hz if kind == "dram" else None))
    occurring = {precision for x in launches for precision in x.point.by_precision}
    for precision, name in gpus.PRECISIONS.items():
        rated = [(value, x) for x in launches if (value := x.roofs.compute.get(precision)) is not None]
        if rated:
            value, at = max(rated, key=lambda pair: pair[0])
            lines.append(Ceiling("compute", name, f"{name} {si_text(value, _unit(precision))}", value,
                                 at.roofs.source.get(precision, ""), precision=precision, device=device,
                                 clock_hz=at.roofs.sm_clock_hz, origin="stated" if precision in occurring else "other"))
    return lines


def _measured_ceilings(device: str, wanted: set[str], clock_hz: float | None, measured: MeasuredCeilings | None) -> list[Ceiling]:
    """What a GPU of this model reached, at the clock of the stated lines."""
    lines = []
    for key, one in (measured.ceilings if measured else {}).items():
        if key not in wanted and key not in LEVELS:
            continue
        value, unit = one.at(clock_hz), _unit(key)
        lines.append(Ceiling(key if key in LEVELS else "compute", one.label, f"measured {one.label} {si_text(value, unit)}", value,
                             f"{one.how}; {measured.label if measured else ''}", precision="" if key in LEVELS else key,
                             device=device,
                             clock_hz=clock_hz if key != "dram" else None, origin="measured"))
    return lines


def _data_sheet_ceilings(device: str, wanted: set[str]) -> list[Ceiling]:
    model = gpus.lookup(device)
    if model is None:
        return []
    rates = {"dram": model.dram_bytes_s} | {key: peak for key, peak in model.peaks.items() if key in wanted}
    return [Ceiling("dram" if key == "dram" else "compute", name := gpus.PRECISIONS.get(key, "DRAM"),
                    f"data sheet {name} {si_text(value, _unit(key))}", value, f"{model.source} (table of {gpus.VERSION})",
                    precision="" if key == "dram" else key, device=device,
                    clock_hz=None if key == "dram" else model.peak_clock_hz(key), origin="sheet") for key, value in rates.items()]


def _unit(key: str) -> str:
    return "B/s" if key in LEVELS else "OP/s" if key.startswith("int") else "FLOP/s"
