"""A demonstration fleet: simulated node agents whose batches are made as real ones are. Plain Python; what it makes is labelled.

Three jobs share the hosts: a training run, a decode service with a daily rhythm, a data preparation. Kernels, launch shapes and
durations are those of recorded traces (`demo_kernels.json` says which); how often they run, how GPUs differ and what goes wrong is
made up: one GPU of the training run throttles since SLOW_GPU_HOURS, and the decode service's newest build made one kernel slower.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.agent import VERSION
from workers.agent.aggregate import Sums
from workers.agent.launches import MINUTE_NS, Context, Gpu, KernelSum, KernelSums, Signature, Window, bucket_of, value_of
from workers.agent.wire import Batch, make_batch

GPU_MODEL = "NVIDIA H200"
PREFIX = "simulated"
DUTY = 0.02                     # of the time that windows watch
SLOW_GPU_HOURS, SLOW_FACTOR = 30, 1.12
BUILD_DAYS, BUILD_FACTOR = 5, 1.14          # whole days that the decode service's slower build has run
SLOW_KERNEL = "flash_fwd_kernel"
KERNELS_OF_JOB = 24
DAY_MINUTES, HOUR_MINUTES = 1440, 60
DAY_SEQUENCE, HOUR_SEQUENCE = 10**12, 10**10        # of batches of whole days and hours: sent again they count once


@dataclass(frozen=True)
class Job:
    key: str                    # of demo_kernels.json
    name: str
    model: str
    share: float                # of the hosts
    busy: float                 # of the GPUs' time
    rhythm: float               # by how much busy follows the day


JOBS = (Job("train", "simulated-train", "layers-ddp", 0.55, 0.88, 0.0),
        Job("decode", "simulated-decode", "qwen1.5-0.5b", 0.3, 0.55, 0.35),
        Job("prepare", "simulated-prepare", "timesformer", 0.15, 0.3, 0.1))


@dataclass(frozen=True)
class Kernel:
    signature: Signature
    mean_ns: float
    launches: int               # of one step


@dataclass(frozen=True)
class Demo:
    """`now_minute`: since 1970; history ends there. The same numbers make the same fleet."""

    hosts: int
    gpus: int
    now_minute: int
    seed: int = 1

    def host_name(self, host: int) -> str:
        return f"{PREFIX}-{host:02}"

    def job_of(self, host: int) -> Job:
        train, decode, prepare = JOBS
        preparing, decoding = (max(1, round(job.share * self.hosts)) for job in (prepare, decode))
        if host == 0 or host < self.hosts - preparing - decoding:
            return train
        return decode if host < max(2, self.hosts - preparing) else prepare

    def build_of(self, job: Job, minute: int) -> str:
        if job.key == "decode":
            changed = self.now_minute // DAY_MINUTES - BUILD_DAYS
            return "serve-2.19" if minute // DAY_MINUTES >= changed else "serve-2.18"
        return f"{job.key}-{1000 + minute // (4 * DAY_MINUTES) % 1000}"

    def windows(self, host: int, minute: int, minutes: int) -> Iterator[Window]:
        """One window of each GPU, which stands for so many minutes from `minute` on."""
        job = self.job_of(host)
        kernels = job_kernels(job.key)
        context = Context(job.name, self.build_of(job, minute), GPU_MODEL, job.model, "torch 2.11", "580.159", True)
        of_day = np.random.default_rng([self.seed, 1, minute // DAY_MINUTES])
        of_hour = np.random.default_rng([self.seed, 2, minute // HOUR_MINUTES])
        level = np.exp(of_day.normal(0, 0.0015, len(kernels)) + of_hour.normal(0, 0.002, len(kernels)))
        slower = np.array([BUILD_FACTOR if context.build == "serve-2.19" and SLOW_KERNEL in kernel.signature.kernel else 1.0
                           for kernel in kernels])
        stands_for_ns = minutes * MINUTE_NS
        observed_ns = int(stands_for_ns * DUTY)
        hour = minute % DAY_MINUTES / 60
        busy = job.busy + job.rhythm * math.sin((hour - 9) / 24 * 2 * math.pi)
        for number in range(self.gpus):
            rng = np.random.default_rng([self.seed, 3, host, number, minute])
            own = math.exp(float(np.random.default_rng([self.seed, 4, host, number]).normal(0, 0.004)))
            gpu_factor = own * (SLOW_FACTOR if self._is_slow(host, number, minute) else 1.0)
            factors = level * slower * gpu_factor * np.exp(rng.normal(0, 0.001, len(kernels)))
            step_ns = sum(kernel.mean_ns * kernel.launches for kernel in kernels)
            steps = busy * observed_ns * rng.uniform(0.97, 1.0) / (step_ns * gpu_factor)
            sums = KernelSums.of([_kernel_sum(kernel, max(1, int(rng.poisson(kernel.launches * steps))), float(factor), rng)
                                  for kernel, factor in zip(kernels, factors, strict=True)])
            gpu = Gpu(f"GPU-{self.host_name(host)}-{number}", GPU_MODEL, self.host_name(host))
            yield Window(context, gpu, minute * MINUTE_NS, observed_ns, stands_for_ns, sums, host * self.gpus + number)

    def _is_slow(self, host: int, number: int, minute: int) -> bool:
        return (host, number) == (0, min(3, self.gpus - 1)) and minute >= self.now_minute - SLOW_GPU_HOURS * 60

    def telemetry(self, host: int, minute: int) -> Iterator[dict[str, Any]]:
        """A minute's sensors of each GPU of a host."""
        job = self.job_of(host)
        for number in range(self.gpus):
            rng = np.random.default_rng([self.seed, 5, host, number, minute])
            slow = self._is_slow(host, number, minute)
            rhythm = job.rhythm * math.sin((minute % DAY_MINUTES / 60 - 9) / 24 * 2 * math.pi)
            busy = 100 * min(1.0, max(0.02, job.busy + rhythm))
            gpu = Gpu(f"GPU-{self.host_name(host)}-{number}", GPU_MODEL, self.host_name(host))
            yield {"minute": minute, "gpu": gpu, "samples": 60,
                   "sm_pct": busy * rng.uniform(0.85, 0.95), "tensor_pct": busy * (0.45 if job.key == "train" else 0.15),
                   "dram_pct": busy * rng.uniform(0.4, 0.5), "busy_pct": busy, "power_w": 120 + 5.2 * busy + rng.normal(0, 8),
                   "sm_mhz": 1560 + rng.normal(0, 10) if slow else 1980 - rng.uniform(0, 15), "memory_mhz": 3201,
                   "temperature_c": 86 + rng.normal(0, 0.6) if slow else 38 + 0.3 * busy + rng.normal(0, 1),
                   "memory_used_bytes": (110e9, 60e9, 24e9)[JOBS.index(job)], "memory_bytes": 150_754_820_096,
                   "throttle_s": 48.0 if slow else 0.0, "thermal_s": 48.0 if slow else 0.0, "xid_errors": 0.0, "ecc_errors": 0.0}

    def batch(self, host: int, sequence: int, minutes: list[int], each_minutes: int) -> Batch:
        """The batch of a host: windows that begin at these minutes."""
        sums = Sums()
        telemetry: list[dict[str, Any]] = []
        for minute in minutes:
            for window in self.windows(host, minute, each_minutes):
                sums.add(window)
            telemetry += self.telemetry(host, minute)
        state = {"version": VERSION, "simulated": True, "spool_bytes": 0, "memory_bytes": 0}
        sent_ns = (max(minutes) + each_minutes) * MINUTE_NS
        return make_batch(f"{PREFIX}-agent-{host:02}", sequence, sent_ns, [sums.summed()], telemetry, state)

    def history(self, days: int) -> Iterator[Batch]:
        """Batches of the days before `now_minute`, oldest first: a window an hour, whole days first, then today's hours."""
        today, hours = self.now_minute // DAY_MINUTES, self.now_minute % DAY_MINUTES // HOUR_MINUTES
        for day in range(today - days, today):
            for host in range(self.hosts):
                yield self.batch(host, DAY_SEQUENCE + day, [day * DAY_MINUTES + 60 * hour for hour in range(24)], HOUR_MINUTES)
        for hour in range(hours):
            for host in range(self.hosts):
                first = today * DAY_MINUTES + 60 * hour
                yield self.batch(host, HOUR_SEQUENCE + first // HOUR_MINUTES, [first], HOUR_MINUTES)

    def minute(self, minute: int) -> Iterator[Batch]:
        """Batches of one minute that is over."""
        for host in range(self.hosts):
            yield self.batch(host, minute, [minute], 1)


@lru_cache(maxsize=8)
def job_kernels(key: str) -> tuple[Kernel, ...]:
    """Return the kernels of a job with most time."""
    rows = json.loads((Path(__file__).parent / "demo_kernels.json").read_text())["jobs"][key]
    return tuple(Kernel(Signature(name, tuple(grid), tuple(block), shared), float(mean), int(launches))
                 for name, grid, block, shared, mean, launches in rows[:KERNELS_OF_JOB])


def _kernel_sum(kernel: Kernel, launches: int, factor: float, rng: np.random.Generator) -> KernelSum:
    """Launches whose durations are log-normal, 4 % wide, with one of a thousand twice as long; the sketch is drawn by bucket."""
    level = kernel.mean_ns * factor
    bucket, share = _spread(round(math.log(level) / 0.0025))
    count = rng.multinomial(launches, share)
    is_filled = count > 0
    bucket, count = bucket[is_filled], count[is_filled].astype(np.int64)
    mean = level * math.exp(0.04 ** 2 / 2) * (1 + rng.normal(0, 0.04 / math.sqrt(launches)))
    middle = value_of(bucket)
    return KernelSum(kernel.signature, launches, int(mean * launches), max(1, int(middle[0])), int(middle[-1]) + 1,
                     launches * (math.log(level) + float(rng.normal(0, 0.04 / math.sqrt(launches)))), bucket, count)


@lru_cache(maxsize=4096)
def _spread(log_level: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Buckets of durations about a level, and the share of launches in each."""
    level = math.exp(log_level * 0.0025)
    points = np.concatenate([level * np.exp(0.04 * _NORMAL), [2 * level]])
    weight = np.append(np.full(_NORMAL.size, 0.999 / _NORMAL.size), 0.001)
    bucket, inverse = np.unique(bucket_of(points.astype(np.int64)), return_inverse=True)
    return bucket, np.bincount(inverse, weight).astype(np.float64)


_NORMAL = np.sort(np.random.default_rng(0).normal(size=2000))
