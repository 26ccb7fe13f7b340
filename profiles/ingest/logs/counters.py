"""Rows of a log of GPU counters to a `Trace` of samples: one track per GPU and counter.

A sample speaks for the time to the next one. A cell without a number ends what is known (NaN) until the next number; so does
the end of the log, one usual interval after the last row. Logs hold local time without a zone, so the trace has no wall
clock unless the log counts epoch seconds.
"""

from __future__ import annotations

import math
import re
import statistics
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import DAY_NS, Form, Moment
from profiles.ingest.trace import (
    CellRows,
    Device,
    Integrity,
    SummaryColumn,
    SummaryTable,
    Trace,
    TraceError,
    Track,
    summary_columns,
)

MAX_GPUS, MAX_COLUMNS, MAX_TRACKS = 1_024, 500, 20_000
_FLUSH_ROWS = 200_000
_MOST_NS = 2**61                 # 73 years to either side of the first row
_MEASURED_GAPS = 1_001
# unit of the log -> unit of the track, factor
UNITS = {"MiB": ("bytes", 2**20), "KiB": ("bytes", 2**10), "GiB": ("bytes", 2**30), "MHz": ("Hz", 10**6), "GHz": ("Hz", 10**9),
         "us": ("ns", 10**3), "ms": ("ns", 10**6), "s": ("ns", 10**9), "mW": ("W", 1e-3), "C": ("°C", 1)}
_NUMBER = re.compile(r"([-+]?\d{1,40}(?:\.\d{1,40})?)(?:\s*([^\s\d].{0,20}))?", re.ASCII)
_STATE = re.compile(r"P(\d{1,2})", re.ASCII)
_WORDS = {"Active": 1.0, "Not Active": 0.0, "Enabled": 1.0, "Disabled": 0.0}
_LATE = "time before that of the GPU's row before it: put at that row's time, later rows moved along where the clock was set back"
_CROWDED = f"values of counters beyond the first {MAX_TRACKS:,} tracks: left out"


class Counter(NamedTuple):
    """A column of numbers. `unit` is the log's own."""

    name: str
    unit: str = ""


class Gpu(NamedTuple):
    """What a row is about; `device` is None where the log does not number it."""

    group: str
    device: int | None = None


@lru_cache(65_536)
def parse_number(cell: str, unit: str) -> float | None:
    """Return the number in a cell; None where there is none, or one of another unit than the column's."""
    if cell in _WORDS:
        return _WORDS[cell]
    match = _STATE.fullmatch(cell)
    if match:
        return float(match[1])
    match = _NUMBER.fullmatch(cell)
    if match is None or (match[2] and unit and match[2] != unit):
        return None
    return float(match[1])


