"""What is summed of launches: who launched (`Context`), what (`Signature`), where (`Gpu`), and the sums of a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workers.agent.sketch import bucket_of

MINUTE_NS = 60_000_000_000
MOST_NAME = 4096                    # characters of a kernel's name that are kept
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
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
            [(one.launches, one.total_ns, one.min_ns, one.max_ns, one.bucket.size) for one in rows], np.int64).reshape(-1, 5).T
        return cls([one.signature for one in rows], launches, total_ns, min_ns, max_ns, np.array([one.log_sum for one in rows]),
                   buckets, np.concatenate([_NONE, *(one.bucket for one in rows)]),
                   np.concatenate([_NONE, *(one.count for one in rows)]))

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
