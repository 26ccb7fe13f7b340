"""What is summed of launches: who launched (`Context`), what (`Signature`), where (`Gpu`), and the sums of a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workers.agent.sketch import bucket_of

MINUTE_NS = 60_000_000_000
MOST_NAME = 4096                    # characters of a kernel's name that are kept
Ints = npt.NDArray[np.int64]
MOST_WORD = 200                     # of a job, a build, a host


class Signature(NamedTuple):
    """All that tells one launch from another without its shapes."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int               # static and dynamic


class Context(NamedTuple):
    """What launches of one job on one model of GPU have in common; "" is unknown."""

    job: str = ""
    build: str = ""
    gpu_model: str = ""
    model: str = ""
    framework: str = ""
    driver: str = ""
    simulated: bool = False


class Gpu(NamedTuple):
    uuid: str
    model: str = ""
    host: str = ""


@dataclass(frozen=True)
class KernelSum:
    """Launches of one signature in one window. `bucket` and `count` are the sketch of their durations."""

    signature: Signature
    launches: int
    total_ns: int
    min_ns: int
    max_ns: int
    log_sum: float                  # of ln(ns): a mean that single slow launches hardly move
    bucket: Ints
    count: Ints


@dataclass(frozen=True)
class Window:
    """What was seen of one job on one GPU between two moments.

    `stands_for_ns`: the time since the window before; where it equals `observed_ns` everything was seen.
    """

    context: Context
    gpu: Gpu
    start_ns: int                   # since 1970
    observed_ns: int
    stands_for_ns: int
    kernels: list[KernelSum] = field(default_factory=list)
    rank: int = -1

    @property
    def weight(self) -> float:
        return self.stands_for_ns / self.observed_ns if self.observed_ns else 1.0


def sum_durations(key: Ints, dur_ns: Ints, signatures: Sequence[Signature]) -> list[KernelSum]:
    """Return the sums of launches whose signature is signatures[key]."""
    return [KernelSum(signatures[code], *sums) for code, sums in sums_by_code(key, dur_ns)]


def sums_by_code(code: Ints, dur_ns: Ints) -> Iterator[tuple[int, tuple[int, int, int, int, float, Ints, Ints]]]:
    """Yield (code, all fields of a KernelSum but its signature) of launches with equal codes, codes ascending."""
    if not code.size:
        return
    order = np.lexsort((dur_ns, code))
    code, dur_ns = code[order], dur_ns[order]
    bucket, logs = bucket_of(dur_ns), np.log(np.maximum(dur_ns, 1))
    changed = np.diff(code, prepend=code[0] - 1) != 0
    edges = np.flatnonzero(changed)
    runs = np.flatnonzero(changed | (np.diff(bucket, prepend=-1) != 0))         # durations ascend: equal buckets lie together
    run_bucket, run_count = bucket[runs], np.diff(np.append(runs, code.size))
    first_run = np.append(np.searchsorted(runs, edges), runs.size).tolist()
    ends = np.append(edges[1:], code.size)
    columns = (code[edges], ends - edges, np.add.reduceat(dur_ns, edges), dur_ns[edges], dur_ns[ends - 1],
               np.add.reduceat(logs, edges))
    for at, (own, launches, total, least, most, log_sum) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        low, high = first_run[at], first_run[at + 1]
        yield own, (launches, total, least, most, log_sum, run_bucket[low:high], run_count[low:high])
