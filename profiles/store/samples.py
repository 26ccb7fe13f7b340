"""Reading counters of a stored trace: the trace's own samples, derived ones, and the coarse forms of both."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.tile_bytes import downsample
from profiles.store import trace as store
from profiles.store.columns import Array, Columns

Samples = tuple[Array, Array, Array]        # time_ns, value, track


class Counters:
    """Samples by track and level of a trace with the given tracks (`document` of timeline.json)."""

    def __init__(self, profile_id: int, document: dict[str, Any]) -> None:
        self.derived: list[dict[str, Any]] = []
        self._places: dict[int, list[tuple[int, Columns, int, int]]] = {}       # track -> (level, table, first row, end)
        self._own(profile_id, document)
        try:
            path = store.local_path(store.key(profile_id, "derived.json"))
        except FileNotFoundError:
            return
        derived = json.loads(path.read_text())
        if derived["of"] == document["written"]:
            self.derived = derived["tracks"]
            table = Columns(store.local_path(store.key(profile_id, "derived.parquet")), document["written"])
            for place in derived["places"]:
                self._places.setdefault(place["track"], []).append(
                    (place["level"], table, place["row"], place["row"] + place["rows"]))

    def _own(self, profile_id: int, document: dict[str, Any]) -> None:
        if not any(track["samples"] for track in document["tracks"]):
            return
        table = Columns(store.local_path(store.key(profile_id, "samples.parquet")), document["written"])
        row = 0
        for track in document["tracks"]:
            if track["samples"]:
                self._places[track["id"]] = [(0, table, row, row + track["samples"])]
            row += track["samples"]

    def tile(self, begin: int, end: int, level: int, tracks: list[int]) -> Samples:
        """Return the samples of a tile, at most three per bin, and the one before it.

        A counter holds its value until the next.
        """
        times, values, owners = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0, np.int32)]
        for track in tracks:
            forms = self._places.get(track, [])
            fit = max((form for form in forms if form[0] <= level), key=lambda form: form[0], default=None)
            if fit is not None:
                time_ns, value = _between(fit[1], fit[2], fit[3], begin, end)
                keep = downsample(time_ns, value, level)
                times.append(time_ns[keep])
                values.append(value[keep])
                owners.append(np.full(keep.size, track, np.int32))
        return np.concatenate(times), np.concatenate(values), np.concatenate(owners)


def _between(table: Columns, lo: int, hi: int, begin: int, end: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    part = table.read(*_around(table, lo, hi, begin, end), ("time_ns", "value"))
    first = max(int(np.searchsorted(part["time_ns"], begin)) - 1, 0)
    last = int(np.searchsorted(part["time_ns"], end))
    return part["time_ns"][first:last], part["value"][first:last]


def _around(table: Columns, lo: int, hi: int, begin: int, end: int) -> tuple[int, int]:
    """Of one counter's rows [lo, hi) those whose row groups matter between two times."""
    bounds, least = table.bounds, table.least("time_ns")
    first, last = int(np.searchsorted(bounds, lo, side="right")), int(np.searchsorted(bounds, hi))   # whole groups behind lo's
    inside = least[first:last]
    a, b = int(np.searchsorted(inside, begin, side="left")) - 1, int(np.searchsorted(inside, end))
    return max(lo, int(bounds[first + a])) if a >= 0 else lo, min(hi, int(bounds[first + b])) if b < inside.size else hi
