"""Counters derived from a stored trace, and coarse forms of every counter: derived.parquet and derived.json beside its columns.

Written after the columns, from the columns, with bounded memory: DuckDB joins launches with the GPU work they own.
derived.parquet holds (level, track, time_ns, value) in that order. Level 0 has the derived counters whole; level k > 0 has,
per bin of 4**k ns, the least and the greatest sample of each counter that is long enough to need it. Track numbers go on
behind those of the trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from django.core.files import File
from django.core.files.storage import default_storage

from profiles.analysis.core.intervals import Stairs, bandwidth, queue_depth
from profiles.analysis.core.tiles import downsample
from profiles.ingest import scratch
from profiles.ingest.arrays import Floats, Ints
from profiles.ingest.trace import GPU_WORK, MAX_GPUS, Category
from profiles.store import trace as store
from profiles.store.tables import ROW_GROUP

LEVELS = range(6, 26, 2)            # coarse forms, of 4 µs bins and up
LONG = 32_768                       # samples: a counter with fewer is read whole
MOST_PAIRS = 20_000_000             # launches of one GPU; of more no queue depth is derived
MEMORY = "256MB"
# For files DuckDB starts four threads a core, whose stacks count to the memory of an ingest: 2.1 GB on a host of 64 cores.
DUCKDB_THREADS = {"threads": 2, "async_threads": 2}
_GPU_WORK = ", ".join(str(int(category)) for category in GPU_WORK)
_LAUNCHED = f"""
    select launch.start_ns as launch_ns, work.start_ns + work.dur_ns as end_ns from
    (select a.correlation, s.start_ns, s.dur_ns from slices s positional join arguments a
     where s.category in ({_GPU_WORK}) and a.correlation <> 0 and a.device = ?) work
    join (select a.correlation, min(s.start_ns) as start_ns from slices s positional join arguments a
          where s.category = {int(Category.RUNTIME)} and a.correlation <> 0 group by 1) launch using (correlation)
    limit {MOST_PAIRS + 1}"""
_COPIES = f"""
    select s.start_ns, s.dur_ns, a.bytes from slices s positional join arguments a
    where s.category = {int(Category.MEMCPY)} and a.device = ? and a.bytes is not null limit {MOST_PAIRS + 1}"""
Row = tuple[int, int, Ints, Floats]      # level, track, time_ns, value


def derive(profile_id: int) -> int:
    """Write both files; returns their bytes.

    Raises FileNotFoundError where the columns are not there.
    """
    document = json.loads(store.local_path(store.key(profile_id, "timeline.json")).read_text())
    with scratch.folder() as folder:
        tracks, steps = _derive_tracks(profile_id, document, folder)
        rows = list(_coarse(profile_id, document)) + [
            (level, len(document["tracks"]) + i, *part) for i, series in enumerate(steps) for level, part in _forms(series)]
        if not rows:
            return 0
        return _save(profile_id, document, folder, tracks, sorted(rows, key=lambda row: row[:2]))


def _save(profile_id: int, document: dict[str, Any], folder: Path, tracks: list[dict[str, Any]], rows: list[Row]) -> int:
    ends = np.cumsum([row[2].size for row in rows]).tolist()
    places = [{"level": row[0], "track": row[1], "row": end - row[2].size, "rows": row[2].size}
              for row, end in zip(rows, ends, strict=True)]
    table = pa.table({
        "level": np.repeat([row[0] for row in rows], [row[2].size for row in rows]).astype(np.int8),
        "track": np.repeat([row[1] for row in rows], [row[2].size for row in rows]).astype(np.int32),
        "time_ns": np.concatenate([row[2] for row in rows]), "value": np.concatenate([row[3] for row in rows])})
    pq.write_table(table, folder / "derived.parquet", compression="zstd", row_group_size=ROW_GROUP,
                   use_dictionary=["level", "track", "value"], column_encoding={"time_ns": "DELTA_BINARY_PACKED"})
    (folder / "derived.json").write_text(json.dumps({"of": document["written"], "tracks": tracks, "places": places}))
    total = 0
    for name in ("derived.parquet", "derived.json"):
        total += (folder / name).stat().st_size
        with (folder / name).open("rb") as file:
            default_storage.save(store.key(profile_id, name), File(file))
    return total


def _derive_tracks(profile_id: int, document: dict[str, Any], folder: Path) -> tuple[list[dict[str, Any]], list[Stairs]]:
    import duckdb  # here: of all who read derived counters, only who writes them needs it

    first: dict[int, dict[str, Any]] = {}               # the first stream of each GPU
    last: dict[str, int] = {}                           # where the tracks of a group end
    for track in document["tracks"]:
        last[track["group"]] = max(track["sort"], last.get(track["group"], track["sort"]))
        if track["kind"] == "stream" and track["device"] is not None:
            first.setdefault(track["device"], track)
    tracks: list[dict[str, Any]] = []
    counters: list[Stairs] = []
    config: dict[str, str | bool | int | float | list[str]] = {"memory_limit": MEMORY, "temp_directory": str(folder / "spilled"),
                                                               **DUCKDB_THREADS}
    with duckdb.connect(config=config) as connection:
        for name in ("slices", "arguments"):
            path = str(store.local_path(store.key(profile_id, f"{name}.parquet"))).replace("'", "''")
            connection.execute(f"create view {name} as select * from read_parquet('{path}')")
        for device, track in sorted(first.items())[:MAX_GPUS]:
            launched = connection.execute(_LAUNCHED, [device]).fetchnumpy()
            if 0 < launched["end_ns"].size <= MOST_PAIRS:
                counters.append(queue_depth(launched["launch_ns"], launched["end_ns"]))
                tracks.append(_track(document, tracks, last, track, "launches waiting or running (derived)", "launches",
                                     counters[-1]))
            copies = connection.execute(_COPIES, [device]).fetchnumpy()
            if 0 < copies["bytes"].size <= MOST_PAIRS:
                counters.append(bandwidth(copies["start_ns"], copies["dur_ns"], copies["bytes"].astype(np.float64)))
                tracks.append(_track(document, tracks, last, track, "copy bandwidth (derived)", "B/s", counters[-1]))
    return tracks, counters


def _track(document: dict[str, Any], before: list[dict[str, Any]], last: dict[str, int], stream: dict[str, Any], name: str,
           unit: str, steps: Stairs) -> dict[str, Any]:
    return {"id": len(document["tracks"]) + len(before), "kind": "counter", "name": name, "group": stream["group"],
            "pid": stream["pid"], "tid": None, "device": stream["device"], "stream": None, "unit": unit, "depths": 0,
            "slices": 0, "samples": int(steps[0].size), "sort": last[stream["group"]] + 1, "derived": True,
            "least": float(min(steps[1].min(initial=0), 0)), "greatest": float(steps[1].max(initial=0))}


def _coarse(profile_id: int, document: dict[str, Any]) -> Iterator[Row]:
    """Coarse forms of the trace's own long counters."""
    row = 0
    for track in document["tracks"]:
        first, row = row, row + track["samples"]
        if track["samples"] > LONG:
            path = store.local_path(store.key(profile_id, "samples.parquet"))
            table = pq.read_table(path, columns=["time_ns", "value"], filters=[("track", "=", track["id"])])
            if table.num_rows != row - first:
                raise ValueError(f"track {track['id']} has {table.num_rows} samples, not the {row - first} that it states")
            for level, part in _forms((table["time_ns"].to_numpy(), table["value"].to_numpy())):
                if level:
                    yield level, track["id"], *part


def _forms(steps: Stairs) -> Iterator[tuple[int, Stairs]]:
    """A counter whole (level 0) and coarser and coarser, until it is short."""
    yield 0, steps
    for level in LEVELS:
        if steps[0].size <= LONG // 8:
            return
        keep = downsample(*steps, level)
        if keep.size < 0.7 * steps[0].size:
            steps = steps[0][keep], steps[1][keep]
            yield level, steps
