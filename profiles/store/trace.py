"""A trace in the object store: columns and tiles under profiles/<id>/, written once, read in pieces.

slices.parquet     what is drawn, in the order of `analysis.tiles` (the row number is the slice's id)
arguments.parquet  what a click shows, row for row the same
bins.parquet       merged entries of every level
index.parquet      (table, level, tile, track, depth) of every 1,024th row of each level: 0 slices, 1 bins
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from django.conf import settings
from django.core.files import File
from django.core.files.storage import FileSystemStorage, default_storage

from profiles.analysis.core import tiles
from profiles.analysis.core.digest import Digest, digest_of
from profiles.analysis.core.kernels import numbers
from profiles.ingest import scratch
from profiles.ingest.arrays import Floats, sums_by
from profiles.ingest.trace import Category, Trace
from profiles.ingest.windows import Window
from profiles.store.tables import ROW_GROUP, TraceTables, write_parquet

VERSION = 2                          # of the stored form: part of every tile's ETag
READING = 2             # rises with what readers and analyses make of a trace: pages say that an earlier version read it
_NOT_WORK = (int(Category.SYNC), int(Category.GPU_ANNOTATION))      # on a GPU's stream: no work
_CACHE_SECONDS = 30
_CACHE_BYTES = 20 << 30              # of fetched objects on this machine


def key(profile_id: int, name: str) -> str:
    return f"profiles/{profile_id}/{name}"


@dataclass
class PreparedTrace:
    """A trace whose windows have passed: its digest stands (`digest_of`), its tables wait to be encoded."""

    trace: Trace
    stored: TraceTables
    facts: Facts
    end_ns: int
    rows_done: int = 0                   # of the slices, by `write`

    def write(self, profile_id: int) -> int:
        """Encode and store; returns the bytes."""
        total = 0
        with scratch.folder() as folder:
            self._encode(folder)
            # timeline.json last: it is what says that the rest is there
            for path in sorted(folder.iterdir(), key=lambda p: (p.suffix == ".json", p.name)):
                total += path.stat().st_size
                with path.open("rb") as file:
                    default_storage.save(key(profile_id, path.name), File(file))
        return total

    def _encode(self, folder: Path) -> None:
        trace = self.trace
        self.stored.encode(folder, self._done)
        write_parquet(folder / "names.parquet", pa.table({"name": pa.array(trace.parts.names, pa.string())}), [], 4096)
        write_parquet(folder / "details.parquet", pa.table({"detail": pa.array(trace.parts.details, pa.string())}), [], 4096)
        if trace.samples.num_rows:
            write_parquet(folder / "samples.parquet", trace.samples, ["time_ns"], ROW_GROUP)
        if trace.flows.num_rows:
            flows = trace.flows.set_column(1, "kind", trace.flows["kind"].cast(pa.string()))
            write_parquet(folder / "flows.parquet", flows, ["flow", "time_ns"], ROW_GROUP)
        document = _document(trace, self.stored.levels.top, self.end_ns, self.facts, digest_of(trace))
        (folder / "timeline.json").write_text(json.dumps(document))

    def _done(self, rows: int) -> None:
        self.rows_done = rows


def prepare(trace: Trace, tell: Callable[[str, int, int], None] | None = None) -> PreparedTrace:
    """Let all windows of the trace pass once: into tables, and into its digest.

    Tables in stored order. `tell` is told the phase, the slices done and their number.
    """
    last_sample = int(numbers(trace.samples, "time_ns").max(initial=0))
    end_ns = max(trace.parts.end_ns, last_sample)
    stored, facts = TraceTables(tiles.top_level(end_ns)), Facts(len(trace.tracks))

    def add(window: Window) -> None:
        stored.levels.add(window.columns, window.next_ns)
        facts.add(window)

    with ThreadPoolExecutor(1, thread_name_prefix="tiles") as pool:      # sorting leaves the interpreter free
        adding: list[Future[None]] = []

        def take(window: Window) -> None:
            while adding:
                adding.pop().result()
            adding.append(pool.submit(add, window))

        digest_of(trace, take, tell)
        for future in adding:
            future.result()
    stored.levels.finish()
    return PreparedTrace(trace, stored, facts, end_ns)


class Facts:
    """Per track: how deep, how many, how long."""

    def __init__(self, tracks: int) -> None:
        self.depths, self.slices, self.busy_ns = (np.zeros(tracks, np.int64) for _ in range(3))

    def add(self, window: Window) -> None:
        columns = window.columns
        track, depth, dur = columns["track"], columns["depth"], columns["dur_ns"]
        np.maximum.at(self.depths, track, depth.astype(np.int64) + 1)
        self.slices += np.bincount(track, minlength=self.slices.size)
        busy = (depth == 0) & ~np.isin(columns["category"], _NOT_WORK)
        self.busy_ns += sums_by(track[busy], dur[busy], self.slices.size)


def _document(trace: Trace, top: int, end_ns: int, facts: Facts, digest: Digest) -> dict[str, Any]:
    """timeline.json: everything about the timeline that is small.

    `end_ns` is the end of the last record; `last_ns` that of the work, as wall time has it: marks and what the profiler did aside.
    """
    last_sample_ns = int(numbers(trace.samples, "time_ns").max(initial=0))
    samples = np.bincount(numbers(trace.samples, "track"), minlength=len(trace.tracks))
    extents = _extents(numbers(trace.samples, "value"), samples.tolist())
    return {
        "version": VERSION, "written": time.time_ns(), "end_ns": end_ns, "last_ns": digest.wall[1] or last_sample_ns or end_ns,
        "levels": top + 1, "tile_bins": tiles.BINS, "base_ns": trace.base_ns, "slices": trace.parts.rows,
        "categories": [category.name.lower() for category in Category],
        "colours": {number: trace.colours[name] for number, name in enumerate(trace.parts.names) if name in trace.colours}
        if trace.colours else {},
        "tracks": [{
            "id": i, "kind": track.kind, "name": track.name, "group": track.group, "pid": track.pid, "tid": track.tid,
            "device": track.device, "stream": track.stream, "unit": track.unit, "depths": int(facts.depths[i]),
            "slices": int(facts.slices[i]), "samples": int(samples[i]), "sort": track.sort, "busy_ns": int(facts.busy_ns[i]),
            **extents[i],
        } for i, track in enumerate(trace.tracks)],
        "steps": [{"name": name, "start_ns": start, "end_ns": end} for name, start, end in digest.steps()],
        "step_tracks": digest.step_tracks(),
        "integrity": trace.integrity.as_json(),
    }


def _extents(value: Floats, counts: list[int]) -> list[dict[str, float]]:
    """Return of each track, whose samples follow each other, the least and greatest value; of one without values nothing."""
    extents: list[dict[str, float]] = []
    offset = 0
    for count in counts:
        finite = value[offset:offset + count]
        finite = finite[np.isfinite(finite)]
        extents.append({"least": float(finite.min()), "greatest": float(finite.max())} if finite.size else {})
        offset += count
    return extents


def local_path(name: str) -> Path:
    """Return a local file with the content of the object `name`.

    The object itself where the store is a folder, otherwise a copy that is fetched once per version. Raises FileNotFoundError.
    """
    if isinstance(default_storage, FileSystemStorage):
        path = Path(default_storage.path(name))
        if not path.is_file():
            raise FileNotFoundError(name)
        return path
    return _fetch(name)


_versions: dict[str, tuple[float, Path]] = {}


def _fetch(name: str) -> Path:
    hit = _versions.get(name)
    if hit and time.monotonic() - hit[0] < _CACHE_SECONDS and hit[1].is_file():
        return hit[1]
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
    files = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in folder.iterdir())
    used = sum(size for _, size, _ in files)
    for _, size, path in files:
        if used <= _CACHE_BYTES:
            return
        if path != keep:
            path.unlink(missing_ok=True)
            used -= size
