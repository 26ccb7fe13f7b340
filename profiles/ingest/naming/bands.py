"""What a share of a unit's peak is called: the bands of public tuning guides, one table, each with its source.

Every place that calls such a value low or high takes it from here: sampled counters of a log, hover texts and measures of a
kernel's page, topics of a trace. A band names a value, it is no advice: a low share is no fault of a kernel that has no need of
the unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_GUIDES = "public tuning guides"


class Bands(NamedTuple):
    """Values in `unit`, 0-100 for shares. `steps`: (least value, what it is called), ascending; the first begins at 0."""

    what: str
    unit: str
    steps: tuple[tuple[float, str], ...]
    source: str

    def reading(self, value: float | None) -> str:
        """Return what a value is called; "" of None and of what is no such value (negative, NaN)."""
        if value is None or not value >= 0:
            return ""
        return next(text for least, text in reversed(self.steps) if value >= least)

    @property
    def limits(self) -> tuple[float, ...]:
        """Return where a band ends and the next begins."""
        return tuple(least for least, _ in self.steps[1:])

    @property
    def text(self) -> str:
        """Return all bands in one line: "below 30 %: low; 30 to 60 %: moderate; …"."""
        ends = [*self.limits, None]
        parts = []
        for (least, text), end in zip(self.steps, ends, strict=True):
            span = f"from {least:g}" if end is None else f"{least:g} to {end:g}" if least else f"below {end:g}"
            parts.append(f"{span} {self.unit}: {text}")
        return "; ".join(parts)


BANDS: Mapping[str, Bands] = {
    "sm": Bands("SM throughput", "%", ((0, "low"), (30, "moderate"), (60, "good"), (80, "near its peak")),
                f"{_GUIDES}: 30, 60 and 80 %; 60 and 80 % are also those of NVIDIA's rule SOLBottleneck"),
    "tensor": Bands("tensor pipes", "%", ((0, "hardly used"), (10, "low"), (30, "moderate"),
                                           (50, "high: bound by matrix products")),
                    f"{_GUIDES}: 10, 30 and 50 %"),
    "dram": Bands("device memory", "%", ((0, "low"), (30, "moderate"), (60, "high"),
                                          (80, "near its peak: bound by device memory")),
                  f"{_GUIDES}: 30, 60 and 80 %"),
    "unit": Bands("any unit of the GPU", "%", ((0, "not what bounds"), (60, "busy"),
                                                (80, "what bounds, where no unit is busier")),
                  "NVIDIA's rule SOLBottleneck: 60 and 80 %"),
    "sm_active": Bands("SMs with a warp resident", "%", (
        (0, "low: the SMs idle more than half of the time"), (50, "moderate: below what effective use needs (80 %)"),
        (80, "high: enough for effective use, not yet a proof of it")),
        "NVIDIA DCGM user guide, Profiling Metrics: 80 % and more is necessary for effective use, below 50 % is likely "
        "ineffective"),
    "idle": Bands("time without GPU work", "%", ((0, "idle at most half of the time"), (50, "idle more than half of the time")),
                  f"{_GUIDES}: idle above 50 % is looked at before any kernel"),
    "kernel_us": Bands("length of a kernel", "µs", (
        (0, "mostly its launch: fuse it, or replay it in a CUDA graph"), (10, "short: launch and tail weigh"), (100, "long")),
        f"{_GUIDES}: 10 and 100 µs; a launch takes the host 2 to 10 µs"),
}
