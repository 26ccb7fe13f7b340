"""Samples of a configuration until its median is known, its race lost or its cost reached.

Batches that ran while the GPU was throttled by a fault or at a low clock are thrown away and taken again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from profiles.base.numbers import quantile
from tuner.tuning.measure.policy import Policy
from tuner.tuning.measure.statistics import LostRace, Race, half_width
from tuner.tuning.measure.timers import Launch, Timer

# ---- conditions of a measurement ----
# Clocks, temperature and throttling, batch by batch.

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
            values = sorted(reading[name] for reading in self._readings if isinstance(reading.get(name), int | float))
            if values:
                ranges[name] = {"min": values[0], "median": values[len(values) // 2], "max": values[-1]}
        if any("throttle" in reading for reading in self._readings):
            ranges["throttle"] = sorted({reason for reading in self._readings for reason in reading.get("throttle", ())})
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


# ---- samples of a configuration until its median is known ----

SLOW_WARMUP_MS = 20.0        # a launch this long has brought the clocks up by itself


@dataclass(frozen=True)
class Times:
    """Samples in ms in the order taken, why sampling ended, and the conditions."""

    samples_ms: tuple[float, ...]
    ended: str                      # "settled" | "max_samples" | "max_ms" | "raced"
    facts: dict[str, Any] = field(default_factory=dict)        # clocks, throttled
    lost: LostRace | None = None
    gpu_s: float = 0.0              # from the first warm-up to the last sample, flushes and pauses included
    sampling_s: float = 0.0         # … without the warm-up
    round_ms: tuple[float, ...] = ()  # of an interleaved measurement: the median of each round

    @property
    def median_ms(self) -> float:
        return quantile(sorted(self.samples_ms), 0.5)

    def as_json(self) -> dict[str, Any]:
        ordered = sorted(self.samples_ms)
        return {"median_ms": quantile(ordered, 0.5), "min_ms": ordered[0], "p90_ms": quantile(ordered, 0.9),
                "n": len(ordered), "spread": half_width(ordered), "ended": self.ended,
                "samples_ms": [round(ms, 6) for ms in self.samples_ms]}

    def as_facts(self) -> dict[str, Any]:
        rounds = {"round_ms": [round(ms, 6) for ms in self.round_ms]} if self.round_ms else {}
        return {**self.facts, **rounds, "ended": self.ended, "gpu_s": round(self.gpu_s, 6)}


class Sampler:
    """Takes batches on one device in one session and tracks the clock that it reached."""

    def __init__(self, timer: Timer, policy: Policy, pause: Callable[[float], None] = time.sleep) -> None:
        self.timer, self.policy, self._pause = timer, policy, pause
        self._highest = PeakClock()

    def measure(self, launch: Launch, race: Race | None = None) -> Times:
        """Sample until the median is settled, the budget spent or the race lost."""
        policy, conditions, started = self.policy, Conditions(), time.perf_counter()
        self._warm_up(launch)
        warm = time.perf_counter()
        samples: list[float] = []
        while True:
            samples += self._take_batch(launch, _next_batch(len(samples), race, policy), conditions)
            lost = race.lost(samples) if race else None
            ended = "raced" if lost else _why_ended(samples, policy)
            if ended:
                now = time.perf_counter()
                return Times(tuple(samples), ended, conditions.as_facts(), lost, now - started, now - warm)

    def measure_in_turn(self, launches: Sequence[Launch]) -> list[Times]:
        """Sample launches in turn, forth and back, so that drift of the device hits all alike."""
        policy, started = self.policy, time.perf_counter()
        for launch in launches:
            self._warm_up(launch)
        conditions = [Conditions() for _ in launches]
        rounds: list[list[list[float]]] = [[] for _ in launches]
        ended = "max_samples"
        for done in range(policy.rounds):
            order = range(len(launches)) if done % 2 == 0 else reversed(range(len(launches)))
            for index in order:
                rounds[index].append(self._take_batch(launches[index], policy.batch, conditions[index]))
            if time.perf_counter() - started > len(launches) * policy.max_ms / 1000 * 4 and done >= 1:
                ended = "max_ms"
                break
        each_s = (time.perf_counter() - started) / max(1, len(launches))
        return [Times(tuple(ms for batch in batches for ms in batch), ended, {**condition.as_facts(), "rounds": len(batches)}, None,
                      each_s, each_s, tuple(quantile(sorted(batch), 0.5) for batch in batches))
                for batches, condition in zip(rounds, conditions, strict=True)]

    def _warm_up(self, launch: Launch) -> None:
        for _ in range(self.policy.warmup):
            if self.timer.samples(launch, 1)[0] > SLOW_WARMUP_MS:
                return

    def _take_batch(self, launch: Launch, count: int, conditions: Conditions) -> list[float]:
        """Return a batch without throttling; any batch after `max_discards` discards."""
        while True:
            samples = self.timer.samples(launch, count)
            reading = self.timer.reading()
            conditions.add(reading)
            fault = self._highest.fault(reading, self.policy.clock_floor)
            if fault is None:
                return samples
            if conditions.discarded_batches >= self.policy.max_discards:
                conditions.keep(fault)
                return samples
            conditions.discard(len(samples), fault)
            self._pause(self.policy.pause_s)


def race_savings(times: Times, race: Race, policy: Policy) -> dict[str, Any]:
    """Return facts of a lost race: its risk, and the least GPU seconds that it saved.

    Of a whole measurement only the fewest samples are counted that the policy lets it end with.
    """
    n = len(times.samples_ms)
    instead = max(n, min(policy.min_samples, max(policy.batch, math.ceil(policy.max_ms / times.median_ms))))
    lost = times.lost
    return {"risk": race.risk, "probability": lost.probability if lost else None, "incumbent_ms": race.incumbent_ms, "samples": n,
            "instead_of": instead, "saved_s": round((instead - n) * times.sampling_s / n, 6)}


def _next_batch(taken: int, race: Race | None, policy: Policy) -> int:
    """Return the samples up to the race's next decision, else the policy's batch."""
    look = race.next_look if race else None
    return min(policy.batch, look - taken) if look is not None and look > taken else policy.batch


def _why_ended(samples: Sequence[float], policy: Policy) -> str | None:
    if sum(samples) >= policy.max_ms and len(samples) >= policy.batch:
        return "max_ms"
    if len(samples) >= policy.min_samples and half_width(sorted(samples)) <= policy.spread_target:
        return "settled"
    return "max_samples" if len(samples) >= policy.max_samples else None
