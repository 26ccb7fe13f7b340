"""Batches of a simulated fleet, made by a random generator: they measure Ridgepoint, and say nothing of any GPU.

1,250 hosts of 8 GPUs at full size; about 200 jobs share them with a heavy tail; each host sends 500 signatures a minute, a few of
which have most launches, from six windows of 200 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.agent.launches import Context, Gpu, Signature
from workers.agent.wire import TABLES, Batch

SIGNATURES_OF_HOST, KERNELS, ALL_SIGNATURES = 500, 2000, 20_000
GPUS_OF_HOST, KERNELS_OF_GPU = 8, 32
WINDOWS, WINDOW_NS, MINUTE_NS = 6, 200_000_000, 60_000_000_000
TAIL = 1.2                          # exponent of hosts by job, and of launches by signature
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Fleet:
    """How much of everything."""

    hosts: int = 1250
    jobs: int = 200

    @property
    def gpus(self) -> int:
        return self.hosts * GPUS_OF_HOST


def fleet_batches(fleet: Fleet, first_minute: int, seed: int = 1) -> list[Batch]:
    """Return one batch of each host, of one minute."""
    chance = np.random.default_rng(seed)
    signatures = [Signature(f"void simulated::kernel_{number % KERNELS}<float, {number % KERNELS % 7}>(int, float*)",
                            (1 + number // KERNELS, 1 + number % 5, 1), (128, 1, 1), 1024 * (number % 3))
                  for number in range(ALL_SIGNATURES)]
    weights = np.arange(1, fleet.jobs + 1) ** -TAIL
    job_of = np.sort(np.append(np.arange(min(fleet.jobs, fleet.hosts)),
                               chance.choice(fleet.jobs, max(0, fleet.hosts - fleet.jobs), p=weights / weights.sum())))
    used = {int(job): chance.choice(ALL_SIGNATURES, SIGNATURES_OF_HOST, replace=False) for job in np.unique(job_of)}
    return [_batch(host, int(job), [signatures[number] for number in used[int(job)]], first_minute, chance)
            for host, job in enumerate(job_of[:fleet.hosts])]


def later(batches: list[Batch], minutes: int) -> Iterator[Batch]:
    """Yield the same of some minutes later."""
    for batch in batches:
        tables = {name: {**table, "minute": table["minute"] + minutes} for name, table in batch.tables.items()}
        yield replace(batch, sequence=batch.sequence + minutes, tables=tables)


def _batch(host: int, job: int, signatures: list[Signature], minute: int, chance: np.random.Generator) -> Batch:
    name = f"simulated-host-{host:04}"
    context = Context(f"simulated-job-{job:03}", f"build-{job % 5}", "NVIDIA H200", "", "torch", "580.159", True)
    gpus = [Gpu(f"GPU-simulated-{host:04}-{number}", "NVIDIA H200", name) for number in range(GPUS_OF_HOST)]
    tail = 4000 * np.arange(1, SIGNATURES_OF_HOST + 1) ** -TAIL * chance.lognormal(0, 0.1, SIGNATURES_OF_HOST)
    launches = np.maximum(1, tail).astype(np.int64)
    middle = 300 + (np.arange(SIGNATURES_OF_HOST) * 37 % 300)                      # of 0.4 µs to 140 µs
    kernels = _sums(launches, middle, np.minimum(launches, 12), chance)
    of_gpu = np.maximum(1, launches.sum() // GPUS_OF_HOST)
    gpu_sums = _sums(np.full(GPUS_OF_HOST, of_gpu), np.full(GPUS_OF_HOST, 450), np.full(GPUS_OF_HOST, 120), chance)
    rows = GPUS_OF_HOST * KERNELS_OF_GPU
    most = np.tile(np.arange(KERNELS_OF_GPU), GPUS_OF_HOST)
    few, weight = np.maximum(1, launches[most] // GPUS_OF_HOST), MINUTE_NS / (WINDOWS * WINDOW_NS)
    tables: dict[str, dict[str, Any]] = {
        "kernels": {"minute": minute, "context": 0, "signature": np.arange(SIGNATURES_OF_HOST), **kernels[0]},
        "on_gpus": {"minute": minute, "context": 0, "gpu": np.arange(GPUS_OF_HOST),
                    "rank": np.arange(GPUS_OF_HOST) + host * GPUS_OF_HOST,
                    "windows": WINDOWS, "observed_ns": WINDOWS * WINDOW_NS, "wall_ns": MINUTE_NS, **gpu_sums[0]},
        "gpu_kernels": {"minute": minute, "context": 0, "gpu": np.repeat(np.arange(GPUS_OF_HOST), KERNELS_OF_GPU),
                        "signature": most, "launches": few, "total_ns": few * 20_000, "log_sum": few * np.log(20_000),
                        "estimate_launches": weight * few, "estimate_ns": weight * few * 20_000.0,
                        "square": (weight * few * 20_000.0) ** 2 / WINDOWS},
        "telemetry": {"minute": minute, "gpu": np.arange(GPUS_OF_HOST), "samples": 60,
                      "sm_pct": chance.uniform(20, 95, GPUS_OF_HOST), "power_w": chance.uniform(300, 700, GPUS_OF_HOST),
                      "temperature_c": 61.0, "sm_mhz": 1980.0}}
    sizes = {"kernels": SIGNATURES_OF_HOST, "on_gpus": GPUS_OF_HOST, "gpu_kernels": rows, "telemetry": GPUS_OF_HOST}
    columns: dict[str, dict[str, Any]] = {}
    for table, kinds in TABLES.items():
        values = {column: np.asarray(tables[table].get(column, np.nan if "f" in kind else 0), kind)
                  for column, kind in kinds.items()}
        columns[table] = {column: np.broadcast_to(each, sizes[table]).copy() for column, each in values.items()}
    return Batch(name, minute, minute * MINUTE_NS, [context], gpus, signatures, columns,
                 {"kernels": kernels[1], "on_gpus": gpu_sums[1]}, {"version": "simulated"})


def _sums(launches: Ints, middle: Ints, buckets: Ints, chance: np.random.Generator) -> tuple[dict[str, Any], tuple[Ints, Ints]]:
    """Sums of launches whose sketches lie about a bucket: one launch in each, the others in the middle."""
    nth = np.arange(int(buckets.sum())) - np.repeat(np.cumsum(buckets) - buckets, buckets)
    bucket = np.repeat(middle - buckets // 2, buckets) + nth
    count = np.ones(bucket.size, np.int64)
    count[np.cumsum(buckets) - buckets + buckets // 2] += launches - buckets
    total = (launches * 1.02 ** middle * chance.normal(1, 0.01, launches.size)).astype(np.int64)
    weight = MINUTE_NS / (WINDOWS * WINDOW_NS)
    sums = {"launches": launches, "total_ns": total, "min_ns": (1.02 ** (middle - 6.0)).astype(np.int64),
            "max_ns": (1.02 ** (middle + 6.0)).astype(np.int64), "estimate_launches": weight * launches,
            "estimate_ns": weight * total, "square": (weight * total) ** 2 / WINDOWS, "buckets": buckets}
    return sums, (bucket.astype("<i2"), count)
