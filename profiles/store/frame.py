"""A stored trace as an `analysis.frame.Frame`: columns of its Parquet files, each decoded when an analysis asks for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from profiles.analysis.core.frame import Frame, order_of
from profiles.ingest.arrays import Array
from profiles.ingest.trace import Category, Device, Track
from profiles.models import Profile
from profiles.store import trace as store
from profiles.store.columns import read_whole
from profiles.store.tables import DRAWN
from profiles.store.timeline import timeline

WHOLE_ROWS = 20_000_000             # above, what the analyses can do without is left out
KEPT_ROWS = 2_500_000               # of all frames that a process keeps: some 250 bytes each, with what is derived
_STORED = {name: stored for stored, name in {**DRAWN, "detail_id": "detail"}.items()}
_TRACK = ("kind", "name", "group", "sort", "pid", "tid", "device", "stream", "unit")


class _Columns:
    """Columns of slices.parquet and arguments.parquet in a frame's order."""

    def __init__(self, profile_id: int) -> None:
        self.timeline = timeline(profile_id)
        rows = self.timeline.slices.rows
        self.kept: Array | None = None
        if rows > WHOLE_ROWS:
            category = self.timeline.slices.read_uncached(0, rows, ("category",))["category"]
            self.kept = np.flatnonzero(category != Category.PYTHON)
        self.order = order_of(self._read("start_ns"), self._read("depth").astype(np.int64))

    def _read(self, stored: str) -> Array:
        file = self.timeline.slices if stored in self.timeline.slices.names else self.timeline.arguments
        values: Array = file.read_uncached(0, file.rows, (stored,))[stored]
        return values if self.kept is None else values[self.kept]

    def load(self, name: str) -> Array:
        if name == "id":
            ids = self.order.astype(np.int64)
            return ids if self.kept is None else self.kept[ids]
        return self._read(_STORED.get(name, name))[self.order]

    @cached_property
    def details(self) -> list[str]:
        table = read_whole(store.local_path(store.key(self.timeline.profile_id, "details.parquet")))
        return list(table["detail"].to_pylist())

    def table(self, name: str) -> pa.Table | None:
        """samples.parquet or flows.parquet, which only traces that have some have."""
        try:
            return read_whole(store.local_path(store.key(self.timeline.profile_id, f"{name}.parquet")))
        except FileNotFoundError:
            return None


class _Details(Sequence[str]):
    """The distinct arguments, read when the first is asked for."""

    def __init__(self, columns: _Columns) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns.details)

    def __getitem__(self, at: Any) -> Any:
        return self._columns.details[at]


_kept: OrderedDict[tuple[int, int], Frame] = OrderedDict()
_lock = threading.Lock()


def frame_read(profile: Profile) -> Frame:
    """Return the frame of a stored trace; the last ones stay in memory.

    Raises FileNotFoundError where it has no timeline.
    """
    stored = timeline(profile.pk)
    key = (profile.pk, int(stored.document["written"]))
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    columns = _Columns(profile.pk)
    tracks = [Track(**{name: track.get(name) for name in _TRACK}) for track in stored.document["tracks"]]
    frame = Frame(
        columns.order.size, stored.names, _Details(columns), tracks, _devices(profile), columns.load, profile.metadata,
        left_out="" if columns.kept is None else
        f"Python's own slices are left out of this analysis: the trace has {stored.slices.rows:,} slices",
        tables=columns.table)
    with _lock:
        _kept[key] = frame
        while sum(entry.rows for entry in _kept.values()) > KEPT_ROWS:
            _kept.popitem(last=False)
    return frame


def forget() -> None:
    """Drop every frame (benches measure from here)."""
    with _lock:
        _kept.clear()


def _devices(profile: Profile) -> list[Device]:
    return [Device(device["index"], device["name"], device.get("compute_capability"), memory_bytes=device.get("memory_bytes"))
            for device in profile.summary.get("devices") or []]
