"""Counting what a search finds among the stored slices of a trace, a bounded piece of work at a time.

A scan goes through the stored rows once, group after group. It keeps where its hits begin as a fine histogram over the
trace, and, as long as they are few, the hits themselves. A page of hits in the order of time is then a look at the few
that are kept, or at the stretch of time in which the histogram says that the page lies.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from profiles.ingest.arrays import Array, Bools, sums_by
from profiles.store.terms import Terms
from profiles.store.timeline import Timeline

BINS = 1 << 16                      # of the histogram
KEPT_HITS = 200_000                 # of one scan: with more, pages come from the histogram
CHUNK_ROWS = 1 << 20
WORK_S = 0.8                        # of one request
KEPT_SCANS = 32


@dataclass
class Scan:
    """One search of one stored trace."""

    timeline: Timeline
    terms: Terms
    tracks: Bools
    window: tuple[int, int] | None          # slices that overlap it; None: all
    ranges: list[tuple[int, int]] = field(default_factory=list)     # rows that are still to be read
    histogram: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))
    rows: Array | None = field(default_factory=lambda: np.empty(0, np.int64))
    starts: Array = field(default_factory=lambda: np.empty(0, np.int64))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if not self.terms.nothing:
            window = self.window or (0, self.end_ns)
            self.ranges = [(a, min(a + CHUNK_ROWS, hi)) for lo,
                           hi in self.timeline.ranges(*window) for a in range(lo, hi, CHUNK_ROWS)]

    @property
    def end_ns(self) -> int:
        return int(self.timeline.document["end_ns"]) + 1

    @property
    def bin_ns(self) -> int:
        return self.end_ns // BINS + 1

    @property
    def complete(self) -> bool:
        return not self.ranges

    @property
    def total(self) -> int:
        return int(self.histogram.sum())

    def work(self, seconds: float = WORK_S) -> None:
        """Go on for about that long."""
        until = time.monotonic() + seconds
        with self.lock:
            while self.ranges and time.monotonic() < until:
                self._chunk(*self.ranges[0])
                del self.ranges[0]

    def _chunk(self, lo: int, hi: int) -> None:
        rows, starts = self._hits(lo, hi)
        self.histogram += np.bincount(starts // self.bin_ns, minlength=BINS)
        if self.rows is not None:
            self.rows, self.starts = np.concatenate((self.rows, rows)), np.concatenate((self.starts, starts))
            if self.rows.size > KEPT_HITS:
                self.rows, self.starts = None, np.empty(0, np.int64)

    def _hits(self, lo: int, hi: int) -> tuple[Array, Array]:
        """Rows of [lo, hi) that are hits, and their starts."""
        rows = np.flatnonzero(self.terms.match(self.timeline, lo, hi))
        if not rows.size:
            return rows, rows
        needed: tuple[str, ...] = ("start_ns",)
        if not self.tracks.all():
            needed += ("track",)
        if self.window:
            needed += ("dur_ns",)
        columns = {name: values[rows] for name, values in self.timeline.slices.read_uncached(lo, hi, needed).items()}
        keep = np.ones(rows.size, np.bool_)
        if "track" in columns:
            keep &= self.tracks[columns["track"]]
        if self.window:
            keep &= columns["start_ns"] < self.window[1]
            keep &= columns["start_ns"] + np.maximum(columns["dur_ns"], 1) > self.window[0]
        return rows[keep] + lo, columns["start_ns"][keep]

    def page(self, offset: int, limit: int) -> Array:
        """Return the rows of the hits offset … offset + limit, ordered by start, then row."""
        if self.rows is not None:
            return self.rows[np.lexsort((self.rows, self.starts))][offset:offset + limit]
        filled = np.cumsum(self.histogram)
        first, last = int(np.searchsorted(filled, offset, side="right")), int(np.searchsorted(filled, offset + limit))
        if first >= BINS or not limit:
            return np.empty(0, np.int64)
        rows, starts = self._between(first * self.bin_ns, (last + 1) * self.bin_ns)
        skipped = offset - int(filled[first] - self.histogram[first])
        return rows[np.lexsort((rows, starts))][skipped:skipped + limit]

    def before(self, ns: int) -> int:
        """Return how many hits start before a time."""
        if self.rows is not None:
            return int(np.count_nonzero(self.starts < ns))
        place = min(max(ns, 0) // self.bin_ns, BINS - 1)
        _, starts = self._between(place * self.bin_ns, (place + 1) * self.bin_ns)
        return int(self.histogram[:place].sum()) + int(np.count_nonzero(starts < ns))

    def _between(self, start_ns: int, end_ns: int) -> tuple[Array, Array]:
        """Hits that start in [start_ns, end_ns)."""
        parts = [self._hits(a, min(a + CHUNK_ROWS, hi)) for lo, hi in self.timeline.ranges(start_ns, end_ns)
                 for a in range(lo, hi, CHUNK_ROWS)]
        rows, starts = (np.concatenate([part[i] for part in parts] or [np.empty(0, np.int64)]) for i in range(2))
        keep = (starts >= start_ns) & (starts < end_ns)
        return rows[keep], starts[keep]

    def strip(self, bins: int) -> list[int]:
        """Return the hits per part of the trace."""
        middle = np.arange(1, 2 * BINS, 2, dtype=np.int64) * self.bin_ns
        place = np.minimum(middle * bins // (2 * self.end_ns), bins - 1)
        hits: list[int] = sums_by(place, self.histogram, bins).tolist()
        return hits


_scans: OrderedDict[tuple[Any, ...], Scan] = OrderedDict()
_scans_lock = threading.Lock()


def scan(timeline: Timeline, text: str, mode: str, tracks: Bools, window: tuple[int, int] | None) -> Scan:
    """Return the search, as far as it came in earlier requests.

    Raises ValueError where the text is no valid question.
    """
    key = (timeline.etag, text, mode, tracks.tobytes(), window)
    with _scans_lock:
        known = _scans.get(key)
        if known is not None:
            _scans.move_to_end(key)
            return known
    made = Scan(timeline, Terms(timeline, text, mode), tracks, window)
    with _scans_lock:
        _scans[key] = made
        while len(_scans) > KEPT_SCANS:
            _scans.popitem(last=False)
    return made
