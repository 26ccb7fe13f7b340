"""Windows of many jobs and GPUs of a host added up to minutes, as they are sent.

Three tables: kernels of the host, GPUs, and of each GPU its kernels (what tells a slow GPU). Windows are kept as they come and
added up when many have come, all of them in one pass over their columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.agent.launches import MINUTE_NS, MOST, Context, Gpu, Ints, KernelSums, Signature, Window

Column = npt.NDArray[Any]
MOST_SERIES = 20_000                # of one minute; the rest is one series named REST
REST = Signature("(other kernels)", (0, 0, 0), (0, 0, 0), 0)
PENDING_PAIRS, PENDING_ROWS = 1 << 15, 1 << 13
_BUCKETS = 1 << 12                  # more than there are
_SERIES, _PLACES = 1 << 24, 1 << 18  # bounds of numbers that share a key with others: minute · _PLACES · _SERIES < 2^63
_KINDS = {"min_ns": np.minimum, "max_ns": np.maximum}
assert MOST < _BUCKETS


@dataclass
class Rows:
    """Sums by ascending key, and counts by ascending key · _BUCKETS + bucket.

    `estimate_ns` weighs each window by the time it stands for. `square` is the sum over windows of that times the same of all
    launches of its kernel: over a kernel's signatures it adds up to the kernel's own squares, from which the spread between
    windows follows.
    """

    key: Ints
    columns: dict[str, Column]
    code: Ints
    count: Ints

    @property
    def buckets(self) -> Ints:
        """How many buckets each row has."""
        of = self.code // _BUCKETS
        return np.searchsorted(of, self.key, "right") - np.searchsorted(of, self.key, "left")

    @property
    def bucket(self) -> Ints:
        return self.code % _BUCKETS


@dataclass
class Watched:
    """How a GPU was watched for a job in a minute: `windows` with a time, of `observed_ns` together, out of `wall_ns`."""

    minute: int
    windows: int = 0
    observed_ns: int = 0
    wall_ns: int = 0
    rank: int = -1


@dataclass
class Numbered:
    """Names by number: what the numbers in keys stand for."""

    minutes: list[int] = field(default_factory=list)
    places: list[tuple[Context, Gpu]] = field(default_factory=list)
    series: list[tuple[Context, Signature]] = field(default_factory=list)


@dataclass
class Summed:
    """What windows came to. Keys: `kernels` minute · _SERIES + series; `on_gpus` minute · _SERIES + place; `gpu_kernels`
    (minute · _PLACES + place) · _SERIES + series; of `watched` those of `on_gpus`."""

    numbered: Numbered
    watched: dict[int, Watched]
    kernels: Rows
    on_gpus: Rows
    gpu_kernels: Rows


class Sums:
    """Windows of some minutes. `most_series`, `most_places` (jobs times GPUs): of a minute; further places are refused."""

    def __init__(self, most_series: int | None = None, most_places: int | None = None) -> None:
        self.most_series, self.most_places = most_series, most_places
        self.numbered = Numbered()
        self.watched: dict[int, Watched] = {}
        self._minutes: dict[int, int] = {}
        self._places: dict[tuple[Context, Gpu], int] = {}
        self._series: dict[Context, dict[Signature, int]] = {}
        self._places_of: dict[int, set[int]] = {}
        self._series_of: dict[int, set[int]] = {}
        self._windows: list[tuple[int, int, Ints, Window]] = []
        self._pending_rows = self._pending_pairs = 0
        self._held: tuple[Rows, Rows, Rows] | None = None

    def add(self, window: Window) -> bool:
        """Take a window; return whether there was room for it."""
        minute = _number(self._minutes, window.start_ns // MINUTE_NS, self.numbered.minutes)
        place = self._places.get((window.context, window.gpu))
        if self.most_places is not None:
            here = self._places_of.setdefault(minute, set())
            if place not in here and len(here) >= self.most_places:
                return False
        if place is None:
            place = _number(self._places, (window.context, window.gpu), self.numbered.places)
        if self.most_places is not None:
            here.add(place)
        key = minute * _SERIES + place
        watched = self.watched.get(key)
        if watched is None:
            watched = self.watched[key] = Watched(minute, rank=window.rank)
        watched.windows += bool(window.observed_ns)
        watched.observed_ns += window.observed_ns
        watched.wall_ns += window.stands_for_ns
        kernels = window.kernels
        if len(kernels):
            series = self._number_series(minute, window.context, kernels.signatures)
            # the names that are known already, not those that came with this window once more
            shared_kernels = replace(kernels, signatures=[self.numbered.series[number][1] for number in series.tolist()])
            self._windows.append((minute, place, series, replace(window, kernels=shared_kernels)))
            self._pending_rows += len(kernels)
            self._pending_pairs += kernels.bucket.size
            held_pairs, held_rows = (self._held[0].code.size, self._held[2].key.size) if self._held else (0, 0)
            if self._pending_pairs > PENDING_PAIRS + held_pairs or self._pending_rows > PENDING_ROWS + held_rows:
                self._add_up()
        return True

    def summed(self) -> Summed:
        self._add_up()
        assert self._held is not None
        return Summed(self.numbered, self.watched, *self._held)

    def _number_series(self, minute: int, context: Context, signatures: Iterable[Signature]) -> Ints:
        series_numbers, named = self._series.setdefault(context, {}), self.numbered.series
        here = self._series_of.setdefault(minute, set()) if self.most_series is not None else None
        numbers = []
        for signature in signatures:
            number = series_numbers.get(signature)
            if here is not None and number not in here and len(here) >= (self.most_series or 0) and signature != REST:
                signature = REST
                number = series_numbers.get(REST)
            if number is None:
                number = series_numbers[signature] = len(named)
                named.append((context, signature))
            if here is not None:
                here.add(number)
            numbers.append(number)
        return np.array(numbers, np.int64)

    def _add_up(self) -> None:
        """Add the windows that wait to what is held."""
        windows, self._windows = self._windows, []
        self._pending_rows = self._pending_pairs = 0
        if not windows and self._held is not None:
            return
        sums: list[KernelSums] = [window.kernels for _, _, _, window in windows]
        rows = np.array([len(part) for part in sums], np.int64)
        number = np.repeat(np.arange(rows.size), rows)                      # of each row's window
        minute, place = (np.array([window[position] for window in windows], np.int64)[number] for position in (0, 1))
        series = _joined([part for _, _, part, _ in windows])
        weight = np.array([window.weight for _, _, _, window in windows])[number]
        columns: dict[str, Column] = {name: _joined([getattr(part, name) for part in sums])
                                      for name in ("launches", "total_ns", "min_ns", "max_ns", "log_sum")}
        columns |= {"estimate_launches": weight * columns["launches"], "estimate_ns": weight * columns["total_ns"]}
        names: dict[str, int] = {}
        kernel = np.array([names.setdefault(each.kernel, len(names)) for one in sums for each in one.signatures], np.int64)
        of_kernel, inverse = np.unique(number * max(1, len(names)) + kernel, return_inverse=True)
        of_window = np.bincount(number, columns["estimate_ns"], rows.size)[number]
        estimate_ns = columns["estimate_ns"]
        square = estimate_ns * np.bincount(inverse, estimate_ns, of_kernel.size)[inverse]
        buckets = _joined([part.buckets for part in sums])
        bucket, count = _joined([part.bucket for part in sums]), _joined([part.count for part in sums])
        kernels, on_gpus = minute * _SERIES + series, minute * _SERIES + place
        codes = [np.repeat(key, buckets) * _BUCKETS + bucket for key in (kernels, on_gpus)]
        parts = (_rows(kernels, {**columns, "square": square}, codes[0], count),
                 _rows(on_gpus, {**columns, "square": estimate_ns * of_window}, codes[1], count),
                 _rows((minute * _PLACES + place) * _SERIES + series, {**columns, "square": square}, bucket[:0], count[:0]))
        if self._held is None:
            self._held = parts
        else:
            kernels_held, gpus_held, both_held = self._held
            self._held = (_both(kernels_held, parts[0]), _both(gpus_held, parts[1]), _both(both_held, parts[2]))


class Aggregator:
    """Minutes that are still open, by number since 1970. `most_places`: of one minute."""

    def __init__(self, most_places: int | None = None) -> None:
        self.minutes: dict[int, Sums] = {}
        self.most_places = most_places

    def add(self, window: Window) -> bool:
        """Add a window; return whether there was room for it."""
        minute = window.start_ns // MINUTE_NS
        if minute not in self.minutes:
            self.minutes[minute] = Sums(MOST_SERIES, self.most_places)
        return self.minutes[minute].add(window)

    def take(self, before_ns: int | None = None) -> list[Summed]:
        """Return and forget the minutes that ended before a moment, all where none is given."""
        done = [minute for minute in self.minutes if before_ns is None or (minute + 1) * MINUTE_NS <= before_ns]
        return [self.minutes.pop(minute).summed() for minute in sorted(done)]


def _number(known: dict[Any, int], one: Any, names: list[Any]) -> int:
    number = known.setdefault(one, len(names))
    if number == len(names):
        names.append(one)
    return number


def _joined(columns: list[Column]) -> Column:
    return columns[0] if len(columns) == 1 else np.concatenate(columns) if columns else np.zeros(0, np.int64)


def _rows(key: Ints, columns: Mapping[str, Column], code: Ints, count: Ints) -> Rows:
    """Add up what has one key, and counts of one code."""
    order, edges = _groups(key)
    if edges.size:
        columns = {name: _KINDS.get(name, np.add).reduceat(values[order], edges) for name, values in columns.items()}
    by_code, starts = _groups(code)
    return Rows(key[order][edges], dict(columns), code[by_code][starts],
                np.add.reduceat(count[by_code], starts) if starts.size else count)


def _both(one: Rows, other: Rows) -> Rows:
    return _rows(np.concatenate([one.key, other.key]), {name: np.concatenate([one.columns[name], other.columns[name]])
                                                        for name in one.columns},
                 np.concatenate([one.code, other.code]), np.concatenate([one.count, other.count]))


def _groups(key: Ints) -> tuple[Ints, Ints]:
    """Return the order that sorts keys and where in it each begins."""
    order = np.argsort(key, kind="stable")
    return order, np.flatnonzero(np.diff(key[order], prepend=-1) != 0)


def parts_of_key(key: Ints) -> tuple[Ints, Ints]:
    """Return minute and series (or place) of keys, by number."""
    return key // _SERIES, key % _SERIES


def places_of_key(key: Ints) -> tuple[Ints, Ints]:
    """Return minute and place of a key of `gpu_kernels` without its series, by number."""
    return key // _PLACES, key % _PLACES
