"""Columns of Arrow tables as numpy arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profiles.ingest.arrays import Array, Int32, Ints, Rows, stable_order


def numbers(table: pa.Table, name: str, missing: int = -1) -> Array:
    """Return a column of a slices table as numpy.

    Nulls become `missing` (NaN in float columns).
    """
    column = table[name]
    column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()      # combining copies even one
    if column.null_count:
        column = column.fill_null(float("nan") if pa.types.is_floating(column.type) else missing)
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


def rows_by_value(values: Array) -> dict[int, Rows]:
    """Return, for each value, the rows that have it, ascending: one sort, where a mask for each value costs rows times values."""
    order = stable_order(values)
    uniques, begins = np.unique(values[order], return_index=True)
    return dict(zip(uniques.tolist(), np.split(order, begins[1:]), strict=True)) if values.size else {}


def dictionary(table: pa.Table, name: str) -> tuple[Int32, list[str]]:
    """Codes and values of a dictionary column; null is code -1."""
    column = table[name].unify_dictionaries().combine_chunks() if table[name].num_chunks != 1 else table[name].chunk(0)
    if isinstance(column, pa.ChunkedArray):
        if not column.num_chunks:
            return np.empty(0, np.int32), []
        column = column.chunk(0)
    return column.indices.fill_null(-1).to_numpy(zero_copy_only=False), column.dictionary.to_pylist()


def pack_pairs(first: Array, second: Array) -> Ints:
    """Return one number for each pair of numbers below 2**31 - 1, equal where both are.

    Every negative number is none, however missing ones are stored: a sign must not fill the half of the other.
    """
    upper, lower = (np.maximum(values.astype(np.int64), -1) + 1 for values in (first, second))
    packed: Ints = upper << 32 | lower
    return packed


def unpack_pairs(keys: Ints) -> tuple[Ints, Ints]:
    """Return the pairs of `pack_pairs`; none is -1."""
    return (keys >> 32) - 1, (keys & 0xFFFFFFFF) - 1


# Who launched what: runtime call ↔ GPU work by correlation id.

NONE = -1
_MISSING = -(2**63)


def match(wanted: Ints, ids: Ints) -> Ints:
    """Return, for each of `wanted`, the position of its last occurrence in `ids`, else -1. 0 is no id: CUPTI and rocprofiler
    count from 1, and write 0 where they know none."""
    if not ids.size:
        return np.full(wanted.size, NONE, np.int64)
    order = stable_order(ids)
    position = np.searchsorted(ids[order], wanted, side="right") - 1
    rows = order[np.maximum(position, 0)]
    return np.where((position >= 0) & (ids[rows] == wanted) & (wanted != _MISSING) & (wanted != 0), rows, NONE)
