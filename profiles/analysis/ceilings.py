"""The lines of a roofline chart: what limits the launches shown, at which clock, and where the figure is from.

A launch is judged at the clock it ran at (`Point.roof_pct`). A chart of several needs one line: compute ceilings stand
at the highest SM clock measured among them, so that no dot lies above its line and the distance shows clock loss too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from profiles.analysis import gpus
from profiles.analysis.counters import LaunchFacts
from profiles.analysis.sentences import si_text


@dataclass(frozen=True)
class Ceiling:
    """One line: bytes/s (`kind` "dram" or "l2": a slope) or operations/s (`kind` "compute": level)."""

    kind: str
    name: str                    # "DRAM", "BF16 tensor"
    label: str                   # the same with its rate
    value: float
    source: str
    precision: str = ""
    device: str = ""
    clock_hz: float | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ceilings(launches: Sequence[LaunchFacts]) -> list[Ceiling]:
    """DRAM, L2 and a compute ceiling per precision that occurs, per device model."""
    found: list[Ceiling] = []
    for device in dict.fromkeys(each.device for each in launches):
        found += _of_device(device, [each for each in launches if each.device == device])
    return found


def _of_device(device: str, launches: Sequence[LaunchFacts]) -> list[Ceiling]:
    found = []
    for kind, name in (("dram", "DRAM"), ("l2", "L2")):
        known = [(value, x) for x in launches if (value := getattr(x.roofs, f"{kind}_bytes_s")) is not None]
        if known:
            value, at = max(known, key=lambda pair: pair[0])
            found.append(Ceiling(kind, name, f"{name} {si_text(value, 'B/s')}", value, at.roofs.source.get(kind, ""),
                                 device=device, clock_hz=at.dram_clock_hz if kind == "dram" else None))
    occurring = {precision for x in launches for precision in x.point.by_precision}
    for precision, name in gpus.PRECISIONS.items():
        rated = [(value, x) for x in launches if (value := x.roofs.compute.get(precision)) is not None]
        if precision in occurring and rated:
            value, at = max(rated, key=lambda pair: pair[0])
            unit = "OP/s" if precision.startswith("int") else "FLOP/s"
            found.append(Ceiling("compute", name, f"{name} {si_text(value, unit)}", value, at.roofs.source.get(precision, ""),
                                 precision=precision, device=device, clock_hz=at.roofs.sm_clock_hz))
    return found
