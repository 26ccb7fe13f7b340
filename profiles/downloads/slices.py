"""The slices of an area as a table to keep, in pieces: every stored column with its words in place of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from profiles.analysis.compare.launches import LAUNCHES as STORED_LAUNCHES
from profiles.ingest.trace import Category
from profiles.store import launches as store_launches
from profiles.store import trace as store
from profiles.store.area import Area, windows
from profiles.store.timeline import Timeline
from profiles.timeline.selectors import hits, search

_WHOLE = ("correlation", "external_id", "device", "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
          "registers_per_thread", "smem_bytes", "bytes")
SCHEMA = pa.schema([
    ("slice", pa.int64()), ("start_ns", pa.int64()), ("dur_ns", pa.int64()), ("name", pa.string()), ("category", pa.string()),
    ("group", pa.string()), ("track", pa.string()), ("depth", pa.int32()), ("instant", pa.bool_()),
    *((name, pa.int64()) for name in _WHOLE), ("occupancy_pct", pa.float32()),
])
HITS = pa.schema([("slice", pa.int64()), ("start_ns", pa.int64()), ("dur_ns", pa.int64()), ("name", pa.string()),
                  ("category", pa.string()), ("group", pa.string()), ("track", pa.string()), ("depth", pa.int32())])
LAUNCHES = pa.schema([(field.name, pa.string() if field.name == "name" else field.type) for field in STORED_LAUNCHES])
_PAGE = 1_000


def hit_tables(timeline: Timeline, query: dict[str, Any]) -> Iterator[pa.Table]:
    """HITS of a search by start, a page at a time."""
    while not hits(timeline, query, 1)["complete"]:       # before that, which hit is the first is not known
        yield HITS.empty_table()
    offset, told = 0, True
    while told:
        told = search(timeline, {**query, "offset": offset, "limit": _PAGE, "around": None})["slices"]
        offset += len(told)
        tracks = [timeline.tracks[each["track"]] for each in told]
        columns = {"slice": [each["id"] for each in told], "group": [track["group"] for track in tracks],
                   "track": [track["name"] for track in tracks],
                   **{name: [each[name] for each in told] for name in ("start_ns", "dur_ns", "name", "category", "depth")}}
        yield pa.table([pa.array(columns[field.name], field.type) for field in HITS], schema=HITS)


def launch_tables(profile_id: int) -> Iterator[pa.Table]:
    """LAUNCHES of a profile in pieces; none where the profile has none stored."""
    try:
        path = store.local_path(store_launches.key(profile_id))
    except FileNotFoundError:
        return
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(200_000):
            yield pa.Table.from_batches([batch]).select(LAUNCHES.names).cast(LAUNCHES)


def slice_tables(timeline: Timeline, area: Area) -> Iterator[pa.Table]:
    """SCHEMA by start, a table per window of time."""
    names = pa.array(timeline.names or [""], pa.string())
    words = pa.array([kind.name.lower() for kind in Category], pa.string())
    groups, tracks = (pa.array([track[key] for track in timeline.tracks] or [""], pa.string()) for key in ("group", "name"))
    for window in windows(timeline, area, ("name_id", "category", "depth", *_WHOLE, "occupancy_pct")):
        rows = window.counted_rows
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
