"""A trace in the object store: columns and tiles under profiles/<id>/, written once, read in pieces.

slices.parquet     what is drawn, in the order of `analysis.tiles` (the row number is the slice's id)
arguments.parquet  what a click shows, row for row the same
bins.parquet       merged entries of every level
index.parquet      where each (table, level, tile) begins
names.parquet, details.parquet, samples.parquet, flows.parquet, timeline.json
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from django.conf import settings
from django.core.files import File
from django.core.files.storage import FileSystemStorage, default_storage

from profiles.analysis import tiles
from profiles.analysis.breakdown import breakdown
from profiles.analysis.kernels import dictionary, numbers
from profiles.trace import Category, Trace

VERSION = 1                          # of the stored form: part of every tile's ETag
ROW_GROUP = 16_384                   # of what tiles read: small pieces decode in a millisecond
_ARGUMENTS = ("correlation", "external_id", "device", "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y",
              "block_z", "registers_per_thread", "smem_bytes", "occupancy_pct", "bytes")
_DELTA = "DELTA_BINARY_PACKED"
_CACHE_SECONDS = 30
_CACHE_BYTES = 20 << 30              # of fetched objects on this machine


def key(profile_id: int, name: str) -> str:
    return f"profiles/{profile_id}/{name}"


def write_trace(profile_id: int, trace: Trace) -> int:
    """Store columns and tiles; returns their bytes. Overwrites what an earlier ingest of this profile left."""
    with tempfile.TemporaryDirectory(prefix="ridgepoint-") as folder:
        _write(Path(folder), trace)
        total = 0
        # timeline.json last: it is what says that the rest is there
        for path in sorted(Path(folder).iterdir(), key=lambda p: (p.suffix == ".json", p.name)):
            total += path.stat().st_size
            with path.open("rb") as file:
                default_storage.save(key(profile_id, path.name), File(file))
    return total


def _write(folder: Path, trace: Trace) -> None:
    """Encoding and compression leave the interpreter free: each table is written while the next one is made."""
    with ThreadPoolExecutor(2) as pool:
        written: list[Future[None]] = []
        _write_tables(folder, trace, lambda *table: written.append(pool.submit(_parquet, *table)))
    for each in written:
        each.result()


def _write_tables(folder: Path, trace: Trace, write: Callable[..., None]) -> None:
    slices = trace.slices
    track, start, dur = (numbers(slices, name) for name in ("track", "start_ns", "dur_ns"))
    depth, instant = numbers(slices, "depth"), numbers(slices, "instant").astype(np.bool_)
    name_id, names = dictionary(slices, "name")
    detail_id, details = dictionary(slices, "detail")
    category = numbers(slices, "category")
    end_ns = int(max((start + dur).max(initial=0), numbers(trace.samples, "time_ns").max(initial=0)))
    top = tiles.top_level(end_ns)
    order = tiles.order(track, start, dur, top)
    rows = order.rows
    drawn = {"track": track[rows], "depth": depth[rows], "start_ns": start[rows], "dur_ns": dur[rows],
             "name_id": name_id[rows], "category": category[rows], "instant": instant[rows]}
    write(folder / "slices.parquet", drawn, ["start_ns"], ROW_GROUP)
    taken = slices.select(list(_ARGUMENTS)).take(pa.array(rows))
    taken = taken.append_column("detail_id", pa.array(detail_id[rows], mask=detail_id[rows] < 0))
    write(folder / "arguments.parquet", taken, ["correlation", "external_id"], 4 * ROW_GROUP)
    bins, bin_runs = tiles.merge(drawn["track"], drawn["depth"], drawn["start_ns"], drawn["dur_ns"], order.level, top)
    longest = bins["slice"]
    bins |= {"name_id": drawn["name_id"][longest], "category": drawn["category"][longest],
             "instant": drawn["instant"][longest] & (bins["count"] == 1)}
    bins["count"], bins["slice"] = bins["count"].astype(np.uint32), bins["slice"].astype(np.uint32)
    write(folder / "bins.parquet", bins, ["start_ns", "slice"], ROW_GROUP)
    write(folder / "index.parquet", _index(tiles.runs(order.level, order.tile), bin_runs), ["tile", "row"], 1 << 20)
    write(folder / "names.parquet", pa.table({"name": pa.array(names, pa.string())}), [], 1 << 16)
    write(folder / "details.parquet", pa.table({"detail": pa.array(details, pa.string())}), [], 1 << 16)
    if trace.samples.num_rows:
        write(folder / "samples.parquet", trace.samples, ["time_ns"], ROW_GROUP)
    if trace.flows.num_rows:
        flows = trace.flows.set_column(1, "kind", trace.flows["kind"].cast(pa.string()))
        write(folder / "flows.parquet", flows, ["flow", "time_ns"], ROW_GROUP)
    (folder / "timeline.json").write_text(json.dumps(_document(trace, top, end_ns, track, depth)))


def _parquet(path: Path, columns: pa.Table | dict[str, npt.NDArray[Any]], delta: list[str], group: int) -> None:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    plain = [name for name in table.column_names if name not in delta]
    pq.write_table(table, path, compression="zstd", compression_level=3, row_group_size=group, use_dictionary=plain,
                   column_encoding=dict.fromkeys(delta, _DELTA), write_statistics=True)


def _index(slices: tiles.Table, bins: tiles.Table) -> pa.Table:
    parts = [(0, slices), (1, bins)]
    return pa.table({
        "table": np.concatenate([np.full(part["row"].size, number, np.int8) for number, part in parts]),
        **{name: np.concatenate([part[name] for _, part in parts]) for name in ("level", "tile", "row")},
    })


def _document(trace: Trace, top: int, end_ns: int, track: npt.NDArray[np.int32], depth: npt.NDArray[np.int16]) -> dict[str, Any]:
    """timeline.json: everything about the timeline that is small."""
    depths = np.zeros(len(trace.tracks), np.int64)
    np.maximum.at(depths, track, depth.astype(np.int64) + 1)
    counts = np.bincount(track, minlength=len(trace.tracks))
    samples = np.bincount(numbers(trace.samples, "track"), minlength=len(trace.tracks))
    return {
        "version": VERSION, "written": time.time_ns(), "end_ns": end_ns, "levels": top + 1, "tile_bins": tiles.BINS,
        "base_ns": trace.base_ns, "categories": [each.name.lower() for each in Category],
        "slices": trace.slices.num_rows,
        "tracks": [{
            "id": i, "kind": each.kind, "name": each.name, "group": each.group, "pid": each.pid, "tid": each.tid,
            "device": each.device, "stream": each.stream, "unit": each.unit, "depths": int(depths[i]),
            "slices": int(counts[i]), "samples": int(samples[i]), "sort": each.sort,
        } for i, each in enumerate(trace.tracks)],
        "steps": [{"name": step.name, "start_ns": step.start_ns, "end_ns": step.end_ns} for step in breakdown(trace).steps],
        "integrity": trace.integrity.as_json(),
    }


def local_path(name: str) -> Path:
    """A local file with the content of the object `name`: the object itself where the store is a folder, otherwise a
    copy that is fetched once per version. Raises FileNotFoundError."""
    if isinstance(default_storage, FileSystemStorage):
        path = Path(default_storage.path(name))
        if not path.is_file():
            raise FileNotFoundError(name)
        return path
    return _fetched(name)


_versions: dict[str, tuple[float, Path]] = {}


def _fetched(name: str) -> Path:
    known = _versions.get(name)
    if known and time.monotonic() - known[0] < _CACHE_SECONDS and known[1].is_file():
        return known[1]
    if not default_storage.exists(name):
        raise FileNotFoundError(name)
    version = f"{name}@{default_storage.get_modified_time(name).timestamp()}@{default_storage.size(name)}"
    folder = Path(settings.HOME) / "cache" / "objects"
    path = folder / f"{hashlib.sha256(version.encode()).hexdigest()[:32]}{Path(name).suffix}"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with default_storage.open(name, "rb") as source, tempfile.NamedTemporaryFile(dir=folder, delete=False) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(target.name, path)
        _prune(folder, keep=path)
    _versions[name] = (time.monotonic(), path)
    return path


def _prune(folder: Path, keep: Path) -> None:
    """Forget the objects fetched longest ago. Whoever has one mapped keeps it until it is closed."""
    held = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in folder.iterdir())
    used = sum(size for _, size, _ in held)
    for _, size, path in held:
        if used <= _CACHE_BYTES:
            return
        if path != keep:
            path.unlink(missing_ok=True)
            used -= size
