"""The one file that times kernels: cold L2, warm-up, CUDA events, quantiles, clocks seen before and after."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch

from tuner.bench import nvml

Launch = Callable[[], Any]


@dataclass(frozen=True)
class Policy:
    """How times are taken. Sampling ends when the median is known to `spread_target`, at `max_samples` or `max_ms`."""

    warmup: int = 2
    batch: int = 5                  # samples between two looks at the spread
    min_samples: int = 10
    max_samples: int = 50
    spread_target: float = 0.01     # half-width of the median's 95 % interval, relative to the median
    max_ms: float = 500.0           # of GPU time per configuration; a slow one keeps `batch` samples at least
    rounds: int = 8                 # of the finalists' interleaved measurement, `batch` samples each

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "timer": "CUDA events around one launch", "statistic": "median",
                "inputs": "normal random, fresh for each configuration"}


@dataclass(frozen=True)
class Times:
    """Samples in ms, in the order taken, and why sampling ended."""

    samples_ms: tuple[float, ...]
    ended: str                      # "settled" | "max_samples" | "max_ms"

    @property
    def median_ms(self) -> float:
        return quantile(sorted(self.samples_ms), 0.5)

    def as_json(self) -> dict[str, Any]:
        ordered = sorted(self.samples_ms)
        return {"median_ms": quantile(ordered, 0.5), "min_ms": ordered[0], "p90_ms": quantile(ordered, 0.9),
                "n": len(ordered), "spread": half_width(ordered), "ended": self.ended,
                "samples_ms": [round(ms, 6) for ms in self.samples_ms]}


class Timer(Protocol):
    def samples(self, launch: Launch, count: int) -> list[float]:
        """`count` times of one launch each, in ms."""
        ...

    def about(self) -> dict[str, Any]:
        """What belongs in the policy: cold or warm L2, the flush."""
        ...


class CudaTimer:
    """CUDA events around single launches, each after a write to a buffer larger than L2: none finds its inputs there.

    The flush also hides the launch's own CPU time: the kernel is queued while the GPU still writes the buffer.
    """

    def __init__(self, device: torch.device) -> None:
        l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        self.flush = torch.empty(max(4 * l2_bytes, 256 * 2**20), dtype=torch.int8, device=device)
        self.l2_bytes = l2_bytes

    def samples(self, launch: Launch, count: int) -> list[float]:
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
        for start, end in events:
            self.flush.zero_()
            start.record()
            launch()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]

    def about(self) -> dict[str, Any]:
        return {"cold_l2": True, "flush_bytes": self.flush.numel(), "l2_bytes": self.l2_bytes}


def measure(timer: Timer, launch: Launch, policy: Policy) -> Times:
    timer.samples(launch, policy.warmup)
    samples: list[float] = []
    while True:
        samples += timer.samples(launch, policy.batch)
        if sum(samples) >= policy.max_ms:
            return Times(tuple(samples), "max_ms")
        if len(samples) >= policy.min_samples and half_width(sorted(samples)) <= policy.spread_target:
            return Times(tuple(samples), "settled")
        if len(samples) >= policy.max_samples:
            return Times(tuple(samples), "max_samples")


def interleaved(timer: Timer, launches: Sequence[Launch], policy: Policy) -> list[Times]:
    """Measure in turn, round after round, so that drift of clocks and temperature hits all alike."""
    for launch in launches:
        timer.samples(launch, policy.warmup)
    samples: list[list[float]] = [[] for _ in launches]
    started = time.monotonic()
    for done in range(policy.rounds):
        for index, launch in enumerate(launches):
            samples[index] += timer.samples(launch, policy.batch)
        if time.monotonic() - started > len(launches) * policy.max_ms / 1000 * 4 and done >= 1:
            return [Times(tuple(taken), "max_ms") for taken in samples]
    return [Times(tuple(taken), "max_samples") for taken in samples]


def quantile(ordered: Sequence[float], q: float) -> float:
    """Linear between order statistics (Hyndman and Fan, type 7)."""
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def half_width(ordered: Sequence[float]) -> float:
    """Half the 95 % interval of the median, relative to the median; distribution-free, from order statistics.

    Ranks n/2 ± 0.98·√n: the binomial's normal approximation (Conover, Practical Nonparametric Statistics, 3.2).
    """
    n = len(ordered)
    reach = 0.98 * math.sqrt(n)
    low, high = max(0, math.floor(n / 2 - reach)), min(n - 1, math.ceil(n / 2 + reach) - 1)
    return (ordered[high] - ordered[low]) / 2 / quantile(ordered, 0.5)


def with_clocks(gpu_index: int, work: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """Run `work` between two readings of clocks, temperature and power: {"before", "after"}, empty without NVML."""
    before = nvml.reading(gpu_index)
    result = work()
    after = nvml.reading(gpu_index)
    return result, {"before": before, "after": after} if after else {}
