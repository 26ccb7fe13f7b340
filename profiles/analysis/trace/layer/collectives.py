"""Collectives: the bytes that each GPU's links carry, and bus bandwidth as nccl-tests defines it.

Message sizes and operations are those of `communication.collectives`; a message of S bytes among n ranks puts S · factor bytes on
the bus, 2(n − 1)/n of an all-reduce, (n − 1)/n of an all-gather, reduce-scatter or all-to-all, 1 of a broadcast (nccl-tests,
doc/PERFORMANCE.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.communication.collectives import bus_factor, collectives_of
from profiles.analysis.trace.layer.work import type_text
from profiles.ingest.arrays import stable_order
from profiles.ingest.windows import MISSING

MOST_ROWS = 300


@dataclass(frozen=True)
class CollectiveWork:
    """All launches of one kernel that move messages of one size among as many ranks. Their time includes waiting."""

    kernel: str
    operation: str
    ranks: int | None
    dtype: str
    launches: int
    total_ns: int
    message_bytes: int | None       # of one launch
    bus_bytes: int | None           # of one launch: message · factor
    longest: int                    # slice id

    @property
    def algorithm_bytes_s(self) -> float | None:
        return self._rate(self.message_bytes)

    @property
    def bus_bytes_s(self) -> float | None:
        return self._rate(self.bus_bytes)

    def _rate(self, size: int | None) -> float | None:
        return 1e9 * size * self.launches / self.total_ns if size is not None and self.total_ns else None


def collective_work(frame: Frame) -> list[CollectiveWork]:
    """Return the collectives on GPUs by kernel, kind and size, most time first."""
    every = collectives_of(frame)
    if every.on_host or not every.rows.size:
        return []
    names = frame["name"][every.rows].astype(np.int64)
    keys, index = np.unique(np.stack([names, every.kind, every.bytes]), axis=1, return_inverse=True)
    index = index.reshape(-1)
    total, count = np.bincount(index, every.dur_ns), np.bincount(index)
    longest = np.zeros(keys.shape[1], np.int64)
    order = stable_order(every.dur_ns)
    longest[index[order]] = order
    out = []
    for group in stable_order(-total)[:MOST_ROWS].tolist():
        name, number, size = (int(cell) for cell in keys[:, group])
        kind = every.kinds[number]
        ranks = kind.ranks or every.world
        factor, message = bus_factor(kind.operation, ranks), None if size == MISSING else size
        out.append(CollectiveWork(
            frame.names[name], kind.operation, ranks, type_text(kind.dtype), int(count[group]), int(total[group]), message,
            round(message * factor) if message is not None and factor is not None else None,
            int(frame["id"][every.rows[longest[group]]])))
    return out
