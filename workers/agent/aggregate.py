"""Windows of many jobs and GPUs of a host added up to minutes, as they are sent.

Three tables: kernels of the host, GPUs, and of each GPU the kernels with most time (what tells a slow GPU). Bounded: beyond
MOST_SERIES signatures a minute the rest is one series named REST.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from workers.agent.launches import MINUTE_NS, Context, Gpu, KernelSum, Signature, Window

MOST_SERIES = 20_000                # of one minute
KERNELS_OF_GPU = 32                 # per minute, context and GPU
REST = Signature("(other kernels)", (0, 0, 0), (0, 0, 0), 0)


@dataclass
class Sum:
    """`estimate_ns` weighs each window by the time it stands for.

    `square` is the sum over windows of that times the same of all launches of its kernel: over a kernel's signatures it adds up to
    the kernel's own squares, from which the spread between windows follows.
    """

    launches: int = 0
    total_ns: int = 0
    min_ns: int = 2**63 - 1
    max_ns: int = 0
    estimate_launches: float = 0.0
    estimate_ns: float = 0.0
    square: float = 0.0
    log_sum: float = 0.0
    buckets: Counter[int] = field(default_factory=Counter)

    def add(self, one: KernelSum, weight: float, of_kernel_ns: int) -> None:
        self.launches += one.launches
        self.total_ns += one.total_ns
        self.min_ns, self.max_ns = min(self.min_ns, one.min_ns), max(self.max_ns, one.max_ns)
        self.estimate_launches += weight * one.launches
        self.estimate_ns += weight * one.total_ns
        self.square += weight * one.total_ns * weight * of_kernel_ns
        self.log_sum += one.log_sum
        buckets = self.buckets
        for bucket, count in zip(one.bucket.tolist(), one.count.tolist(), strict=True):
            buckets[bucket] += count


@dataclass
class GpuSum(Sum):
    windows: int = 0
    observed_ns: int = 0
    wall_ns: int = 0
    rank: int = -1


@dataclass
class Minute:
    kernels: dict[tuple[Context, Signature], Sum] = field(default_factory=dict)
    gpus: dict[tuple[Context, Gpu], GpuSum] = field(default_factory=dict)
    gpu_kernels: dict[tuple[Context, Gpu], dict[Signature, Sum]] = field(default_factory=dict)


class Aggregator:
    """Minutes that are still open, by number since 1970."""

    def __init__(self) -> None:
        self.minutes: dict[int, Minute] = {}

    def add(self, window: Window) -> None:
        minute = self.minutes.setdefault(window.start_ns // MINUTE_NS, Minute())
        key = (window.context, window.gpu)
        whole = minute.gpus.setdefault(key, GpuSum(rank=window.rank))
        whole.windows += bool(window.observed_ns)
        whole.observed_ns += window.observed_ns
        whole.wall_ns += window.stands_for_ns
        own = minute.gpu_kernels.setdefault(key, {})
        weight, of_kernel = window.weight, Counter[str]()
        for one in window.kernels:
            of_kernel[one.signature.kernel] += one.total_ns
        total_ns = of_kernel.total()
        for one in window.kernels:
            kernel_ns = of_kernel[one.signature.kernel]
            name = (window.context, one.signature)
            if name not in minute.kernels and len(minute.kernels) >= MOST_SERIES:
                name = (window.context, REST)
            minute.kernels.setdefault(name, Sum()).add(one, weight, kernel_ns)
            own.setdefault(one.signature, Sum()).add(one, weight, kernel_ns)
            whole.add(one, weight, total_ns)

    def take(self, before_ns: int | None = None) -> dict[int, Minute]:
        """Return and forget the minutes that ended before a moment, all where none is given."""
        done = [minute for minute in self.minutes if before_ns is None or (minute + 1) * MINUTE_NS <= before_ns]
        return {minute: self.minutes.pop(minute) for minute in sorted(done)}
