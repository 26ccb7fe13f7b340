"""Durations as counts in logarithmic buckets: merging two is adding their counts.

Bucket i holds durations in (γ^(i-1), γ^i] ns with γ = 1.02; its value 2γ^i/(γ+1) is within 1 % of all of them (DDSketch: Masson,
Rim, Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees", VLDB 2019, section 2.1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

GAMMA = 1.02
_LOG = float(np.log(GAMMA))
MOST = 2300                         # buckets reach beyond 2^63 ns

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def bucket_of(dur_ns: npt.NDArray[np.integer]) -> Ints:
    """Return the bucket of each duration; of 1 ns and less it is 0."""
    found: Ints = np.ceil(np.log(np.maximum(dur_ns, 1)) / _LOG - 1e-9).astype(np.int64)
    return found


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
        found = float(value[np.searchsorted(upto, rank, side="right")])
        found = found if min_ns is None else max(found, float(min_ns))
        return found if max_ns is None else min(found, float(max_ns))

    out: list[float | None] = []
    for share in at:
        place = share * (whole - 1)
        rank = int(place)
        low = ranked(rank)
        out.append(low if rank + 1 >= whole or place == rank else low + (place - rank) * (ranked(rank + 1) - low))
    return out