@dataclass
class _Clock:
    """When the rows of one GPU were, as far as its own earlier rows let one believe."""

    last_ns: int | None = None
    moved_ns: int = 0
    days: int = 0
    late_ns: int | None = None       # of the row before, where it alone may be wrong
    gaps: list[int] = field(default_factory=list)

    def place(self, ns: int, is_time_of_day: bool, integrity: Integrity) -> int:
        now, last = ns + self.moved_ns + self.days * DAY_NS, self.last_ns
        if last is not None:
            if is_time_of_day and last - now > DAY_NS // 2:
                passed = 1 + (last - now - DAY_NS // 2) // DAY_NS
                self.days, now = self.days + passed, now + passed * DAY_NS
            if now < last:
                if self.late_ns is None:
                    integrity.repair(_LATE)
                    self.late_ns = now
                    return last
                back = last - min(self.late_ns, now)
                self.moved_ns, now = self.moved_ns + back, now + back
            if now > last and len(self.gaps) < _MEASURED_GAPS:
                self.gaps.append(now - last)
        self.last_ns, self.late_ns = now, None
        return now


@dataclass
class _Course:
    """Least, greatest and time-weighted mean of a counter of one GPU, in the unit of its track."""

    least: float = math.inf
    most: float = -math.inf
    weighted: float = 0.0
    known_ns: int = 0
    last: tuple[int, float] | None = None

    def add(self, now: int, value: float) -> None:
        if self.last is not None and not math.isnan(self.last[1]):
            self.weighted += self.last[1] * (now - self.last[0])
            self.known_ns += now - self.last[0]
        self.last = now, value
        if not math.isnan(value):
            self.least, self.most = min(self.least, value), max(self.most, value)

    @property
    def mean(self) -> float | None:
        return self.weighted / self.known_ns if self.known_ns else None


def _unit(counter: Counter) -> str:
    """Return the unit of a counter's track; "" where the log states none."""
    return str(UNITS.get(counter.unit, (counter.unit[:40], 1))[0])


class CounterLog:
    """What a reader hands rows to; `records_read` counts them here."""

    def __init__(self, source: Source, format: str, integrity: Integrity) -> None:
        self._source, self._integrity = source, integrity
        self._builder = TraceBuilder(source, format, integrity)
        self._clocks: dict[Gpu, _Clock] = {}
        self._tracks: dict[tuple[Gpu, Counter], int] = {}
        self._courses: dict[int, _Course] = {}
        self._unknown: dict[Counter, int] = {}
        self._known: set[Counter] = set()
        self._first: Moment | None = None
        self._waiting = array("i"), array("q"), array("d")
        self._crowded = 0
        self.devices: dict[int, Device] = {}
        self.form: Form | None = None

    def lose(self, why: str) -> None:
        """Count a row that cannot be read."""
        self._integrity.records_read += 1
        self._integrity.drop(why)

    def add(self, gpu: Gpu, moment: Moment | None, counters: Sequence[Counter], cells: Iterable[str]) -> bool:
        """Take a row; True where something of it was kept."""
        if moment is None:
            self.lose("a row without a time")
            return False
        if self._first is None:
            self._first, self.form = moment, moment.form
        if moment.form != self.form or abs(moment.ns - self._first.ns) >= _MOST_NS:
            self.lose("a time of another form than the first row's, or decades from it")
            return False
        clock = self._clock(gpu)
        if clock is None:
            self.lose(f"a row of a GPU beyond the first {MAX_GPUS:,}")
            return False
        now = clock.place(moment.ns - self._first.ns, moment.form == "time of day", self._integrity)
        if abs(now) >= _MOST_NS:
            self.lose("a time decades from the first row's")
            return False
        values = [parse_number(cell, counter.unit) for counter, cell in zip(counters, cells, strict=True)]
        for counter, value in zip(counters, values, strict=True):
            self._sample(gpu, counter, now, value)
        if all(value is None for value in values):
            self.lose("a row without a number")
            return False
        self._integrity.records_read += 1
        return True

    def _clock(self, gpu: Gpu) -> _Clock | None:
        if gpu not in self._clocks:
            if len(self._clocks) >= MAX_GPUS:
                return None
            days = max((clock.days for clock in self._clocks.values()), default=0)
            self._clocks[gpu] = _Clock(days=days)
            if gpu.device is not None:
                self.devices.setdefault(gpu.device, Device(gpu.device, ""))
        return self._clocks[gpu]

    def _sample(self, gpu: Gpu, counter: Counter, now: int, value: float | None) -> None:
        if value is None:
            self._unknown[counter] = self._unknown.get(counter, 0) + 1
        else:
            self._known.add(counter)
        track = self._tracks.get((gpu, counter))
        if track is None:
            if value is None:                   # nothing was known before either
                return
            if len(self._tracks) >= MAX_TRACKS:
                self._crowded += 1
                return
            track = self._tracks[gpu, counter] = self._make(gpu, counter)
        self._put(track, now, math.nan if value is None else value * UNITS.get(counter.unit, ("", 1))[1])

    def _make(self, gpu: Gpu, counter: Counter) -> int:
        return self._builder.track((gpu, counter), lambda: Track(
            kind="counter", name=counter.name[:200], group=gpu.group, sort=len(self._tracks), device=gpu.device,
            unit=_unit(counter) or None))

    def _put(self, track: int, now: int, value: float) -> None:
        self._courses.setdefault(track, _Course()).add(now, value)
        tracks, times, values = self._waiting
        tracks.append(track)
        times.append(now)
        values.append(value)
        if len(tracks) >= _FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        tracks, times, values = self._waiting
        if tracks:
            self._builder.add_samples(np.array(tracks, np.int32), np.array(times, np.int64), np.array(values, np.float64))
        self._waiting = array("i"), array("q"), array("d")

    def finish(self, hint: str, metadata: dict[str, str]) -> Trace:
        """Return the trace. Raises TraceError where no row has a time and a number."""
        integrity = self._integrity
        integrity.kinds["row"] = integrity.records_read
        integrity.settle()
        if not self._tracks:
            reasons = "; ".join(f"{why}: {count:,}" for why, count in integrity.not_kept.items())
            raise TraceError(f"byte {self._source.position}", "none of its rows has a time and a number"
                             + (f" ({reasons})" if reasons else ""), hint)
        self._close()
        self._say()
        assert self._first is not None
        is_epoch = self._first.form == "epoch"
        trace = self._builder.finish(devices=[self.devices[index] for index in sorted(self.devices)],
                                     base_ns=self._first.ns if is_epoch else None,
                                     metadata={**metadata, "headline": self._headline()})
        trace.tables = self._tables()
        if not is_epoch:
            trace.base_ns = None                # a clock that was set within the log leaves a gap like an epoch
        return trace

    def _headline(self) -> str:
        starts = [course.last[0] for course in self._courses.values() if course.last]
        counters, gpus = len({counter for _, counter in self._tracks}), len(self._clocks)
        return (f"{self._integrity.records_kept:,} rows of {counters} counter{'s' * (counters > 1)} of {gpus} "
                f"GPU{'s' * (gpus > 1)} over {max(starts, default=0) / 1e9:,.1f} s.")

    def _tables(self) -> list[SummaryTable]:
        """Return least, mean and greatest of every counter and GPU, a table per unit."""
        rows: dict[str, CellRows] = {}
        for (gpu, counter), track in self._tracks.items():
            course = self._courses[track]
            rows.setdefault(_unit(counter), []).append([gpu.group, counter.name, course.least, course.mean, course.most])
        return [SummaryTable(f"Counters in {unit}" if unit else "Counters without a unit",
            [*summary_columns("GPU: text | Counter: text"),
             *(SummaryColumn(name, "pct" if unit == "%" else unit) for name in ("Least", "Mean over time", "Greatest"))], unit_rows)
            for unit, unit_rows in rows.items()]

    def _close(self) -> None:
        for (gpu, _), track in self._tracks.items():
            clock = self._clocks[gpu]
            if clock.gaps and clock.last_ns is not None:
                self._put(track, clock.last_ns + int(statistics.median_low(clock.gaps)), math.nan)
        self._flush()

    def _say(self) -> None:
        integrity = self._integrity
        integrity.remark("cells without a number ([N/A], -, …): not known at that time",
                         sum(count for counter, count in self._unknown.items() if counter in self._known))
        never = [counter.name for counter in self._unknown if counter not in self._known]
        if never:
            integrity.notes.append(f"Columns without any number were left out: {', '.join(never)[:1000]}.")
        integrity.repair(_CROWDED, self._crowded)
        midnights = max(clock.days for clock in self._clocks.values())
        integrity.remark("midnights passed, by the time of day: the log states no date", midnights)
        if self.form not in ("epoch", "none"):
            integrity.notes.append("The log states local time without a zone: its rows are in order, but not on UTC.")
