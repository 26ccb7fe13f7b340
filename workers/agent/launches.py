"""What is summed of launches: who launched (`Context`), what (`Signature`), where (`Gpu`), and the sums of a window.

Durations as counts in logarithmic buckets: merging two is adding their counts.

Bucket i holds durations in (γ^(i-1), γ^i] ns with γ = 1.02; its value 2γ^i/(γ+1) is within 1 % of all of them (DDSketch: Masson,
Rim, Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees", VLDB 2019, section 2.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

GAMMA = 1.02
_LOG = float(np.log(GAMMA))
MOST = 2300                         # buckets reach beyond 2^63 ns

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def bucket_of(dur_ns: npt.NDArray[np.integer]) -> Ints:
    """Return the bucket of each duration; of 1 ns and less it is 0."""
    buckets: Ints = np.ceil(np.log(np.maximum(dur_ns, 1)) / _LOG - 1e-9).astype(np.int64)
    return buckets


def value_of(bucket: npt.NDArray[np.integer]) -> Floats:
    """Return the duration in ns that stands for each bucket."""
    return 2.0 * np.power(GAMMA, bucket.astype(np.float64)) / (GAMMA + 1.0)


def quantiles(bucket: npt.NDArray[np.integer], count: npt.NDArray[np.integer], at: Sequence[float],
              min_ns: float | None = None, max_ns: float | None = None) -> list[float | None]:
    """Return quantiles (`at` in 0..1), interpolated between neighbours of rank at·(n-1), as numpy's default does; None of nothing.

    `min_ns`, `max_ns`: the exact ones, which the first and the last rank take.
    """
    order = np.argsort(bucket, kind="stable")
    value, upto = value_of(np.asarray(bucket)[order]), np.cumsum(np.asarray(count)[order])
    whole = int(upto[-1]) if upto.size else 0
    if not whole:
        return [None] * len(at)

    def ranked(rank: int) -> float:
        if rank == 0 and min_ns is not None:
            return float(min_ns)
        if rank == whole - 1 and max_ns is not None:
            return float(max_ns)
        duration = float(value[np.searchsorted(upto, rank, side="right")])
        duration = duration if min_ns is None else max(duration, float(min_ns))
        return duration if max_ns is None else min(duration, float(max_ns))

    out: list[float | None] = []
    for share in at:
        place = share * (whole - 1)
        rank = int(place)
        low = ranked(rank)
        out.append(low if rank + 1 >= whole or place == rank else low + (place - rank) * (ranked(rank + 1) - low))
    return out


MINUTE_NS = 60_000_000_000
MOST_NAME = 4096                    # characters of a kernel's name that are kept
MOST_WORD = 200                     # of a job, a build, a host
_NONE = np.zeros(0, np.int64)


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
class KernelSums:
    """The same of many signatures: one column a field, each with a row a signature.

    The sketches lie one behind the other in `bucket` and `count`; `buckets` of a row says how many pairs are its own.
    """

    signatures: list[Signature]
    launches: Ints
    total_ns: Ints
    min_ns: Ints
    max_ns: Ints
    log_sum: Floats
    buckets: Ints
    bucket: Ints
    count: Ints

    @classmethod
    def of(cls, rows: Sequence[KernelSum] = ()) -> KernelSums:
        launches, total_ns, min_ns, max_ns, buckets = np.array(
            [(row.launches, row.total_ns, row.min_ns, row.max_ns, row.bucket.size) for row in rows], np.int64).reshape(-1, 5).T
        return cls([row.signature for row in rows], launches, total_ns, min_ns, max_ns, np.array([row.log_sum for row in rows]),
                   buckets, np.concatenate([_NONE, *(row.bucket for row in rows)]),
                   np.concatenate([_NONE, *(row.count for row in rows)]))

    def __len__(self) -> int:
        return len(self.signatures)

    def __iter__(self) -> Iterator[KernelSum]:
        ends = np.cumsum(self.buckets).tolist()
        for at, signature in enumerate(self.signatures):
            own = slice(ends[at - 1] if at else 0, ends[at])
            yield KernelSum(signature, int(self.launches[at]), int(self.total_ns[at]), int(self.min_ns[at]), int(self.max_ns[at]),
                            float(self.log_sum[at]), self.bucket[own], self.count[own])

    def split(self, edges: Sequence[int]) -> Iterator[KernelSums]:
        """Yield the rows between each edge and the next."""
        upto = np.append(0, np.cumsum(self.buckets)).tolist()
        for first, end in pairwise(edges):
            own, pairs = slice(first, end), slice(upto[first], upto[end])
            yield KernelSums(self.signatures[own], self.launches[own], self.total_ns[own], self.min_ns[own], self.max_ns[own],
                             self.log_sum[own], self.buckets[own], self.bucket[pairs], self.count[pairs])


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
    kernels: KernelSums = field(default_factory=KernelSums.of)
    rank: int = -1

    @property
    def weight(self) -> float:
        return self.stands_for_ns / self.observed_ns if self.observed_ns else 1.0


def sum_durations(key: Ints, dur_ns: Ints, signatures: Sequence[Signature]) -> KernelSums:
    """Return the sums of launches whose signature is signatures[key]."""
    code, sums = sum_by_code(key, dur_ns)
    return replace(sums, signatures=[signatures[own] for own in code.tolist()])


def sum_by_code(code: Ints, dur_ns: Ints) -> tuple[Ints, KernelSums]:
    """Return the codes that occur, ascending, and the sums of the launches of each, without signatures."""
    if not code.size:
        return code, KernelSums.of()
    order = np.lexsort((dur_ns, code))
    code, dur_ns = code[order], dur_ns[order]
    bucket, logs = bucket_of(dur_ns), np.log(np.maximum(dur_ns, 1))
    changed = np.diff(code, prepend=code[0] - 1) != 0
    edges = np.flatnonzero(changed)
    runs = np.flatnonzero(changed | (np.diff(bucket, prepend=-1) != 0))         # durations ascend: equal buckets lie together
    ends = np.append(edges[1:], code.size)
    return code[edges], KernelSums(
        [], ends - edges, np.add.reduceat(dur_ns, edges), dur_ns[edges], dur_ns[ends - 1], np.add.reduceat(logs, edges),
        np.diff(np.append(np.searchsorted(runs, edges), runs.size)), bucket[runs], np.diff(np.append(runs, code.size)))
