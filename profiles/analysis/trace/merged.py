"""Slices of several ranks as those of one trace: each rank's windows moved, then cut so that all go on in order of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.ingest.windows import MISSING, MISSING32, Slices, Window

_END = 2**62
Columns = dict[str, npt.NDArray[Any]]


class MovedSlices:
    """One rank's slices on the common clock: times, tracks, ids and GPUs moved. Names stay the rank's."""

    def __init__(self, slices: Slices, shift_ns: int, first_track: int, first_id: int, device: Mapping[int, int]) -> None:
        self.slices, self.shift_ns = slices, shift_ns
        self.device = device
        self._first_track, self._first_id = first_track, first_id

    def windows(self) -> Iterator[Window]:
        for window in self.slices.windows():
            columns = dict(window.columns)
            columns["start_ns"] = columns["start_ns"] + self.shift_ns
            columns["track"] = columns["track"] + np.int32(self._first_track)
            for name in ("correlation", "external_id"):
                known = columns[name] != MISSING
                columns[name] = np.where(known, columns[name] + np.where(known, self._first_id, 0), MISSING)
            number = columns["device"]
            for old in np.unique(number[number != MISSING32]).tolist():
                columns["device"] = np.where(number == old, np.int32(self.device.get(old, old)), columns["device"])
            yield Window(columns, window.end_ns + self.shift_ns, window.more)


class MergedSlices:
    """`profiles.ingest.windows.Slices` of several ranks."""

    def __init__(self, ranks: Sequence[MovedSlices]) -> None:
        self._ranks = ranks
        self.rows = sum(rank.slices.rows for rank in ranks)
        self.end_ns = max((rank.slices.end_ns + rank.shift_ns for rank in ranks if rank.slices.rows), default=0)
        self.devices = sorted({number for rank in ranks for number in rank.device.values()})
        self.names, self._name = _together([rank.slices.names for rank in ranks])
        self.details, self._detail = _together([list(rank.slices.details) for rank in ranks])

    def windows(self) -> Iterator[Window]:
        """At each step everything that begins before the first of the ranks' next windows."""
        sources = [self._windows_with_common_names(number) for number in range(len(self._ranks))]
        held: list[Window | None] = [next(source, None) for source in sources]
        while any(held):
            until = min(window.next_ns for window in held if window)
            least = min(int(window.columns["start_ns"][0]) for window in held if window)
            until = max(until, least + 1)                        # a window of one moment, with more of the same to come
            parts: list[Columns] = []
            for number, window in enumerate(held):
                while window and window.columns["start_ns"][0] < until:
                    cut = int(np.searchsorted(window.columns["start_ns"], until))
                    parts.append({name: values[:cut] for name, values in window.columns.items()})
                    if cut < len(window):
                        window = Window({name: values[cut:] for name, values in window.columns.items()}, window.end_ns, window.more)
                    else:
                        window = next(sources[number], None)
                held[number] = window
            columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            order = np.argsort(columns["start_ns"], kind="stable")
            yield Window({name: values[order] for name, values in columns.items()}, until)

    def _windows_with_common_names(self, rank: int) -> Iterator[Window]:
        """A rank's windows with the common names."""
        for window in self._ranks[rank].windows():
            if len(window):
                yield Window({**window.columns, "name": self._name[rank][window.columns["name"]],
                              "detail": self._detail[rank][window.columns["detail"]]}, window.end_ns, window.more)


def _together(lists: Sequence[Sequence[str]]) -> tuple[list[str], list[npt.NDArray[np.int32]]]:
    """Distinct texts of all lists, and for each list its numbers among them (the last entry stands for -1)."""
    first: dict[str, int] = {}
    numbers = [np.array([*(first.setdefault(text, len(first)) for text in texts), -1], np.int32) for texts in lists]
    return list(first), numbers
