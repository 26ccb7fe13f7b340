"""Times that a program took itself: one number a run, the mean of its own launches, beside the library's as it is sampled here."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tuner.tuning.kernels.problem import ProgramTime
from tuner.tuning.measure.racing import Race
from tuner.tuning.measure.timers import Launch
from tuner.tuning.measure.timing import Sampler, Times

ROUNDS = 5                   # of finalists: as many runs of the program
ENDED = "program"


class ProgramSampler:
    """A sampler (tuner.tuning.measure.timing) for launches of which some are runs of a program that times itself."""

    def __init__(self, inner: Sampler) -> None:
        self._inner = inner

    def measure(self, launch: Launch, race: Race | None = None) -> Times:
        """Return the time of one run, or samples of a launch that is none. Nothing is raced: a run is not given up half-way."""
        began = time.perf_counter()
        told = launch()
        if not isinstance(told, ProgramTime):
            return self._inner.measure(launch)
        return _times([told.ms], time.perf_counter() - began)

    def measure_in_turn(self, launches: Sequence[Launch]) -> list[Times]:
        """Run programs in turn, ROUNDS times, with a batch of each other launch in between."""
        rounds: list[list[float]] = [[] for _ in launches]
        began = time.perf_counter()
        for _ in range(ROUNDS):
            for place, launch in enumerate(launches):
                told = launch()
                rounds[place].append(told.ms if isinstance(told, ProgramTime) else self._inner.measure(launch).median_ms)
        each_s = (time.perf_counter() - began) / max(1, len(launches))
        return [_times(each, each_s, tuple(each)) for each in rounds]


def _times(samples_ms: Sequence[float], took_s: float, round_ms: tuple[float, ...] = ()) -> Times:
    return Times(tuple(samples_ms), ENDED, {"rounds": len(samples_ms)}, None, took_s, took_s, round_ms)
