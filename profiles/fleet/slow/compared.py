"""How much longer each GPU took at each signature than the others in the same hour: what slow GPUs are told from. Pure.

An hour says nothing of the next, so an hour that rests is compared once, and kept: as Arrow IPC, compressed by zstd, rows in the
order of GPU and `excess`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# The kernels that GPUs spend most time in, by hour, as columns: a day of a large fleet is millions of rows. Pure.

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Row = tuple[int, int, int, int, int, int, float]
KEYS = ("hour", "gpu", "signature", "context")
KINDS = {**dict.fromkeys((*KEYS, "launches", "total_ns"), "i8"), "log_sum": "f8"}
PACKED = np.dtype([(name, f">{kind}") for name, kind in KINDS.items()])         # as PostgreSQL sends them


def numbered(values: Ints) -> tuple[Ints, Ints]:
    """Return the values that occur, in order, and the number of each in that list: by hashing, a tenth of what sorting takes."""
    encoding = pa.array(values).dictionary_encode()
    names, codes = encoding.dictionary.to_numpy(), encoding.indices.to_numpy()
    order = np.argsort(names)
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    return names[order], place[codes]


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
        hours = cls(*(rows[name].astype(kind) for name, kind in KINDS.items()))
        return hours._joined() if hours._may_repeat() else hours

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


LEAST_GPUS = 4                      # that share a signature in an hour
NAMED = ("gpu", "signature", "context")
# `excess`: the mean logarithm of a row's durations less the median of its key; NaN where fewer than LEAST_GPUS ran it
COMPARED = pa.schema([("hour", pa.int32()), *((name, pa.dictionary(pa.int32(), pa.int64())) for name in NAMED),
                      ("launches", pa.int64()), ("total_ns", pa.int64()), ("excess", pa.float64())])


def compare(hours: GpuHours, models: Mapping[int, str] | None = None) -> pa.Table:
    """Return a row of COMPARED for each row with launches, in the order of hour, GPU and `excess`.

    Args:
        models: GPU -> model; only GPUs of one model are compared.
    """
    hours = hours.take(hours.launches > 0)
    places = {name: numbered(getattr(hours, name)) for name in NAMED}
    numbers, hour = numbered(hours.hour)
    gpus, gpu = places["gpu"]
    names = [(models or {}).get(gpu_key, "") for gpu_key in gpus.tolist()]
    order_of = {name: rank for rank, name in enumerate(sorted(set(names)))}
    model = np.array([order_of[name] for name in names], np.int64)[gpu] if gpus.size else gpu
    key = ((hour * places["signature"][0].size + places["signature"][1]) * places["context"][0].size + places["context"][1])
    excess = _excess(key * max(1, len(order_of)) + model, hours.log_sum / hours.launches)
    order = np.lexsort((excess, gpu, hour))
    columns = [pa.array(numbers[hour[order]].astype(np.int32)),
               *(pa.DictionaryArray.from_arrays(pa.array(codes[order].astype(np.int32)), pa.array(texts))
                 for texts, codes in places.values()),
               pa.array(hours.launches[order]), pa.array(hours.total_ns[order]), pa.array(excess[order])]
    return pa.table(columns, COMPARED)


def _excess(key: Ints, mean: Floats) -> Floats:
    order = np.lexsort((mean, key))
    edges = edges_of(key[order])
    ends = np.append(edges[1:], order.size)
    size = ends - edges
    low, high = edges + (size - 1) // 2, edges + size // 2
    ranked = mean[order]
    middle = np.where(size >= LEAST_GPUS, (ranked[low] + ranked[high]) / 2, np.nan)
    excess = np.empty(order.size)
    excess[order] = ranked - np.repeat(middle, size)
    return excess


def edges_of(ordered: Ints) -> Ints:
    """Where each value of a row in order begins."""
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if ordered.size else np.empty(0, np.int64)


def packed(rows: pa.Table) -> bytes:
    """Return rows as they are kept."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, COMPARED, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def unpacked(kept: bytes) -> pa.Table:
    with pa.ipc.open_stream(kept) as reader:
        return reader.read_all()


def joined(parts: Iterable[pa.Table]) -> pa.Table:
    """Return the rows of several hours as one table, names numbered alike. In the order of `parts`."""
    whole = pa.concat_tables([*parts, COMPARED.empty_table()])
    return whole.unify_dictionaries().combine_chunks()


def named(rows: pa.Table, column: str) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Return the names of a column of NAMED, and each row's place among them."""
    if not rows.num_rows:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    (chunk,) = rows.combine_chunks().column(column).chunks
    return chunk.dictionary.to_numpy(), chunk.indices.to_numpy()


def of_contexts(rows: pa.Table, contexts: Sequence[int]) -> pa.Table:
    """Return the rows of some contexts: a context is compared with itself alone, so the others change nothing."""
    names, codes = named(rows, "context")
    return rows.filter(pa.array(np.isin(names, np.array(contexts, np.int64))[codes]))
