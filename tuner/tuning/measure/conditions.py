"""Conditions of a measurement: clocks, temperature and throttling, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# A power cap is how a large GPU runs dense matrix products all day, at two thirds of its clock on an H200: it is reported,
# its samples count. The others are faults.
POWER_CAP = "power cap"
FAULTS = frozenset({"hardware slowdown", "thermal (software)", "thermal (hardware)", "power brake"})
SENSORS = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w")


class PeakClock:
    """The highest SM clock that any batch of a session ran at."""

    def __init__(self) -> None:
        self.sm_clock_mhz = 0.0

    def fault(self, reading: Mapping[str, Any], clock_floor: float) -> str | None:
        """Return why samples under this reading cannot count; None when they can."""
        clock = reading.get("sm_clock_mhz")
        if isinstance(clock, int | float):
            self.sm_clock_mhz = max(self.sm_clock_mhz, clock)
        reasons = reading.get("throttle", ())
        named = sorted(FAULTS.intersection(reasons))
        if named:
            return ", ".join(named)
        if POWER_CAP not in reasons and isinstance(clock, int | float) and clock < clock_floor * self.sm_clock_mhz:
            return f"SM clock below {clock_floor:.0%} of the session's highest"
        return None


class Conditions:
    """The readings of one measurement, and what was thrown away."""

    def __init__(self) -> None:
        self._readings: list[Mapping[str, Any]] = []
        self._discarded: list[int] = []          # samples of each batch that was
        self._reasons: set[str] = set()
        self._kept = False                       # a throttled batch had to count, after too many in a row

    @property
    def discarded_batches(self) -> int:
        """Return how many batches were thrown away."""
        return len(self._discarded)

    def add(self, reading: Mapping[str, Any]) -> None:
        """Add the reading of a batch."""
        if reading:
            self._readings.append(reading)

    def discard(self, samples: int, reason: str) -> None:
        """Count samples thrown away, with the reason."""
        self._discarded.append(samples)
        self._reasons.add(reason)

    def keep(self, reason: str) -> None:
        """Note that samples were kept in spite of the reason."""
        self._reasons.add(reason)
        self._kept = True

    def clocks(self) -> dict[str, Any]:
        """Return lowest, median and highest per sensor, and every throttle reason named."""
        ranges: dict[str, Any] = {}
        for name in SENSORS:
            values = sorted(one[name] for one in self._readings if isinstance(one.get(name), int | float))
            if values:
                ranges[name] = {"min": values[0], "median": values[len(values) // 2], "max": values[-1]}
        if any("throttle" in one for one in self._readings):
            ranges["throttle"] = sorted({reason for one in self._readings for reason in one.get("throttle", ())})
        if ranges:
            ranges["readings"] = len(self._readings)
        return ranges

    def as_facts(self) -> dict[str, Any]:
        """Return facts for a trial: `clocks`, and `throttled` where samples were discarded or kept anyway."""
        facts: dict[str, Any] = {}
        if clocks := self.clocks():
            facts["clocks"] = clocks
        if self._reasons:
            facts["throttled"] = {"discarded": sum(self._discarded), "reasons": sorted(self._reasons), "kept": self._kept}
        return facts
