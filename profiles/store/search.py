"""Counting what a search finds among the stored slices of a trace, a bounded piece of work at a time.

A scan goes through the stored rows once, group after group. It keeps where its hits begin as a fine histogram over the
trace, and, as long as they are few, the hits themselves. A page of hits in the order of time is then a look at the few
that are kept, or at the stretch of time in which the histogram says that the page lies.

What it asks of a slice: a text or a pattern in its name, or something about its arguments.
"""

from __future__ import annotations

import json
import operator
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profiles.ingest.arrays import Array, Bools, sums_by
from profiles.store import trace as store
from profiles.store.columns import read_whole
from profiles.store.timeline import Timeline

MODES = ("name", "regex", "argument")
NAMES_TOLD = 20_000                 # matched names that an answer lists
PATTERN_CHARACTERS = 500
_READ_THROUGH = 200_000             # distinct arguments whose JSON is parsed; of more the text decides
_NUMBER = re.compile(r"\s*([a-z_]+)\s*(>=|<=|=|>|<)\s*(-?[0-9]+(?:\.[0-9]+)?)\s*", re.IGNORECASE)
_KEY = re.compile(r"\s*([^=]{1,200}?)\s*=(.*)", re.DOTALL)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}
_COLUMNS = {"correlation", "external_id", "device", "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
            "registers_per_thread", "smem_bytes", "occupancy_pct", "bytes"}
_SPELLED = {"registers": "registers_per_thread", "shared memory": "smem_bytes", "external id": "external_id",
            "occupancy": "occupancy_pct"}


class Terms:
    """`match` says which rows of a range are hits; `names` are the ids of the names that match (None: not a matter of names)."""

    def __init__(self, timeline: Timeline, text: str, mode: str) -> None:
        self.names: list[int] | None = None
        self.nothing = False                # no slice can be a hit
        self._compared: tuple[str, Callable[[Any, Any], Any], float] | None = None
        self._wanted: Bools = np.zeros(0, np.bool_)
        self._column = "name_id"
        if mode == "argument":
            self._argument(timeline, text)
        else:
            self._wanted = _matching(pa.array(timeline.names, pa.string()), text, mode == "regex")
            hits = np.flatnonzero(self._wanted)
            self.names = hits.tolist() if hits.size <= NAMES_TOLD else None
            self.nothing = not hits.size

    def _argument(self, timeline: Timeline, text: str) -> None:
        number = _NUMBER.fullmatch(text)
        column = _SPELLED.get(number[1].lower(), number[1].lower()) if number else ""
        if number and column in _COLUMNS:
            self._compared = (column, _COMPARE[number[2]], float(number[3]))
            return
        self._column = "detail_id"
        table = read_whole(store.local_path(store.key(timeline.profile_id, "details.parquet")), columns=["detail"])
        self._wanted = _details(table["detail"].combine_chunks(), text)
        self.nothing = not self._wanted.any()

    def match(self, timeline: Timeline, lo: int, hi: int) -> Bools:
        """Return which of the rows [lo, hi) of the stored slices are hits."""
        if self._compared:
            column, compare, operand = self._compared
            values = timeline.arguments.read_uncached(lo, hi, (column,))[column]
            is_number = np.isfinite(values) if values.dtype.kind == "f" else values != np.iinfo(values.dtype).min
            mask: Bools = is_number & compare(values, operand)
            return mask
        table = timeline.slices if self._column == "name_id" else timeline.arguments
        ids = table.read_uncached(lo, hi, (self._column,))[self._column]
        return self._wanted[ids] if self._column == "name_id" else (ids >= 0) & self._wanted[np.maximum(ids, 0)]


def _matching(texts: pa.Array, text: str, is_pattern: bool) -> Bools:
    """Raises ValueError where a pattern does not compile (RE2: no back references, time linear in the text)."""
    if not len(texts):
        return np.zeros(0, np.bool_)
    if is_pattern and len(text) > PATTERN_CHARACTERS:
        raise ValueError(f"A pattern may have {PATTERN_CHARACTERS} characters.")
    try:
        hits = pc.match_substring_regex(texts, text) if is_pattern else pc.match_substring(texts, text, ignore_case=True)
    except pa.ArrowInvalid as error:
        raise ValueError(f"Not a valid regular expression: {str(error).removeprefix('Invalid regular expression: ')}.") from None
    mask: Bools = hits.fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask


def _details(texts: pa.Array, text: str) -> Bools:
    """Arguments (JSON texts) that hold the text anywhere, or under `key=` the value."""
    pair = _KEY.fullmatch(text)
    if not pair:
        return _matching(texts, text, False)
    key, value = pair[1].lower(), pair[2].strip().lower()
    mask = _matching(texts, f'"{pair[1]}"', False)
    if value:
        mask &= _matching(texts, json.dumps(value)[1:-1], False)
    rows = np.flatnonzero(mask)
    if rows.size <= _READ_THROUGH:
        for row, detail in zip(rows.tolist(), texts.take(pa.array(rows)).to_pylist(), strict=True):
            mask[row] = _holds(detail, key, value)
    return mask


def _holds(text: str, key: str, value: str) -> bool:
    try:
        pairs = json.loads(text, strict=False)
    except ValueError:
        return True                         # no JSON: the text said so
    if not isinstance(pairs, dict):
        return False
    return any(name.lower() == key and value in (entry if isinstance(entry, str) else json.dumps(entry)).lower()
               for name, entry in pairs.items())


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
        hit = _scans.get(key)
        if hit is not None:
            _scans.move_to_end(key)
            return hit
    result = Scan(timeline, Terms(timeline, text, mode), tracks, window)
    with _scans_lock:
        _scans[key] = result
        while len(_scans) > KEPT_SCANS:
            _scans.popitem(last=False)
    return result
