"""Bytes by category over time, at few enough moments for a picture that no peak is lost."""

from __future__ import annotations

from typing import Any

import numpy as np

from profiles.analysis.core.frame import Ints
from profiles.analysis.trace.memory.categories import KEYS, Allocations
from profiles.analysis.trace.memory.events import Counter, DeviceMemory

POINTS = 160             # stretches of time; each shows its highest moment and its last


def moments(level: Ints, time_ns: Ints) -> Ints:
    """Events that a picture needs: of each of POINTS stretches the highest and the last."""
    if level.size <= 2 * POINTS:
        return np.arange(level.size)
    span = max(int(time_ns[-1] - time_ns[0]), 1)
    stretch = ((time_ns - time_ns[0]) * POINTS // (span + 1)).astype(np.int64)
    last = np.flatnonzero(np.append(stretch[1:] != stretch[:-1], True))
    by_level = np.lexsort((level, stretch))
    return np.unique(np.concatenate([[0], by_level[last], last]))


def by_category(held: DeviceMemory, made: Allocations | None) -> dict[str, Any]:
    """{"time_ns", "total_bytes", "reserved_bytes", "parts": {category: bytes}} at the moments."""
    at = moments(held.level, held.time_ns)
    parts: dict[str, list[int]] = {}
    left = held.level[at].copy()
    if made is not None:
        for number, key in enumerate(KEYS):
            mine = made.category == number
            if mine.any():
                change = np.zeros(held.rows.size, np.int64)
                np.add.at(change, held.began[mine], held.bytes[mine])
                freed = mine & (held.ended >= 0)
                np.subtract.at(change, held.ended[freed], held.bytes[freed])
                values = np.cumsum(change)[at]
                parts[key] = values.tolist()
                left -= values
    parts["before" if made is not None else "unknown"] = left.tolist()
    return {"time_ns": held.time_ns[at].tolist(), "total_bytes": held.level[at].tolist(),
            "reserved_bytes": _numbers(held.reserved, held.time_ns[at]),
            "parts": {key: parts[key] for key in KEYS if key in parts and any(parts[key])}}


def _numbers(counter: Counter | None, times_ns: Ints) -> list[float | None] | None:
    if counter is None:
        return None
    return [float(value) if np.isfinite(value) else None for value in counter.at(times_ns).tolist()]


def of_counter(counter: Counter) -> dict[str, Any]:
    """Return the series of a device of which only a counter is known."""
    value = np.nan_to_num(counter.value, nan=0.0).astype(np.int64)
    at = moments(value, counter.time_ns)
    return {"time_ns": counter.time_ns[at].tolist(), "total_bytes": value[at].tolist(), "reserved_bytes": None,
            "parts": {"unknown": value[at].tolist()}}
