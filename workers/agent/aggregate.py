"""Windows of many jobs and GPUs of a host added up to minutes, as they are sent.

Three tables: kernels of the host, GPUs, and of each GPU its kernels (what tells a slow GPU). Bounded: beyond MOST_SERIES
signatures a minute the rest is one series named REST.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.agent.launches import MINUTE_NS, Context, Gpu, Ints, Signature, Window
from workers.agent.sketch import MOST

Column = npt.NDArray[Any]
MOST_SERIES = 20_000                # of one minute
REST = Signature("(other kernels)", (0, 0, 0), (0, 0, 0), 0)
_STEP = 1 << 12                     # more than buckets there are: a key and a bucket are one number
PLACE = 1 << 32                     # a place and a series are one number
_ADDED = ("launches", "total_ns", "estimate_launches", "estimate_ns", "square", "log_sum")
_FEW_ROWS, _FEW_PAIRS = 4096, 1 << 16
assert MOST < _STEP


class Sums:
    """Rows of one key each, added up when many have come.

    `estimate_ns` weighs each window by the time it stands for. `square` is the sum over windows of that times the same of all
    launches of its kernel: over a kernel's signatures it adds up to the kernel's own squares, from which the spread between
    windows follows.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[Ints, dict[str, Column]]] = []
        self._pairs: list[tuple[Ints, Ints]] = []
        self._new_rows = self._new_pairs = 0

    def add(self, key: Ints, columns: Mapping[str, Column], code: Ints | None = None, count: Ints | None = None) -> None:
        """Add rows, and counts of (key, bucket) pairs by `code` = key · _STEP + bucket."""
        self._rows.append((key, dict(columns)))
        self._new_rows += key.size
        if self._new_rows > _FEW_ROWS + self._rows[0][0].size:
            self._add_rows()
        if code is not None and count is not None:
            self._pairs.append((code, count))
            self._new_pairs += code.size
            if self._new_pairs > _FEW_PAIRS + self._pairs[0][0].size:
                self._add_pairs()

    def rows(self) -> tuple[Ints, dict[str, Column]]:
        """Return the keys, ascending, and their columns."""
        self._add_rows()
        return self._rows[0]

    def pairs(self) -> tuple[Ints, Ints, Ints]:
        """Return key, bucket and count of all pairs, ascending."""
        self._add_pairs()
        code, count = self._pairs[0]
        return code // _STEP, code % _STEP, count

    def _add_rows(self) -> None:
        if not self._rows:
            self._rows = [(np.zeros(0, np.int64), {name: np.zeros(0, np.int64) for name in (*_ADDED, "min_ns", "max_ns")})]
        key = np.concatenate([each for each, _ in self._rows])
        order, edges = _groups(key)
        columns = {name: np.concatenate([each[name] for _, each in self._rows])[order] for name in self._rows[0][1]}
        if edges.size:
            columns = {name: {"min_ns": np.minimum, "max_ns": np.maximum}.get(name, np.add).reduceat(values, edges)
                       for name, values in columns.items()}
        self._rows, self._new_rows = [(key[order][edges], columns)], 0

    def _add_pairs(self) -> None:
        code = np.concatenate([each for each, _ in self._pairs] or [np.zeros(0, np.int64)])
        count = np.concatenate([each for _, each in self._pairs] or [np.zeros(0, np.int64)])
        order, edges = _groups(code)
        self._pairs = [(code[order][edges], np.add.reduceat(count[order], edges) if edges.size else count)]
        self._new_pairs = 0


def _groups(key: Ints) -> tuple[Ints, Ints]:
    """Return the order that sorts keys and where in it each begins."""
    order = np.argsort(key, kind="stable")
    return order, np.flatnonzero(np.diff(key[order], prepend=-1) != 0)


@dataclass
class Watched:
    """How a GPU was watched for a job: `windows` with a time, of `observed_ns` together, out of `wall_ns`."""

    windows: int = 0
    observed_ns: int = 0
    wall_ns: int = 0
    rank: int = -1


@dataclass
class Minute:
    """Keys: of `kernels` the number of a series, of `on_gpus` that of a place, of `gpu_kernels` place · PLACE + series."""

    series: dict[Context, dict[Signature, int]] = field(default_factory=dict)
    places: dict[tuple[Context, Gpu], int] = field(default_factory=dict)
    named: list[tuple[Context, Signature]] = field(default_factory=list)        # by number of the series
    watched: list[Watched] = field(default_factory=list)                        # by number of the place
    kernels: Sums = field(default_factory=Sums)
    on_gpus: Sums = field(default_factory=Sums)
    gpu_kernels: Sums = field(default_factory=Sums)

    def place(self, window: Window) -> int:
        number = self.places.setdefault((window.context, window.gpu), len(self.watched))
        if number == len(self.watched):
            self.watched.append(Watched(rank=window.rank))
        return number

    def number_series(self, context: Context, signatures: list[Signature]) -> Ints:
        known, named, numbers = self.series.setdefault(context, {}), self.named, []
        for signature in signatures:
            number = known.get(signature)
            if number is None:
                if len(named) >= MOST_SERIES:
                    signature = REST
                number = known.setdefault(signature, len(named))
                if number == len(named):
                    named.append((context, signature))
            numbers.append(number)
        return np.array(numbers, np.int64)


class Aggregator:
    """Minutes that are still open, by number since 1970. `most_places`: of one minute; windows of further ones are refused."""

    def __init__(self, most_places: int | None = None) -> None:
        self.minutes: dict[int, Minute] = {}
        self.most_places = most_places

    def add(self, window: Window) -> bool:
        """Add a window; return whether there was room for it."""
        minute = self.minutes.setdefault(window.start_ns // MINUTE_NS, Minute())
        if self.most_places is not None and len(minute.places) >= self.most_places and \
                (window.context, window.gpu) not in minute.places:
            return False
        place = minute.place(window)
        watched = minute.watched[place]
        watched.windows += bool(window.observed_ns)
        watched.observed_ns += window.observed_ns
        watched.wall_ns += window.stands_for_ns
        one = window.kernels
        if not len(one):
            return True
        key = minute.number_series(window.context, one.signatures)
        estimate_ns = window.weight * one.total_ns
        names: dict[str, int] = {}
        kernel = np.array([names.setdefault(signature.kernel, len(names)) for signature in one.signatures], np.int64)
        columns: dict[str, Column] = {
            "launches": one.launches, "total_ns": one.total_ns, "min_ns": one.min_ns, "max_ns": one.max_ns, "log_sum": one.log_sum,
            "estimate_launches": window.weight * one.launches, "estimate_ns": estimate_ns}
        squares = {**columns, "square": estimate_ns * np.bincount(kernel, estimate_ns)[kernel]}
        minute.kernels.add(key, squares, np.repeat(key, one.buckets) * _STEP + one.bucket, one.count)
        minute.gpu_kernels.add(place * PLACE + key, squares)
        per_bucket = np.zeros(_STEP, np.int64)
        np.add.at(per_bucket, one.bucket, one.count)
        held = np.flatnonzero(per_bucket)
        minute.on_gpus.add(np.full(len(one), place), {**columns, "square": estimate_ns * estimate_ns.sum()},
                           place * _STEP + held, per_bucket[held])
        return True

    def take(self, before_ns: int | None = None) -> dict[int, Minute]:
        """Return and forget the minutes that ended before a moment, all where none is given."""
        done = [minute for minute in self.minutes if before_ns is None or (minute + 1) * MINUTE_NS <= before_ns]
        return {minute: self.minutes.pop(minute) for minute in sorted(done)}
