"""How much longer each GPU took at each signature than the others in the same hour: what slow GPUs are told from. Pure.

An hour says nothing of the next, so an hour that rests is compared once, and kept: as Arrow IPC, compressed by zstd, rows in the
order of GPU and `excess`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profiles.fleet.slow.gpu_hours import Floats, GpuHours, Ints, numbered

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
    names = [(models or {}).get(each, "") for each in gpus.tolist()]
    order_of = {name: at for at, name in enumerate(sorted(set(names)))}
    model = np.array([order_of[name] for name in names], np.int64)[gpu] if gpus.size else gpu
    key = ((hour * places["signature"][0].size + places["signature"][1]) * places["context"][0].size + places["context"][1])
    excess = _excess(key * max(1, len(order_of)) + model, hours.log_sum / hours.launches)
    order = np.lexsort((excess, gpu, hour))
    columns = [pa.array(numbers[hour[order]].astype(np.int32)),
               *(pa.DictionaryArray.from_arrays(pa.array(at[order].astype(np.int32)), pa.array(found))
                 for found, at in places.values()),
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
    names, at = named(rows, "context")
    return rows.filter(pa.array(np.isin(names, np.array(contexts, np.int64))[at]))
