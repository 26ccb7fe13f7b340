"""Timing in turn: each launch on inputs drawn for it, into a poisoned output, with a cold L2; one launch of each batch is compared.

Nothing of this lies between the two events of a launch. A kernel that answers from what it computed before, or that leaves the
output as it is, is wrong on the launch that is compared, which is drawn by lot.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch

from tuner.candidates.judge.taken import Taken
from tuner.tuning.measure import nvml
from tuner.tuning.measure.accuracy import compare_output
from tuner.tuning.measure.flush import Flush

CYCLES_PER_MS = 2_000_000
EVENT_MS = 0.0005            # what a CUDA event resolves


class Turn:
    """One of the launches that are timed in turn. `compares`: it writes the operator's output."""

    def __init__(self, name: str, launch: Callable[[], Any], problem: Any, tolerance: float, seed: int,
                 compares: bool = True) -> None:
        self.name, self.wrong, self.compared = name, "", 0
        self._launch, self._problem, self._tolerance, self._compares = launch, problem, tolerance, compares
        self._draw = random.Random(seed)
        self._snapshot = torch.empty_like(problem.out) if compares else None
        self._at = self._chosen = self._seed = self._chosen_seed = 0

    def __call__(self) -> Any:
        return self._launch()

    def begin(self, count: int) -> None:
        """Draw the launch of a batch that is compared."""
        self._at, self._chosen = 0, self._draw.randrange(count)

    def before(self) -> None:
        """Draw inputs and poison the output."""
        self._seed = self._draw.randrange(1 << 30)
        self._problem.refill(self._seed)
        self._problem.out.fill_(math.nan)

    def after(self) -> None:
        """Keep the output of the drawn launch, in the order of the stream."""
        if self._snapshot is not None and self._at == self._chosen:
            self._snapshot.copy_(self._problem.out)
            self._chosen_seed = self._seed
        self._at += 1

    def settle(self) -> None:
        """Compare what was kept, once the device has nothing left to do."""
        if self._snapshot is None:
            return
        self._problem.refill(self._chosen_seed)
        verdict = compare_output(self._snapshot, self._problem.reference(), self._tolerance)
        self.compared += 1
        if not verdict.right and not self.wrong:
            self.wrong = verdict.message


class GpuTimer:
    """CUDA events around each launch of a `Turn`, by functions that were taken before the candidate came. See timers.Timer."""

    def __init__(self, taken: Taken, gpu_index: int | None, lead_ms: float) -> None:
        self._taken, self._index, self._lead_ms = taken, gpu_index, lead_ms
        self.l2_bytes = torch.cuda.get_device_properties(taken.device).L2_cache_size
        self._flush = Flush(taken.device, self.l2_bytes)
        self._reading: dict[str, Any] = {}

    def samples(self, launch: Any, count: int) -> list[float]:
        driver = self._taken
        launch.begin(count)
        self._flush.begin()
        if self._lead_ms:
            driver.delay(round(self._lead_ms * CYCLES_PER_MS))
        events = [(driver.event(enable_timing=True), driver.event(enable_timing=True)) for _ in range(count)]
        for start, end in events:
            launch.before()
            self._flush()
            driver.record(start)
            launch()
            driver.record(end)
            launch.after()
        self._reading = read_gpu(self._index)
        driver.synchronize()
        launch.settle()
        return [max(EVENT_MS, driver.elapsed_ms(start, end)) for start, end in events]

    def about(self) -> dict[str, Any]:
        return {**self._flush.about(), "l2_bytes": self.l2_bytes}

    def reading(self) -> dict[str, Any]:
        return self._reading


def read_gpu(index: int | None) -> dict[str, Any]:
    """Return clocks and temperature; {} where the driver does not tell them behind the walls."""
    if index is None:
        return {}
    try:
        return nvml.reading(index)
    except Exception:       # pynvml's own: a GPU that this process may not ask
        return {}


def find_gpu(uuid: str) -> int | None:
    """Return the number by which NVML knows the GPU here; None where it tells none."""
    try:
        return next((device["index"] for device in nvml.devices() if device["uuid"] == uuid), None)
    except Exception:       # as above
        return None
