"""The lines of a roofline chart: what limits the launches shown, at which clock, and where the figure is from.

A launch is judged at the clock it ran at (`Point.roof_pct`). A chart of several needs one line: compute ceilings stand
at the highest SM clock measured among them, so that no dot lies above its line and the distance shows clock loss too.
Measured ceilings are put at the same clock; data sheets stand as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from profiles.analysis.core import gpus
from profiles.analysis.core.sentences import si_text
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.analysis.kernel.measured import MeasuredCeilings
from profiles.analysis.kernel.roofline import LEVELS


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
    for device in dict.fromkeys(each.device for each in launches):
        here = [each for each in launches if each.device == device]
        stated = _stated_ceilings(device, here)
        clock = max((each.roofs.sm_clock_hz for each in here if each.roofs.sm_clock_hz), default=None)
        wanted = {each.precision for each in stated if each.origin == "stated" and each.precision}
        lines += [*stated, *_measured_ceilings(device, wanted, clock, (measured or {}).get(device)),
                  *_data_sheet_ceilings(device, wanted)]
    return lines


def _stated_ceilings(device: str, launches: Sequence[LaunchFacts]) -> list[Ceiling]:
    lines = []
    for kind in ("dram", "l2", "l1"):
        known = [(value, x) for x in launches if (value := getattr(x.roofs, f"{kind}_bytes_s")) is not None]
        if known:
            value, at = max(known, key=lambda pair: pair[0])
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
