"""The kernels that GPUs spend most time in, by hour, as columns: a day of a large fleet is millions of rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Row = tuple[int, int, int, int, int, int, float]
KEYS = ("hour", "gpu", "signature", "context")
KINDS = {**dict.fromkeys((*KEYS, "launches", "total_ns"), "i8"), "log_sum": "f8"}
PACKED = np.dtype([(name, f">{kind}") for name, kind in KINDS.items()])         # as PostgreSQL sends them


def numbered(values: Ints) -> tuple[Ints, Ints]:
    """Return the values that occur, in order, and the number of each in that list: by hashing, a tenth of what sorting takes."""
    found = pa.array(values).dictionary_encode()
    names, at = found.dictionary.to_numpy(), found.indices.to_numpy()
    order = np.argsort(names)
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    return names[order], place[at]


@dataclass(frozen=True, eq=False)
class GpuHours:
    """One row a key: hour, GPU, signature and context. In no order."""

    hour: Ints
    gpu: Ints
    signature: Ints
    context: Ints
    launches: Ints
    total_ns: Ints
    log_sum: Floats

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> GpuHours:
        whole = np.array([row[:6] for row in rows], np.int64).reshape(-1, 6)
        hour, gpu, signature, context, launches, total_ns = whole.T
        return cls(hour, gpu, signature, context, launches, total_ns, np.array([row[6] for row in rows], np.float64))

    @classmethod
    def of_packed(cls, pieces: Iterable[bytes]) -> GpuHours:
        """Rows as PACKED says, several of a key where parts of it were not added up yet."""
        rows = np.frombuffer(b"".join(pieces), PACKED)
        found = cls(*(rows[name].astype(kind) for name, kind in KINDS.items()))
        return found._joined() if found._may_repeat() else found

    def rows(self) -> list[Row]:
        """Return them one by one, in the order of their keys."""
        order = self._order()
        return list(zip(*(getattr(self, name)[order].tolist() for name in KINDS), strict=True))

    def take(self, chosen: npt.NDArray[np.bool_]) -> GpuHours:
        return self if chosen.all() else GpuHours(*(getattr(self, name)[chosen] for name in KINDS))

    def _order(self) -> Ints:
        return np.lexsort((self.context, self.signature, self.gpu, self.hour))

    def _may_repeat(self) -> bool:
        """Whether two keys have one hash: cheaper than to put them in order, which is needed for parts alone."""
        mixed = np.zeros(self.hour.size, np.uint64)
        for name in KEYS:
            mixed = (mixed ^ getattr(self, name).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        mixed.sort()
        return bool((mixed[1:] == mixed[:-1]).any())

    def _joined(self) -> GpuHours:
        order = self._order()
        keys = [getattr(self, name)[order] for name in KEYS]
        first = np.flatnonzero(np.append(True, np.any([key[1:] != key[:-1] for key in keys], axis=0)))
        return GpuHours(*(key[first] for key in keys),
                        *(np.add.reduceat(getattr(self, name)[order], first) for name in ("launches", "total_ns", "log_sum")))
