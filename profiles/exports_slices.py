"""The slices of an area as a table to keep, in pieces: every stored column with its words in place of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profiles.area_store import Area, windows
from profiles.timeline_store import Timeline
from profiles.trace import Category

_WHOLE = ("correlation", "external_id", "device", "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
          "registers_per_thread", "smem_bytes", "bytes")
SCHEMA = pa.schema([
    ("slice", pa.int64()), ("start_ns", pa.int64()), ("dur_ns", pa.int64()), ("name", pa.string()), ("category", pa.string()),
    ("group", pa.string()), ("track", pa.string()), ("depth", pa.int32()), ("instant", pa.bool_()),
    *((name, pa.int64()) for name in _WHOLE), ("occupancy_pct", pa.float32()),
])


def slice_tables(found: Timeline, area: Area) -> Iterator[pa.Table]:
    """SCHEMA by start, a table per window of time."""
    names = pa.array(found.names or [""], pa.string())
    words = pa.array([kind.name.lower() for kind in Category], pa.string())
    groups, tracks = (pa.array([track[key] for track in found.tracks] or [""], pa.string()) for key in ("group", "name"))
    for window in windows(found, area, ("name_id", "category", "depth", *_WHOLE, "occupancy_pct")):
        rows = window.counted
        order = np.lexsort((rows["slice"], rows["start_ns"]))
        rows = {name: values[order] for name, values in rows.items()}
        track = pa.array(rows["track"])
        yield pa.table([
            pa.array(rows["slice"]), pa.array(rows["start_ns"]), pa.array(rows["dur_ns"]), names.take(pa.array(rows["name_id"])),
            words.take(pa.array(rows["category"])), groups.take(track), tracks.take(track),
            pa.array(rows["depth"].astype(np.int32)), pa.array(rows["instant"]), *(_nullable(rows[name]) for name in _WHOLE),
            pa.array(rows["occupancy_pct"], pa.float32(), mask=~np.isfinite(rows["occupancy_pct"])),
        ], schema=SCHEMA)


def _nullable(values: npt.NDArray[Any]) -> pa.Array:
    return pa.array(values.astype(np.int64), mask=values == np.iinfo(values.dtype).min)
