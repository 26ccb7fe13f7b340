"""JSON lists of events by hand, or one object a line: `[{"time": 0.5, "name": "step", "gpu_memory": 123}, …]` → `Trace`.

Every record has a time (`time`, `timestamp`, `ts`, `t`) and a name, numbers, or both; `json_records` says what keys mean.
Seconds unless the key says otherwise (`time_ms`); the size of a number is asked for `timestamp` alone. A record with a
name is an instant at its time, or a slice from then on where it has a duration; every number is a sample of a counter.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple

import numpy as np

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.source import Source
from profiles.ingest.other.json_records import (
    CLOCKS,
    DECIMAL_BYTES,
    DECODER,
    LANES,
    NAMES,
    SHAPES,
    JsonRecords,
    Key,
    clean_text,
    is_number,
    key_of,
    lane_value,
    nanoseconds,
    unix_unit,
)
from profiles.ingest.trace import Category, Device, Integrity, Trace, TraceError, Track

FORMAT = "event-list"
MAX_TRACKS = 4_096               # of events, and of counters; further events share one
MAX_FIELDS, MAX_INNER = 500, 50  # of one record, of an object within it
UNNAMED = "unnamed"
_BATCH = 50_000
_DETAIL_CHARS, _DETAILS = 200, 20
_TRACE_EVENTS = re.compile(rb'"(?:ph|traceEvents)"\s*:')
_NESTED = frozenset({"frame", "callFrame", "children", "nodes", "metrics"})       # of trees of other tools
_HINT = 'Write records like {"time": 0.5, "name": "step", "memory_bytes": 123}, with a time in each; `time_ms`, `time_us` or ' \
        '`time_ns` where it is not in seconds.'


class Lane(NamedTuple):
    """What keeps tracks apart, each an index, a short text or unknown."""

    rank: int | str | None = None
    gpu: int | str | None = None
    thread: int | str | None = None

    @property
    def device(self) -> int | None:
        return self.gpu if isinstance(self.gpu, int) else None

    @property
    def group(self) -> str:
        rank = None if self.rank is None else f"rank {self.rank}"
        gpu = None if self.gpu is None else f"GPU {self.gpu}" if isinstance(self.gpu, int) else self.gpu
        return ", ".join(part for part in (rank, gpu) if part) or "events"


def sniff(head: bytes) -> bool:
    """Tell whether content is a list, or lines, of objects that begin with an event."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] not in (b"[", b"{") or _TRACE_EVENTS.search(head):
        return False
    is_array = text[:1] == b"["
    first = text[1:].lstrip() if is_array else text
    if first[:1] != b"{":
        return False
    record, after = _first(first.decode("utf-8", "replace"))
    if not _is_event(record):
        return False
    if is_array:
        return after[:1] in ("", ",", "]")
    return after[:1] == "{" and _is_event(_first(after)[0])


def _first(text: str) -> tuple[Any, str]:
    """Return the object that a text begins with, and what follows; None where there is none."""
    try:
        record, end = DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None, ""
    return record, text[end:end + 100_000].lstrip()


def _is_event(record: Any) -> bool:
    if not isinstance(record, dict) or any(isinstance(record.get(key), (dict, list)) for key in _NESTED):
        return False
    keys = [(key_of(key).role, value) for key, value in record.items()]
    if not any(role == "clock" and is_number(value) for role, value in keys):
        return False
    return any(_is_name(value) if role == "name" else role == "number" and is_number(value) for role, value in keys)


def _is_name(value: Any) -> bool:
    return is_number(value) or (isinstance(value, str) and bool(value))


def read(source: Source) -> Trace:
    """Raises TraceError where no record is an event."""
    integrity = Integrity()
    reader = _Reader(TraceBuilder(source, FORMAT, integrity), integrity)
    for record in JsonRecords(source, integrity):
        reader.take(record)
    reader.flush()
    integrity.settle()
    if integrity.records_kept <= 0:
        why = ", ".join(integrity.not_kept) or "it holds none"
        raise TraceError(f"byte {source.position}", f"none of the records is an event ({why})", _HINT)
    reader.note_units()
    return reader.builder.finish(devices=[Device(index, "") for index in sorted(reader.devices)], metadata=reader.metadata())


class _Reader:
    def __init__(self, builder: TraceBuilder, integrity: Integrity) -> None:
        self.builder, self.integrity = builder, integrity
        self.devices: set[int] = set()
        self._clock: str | None = None                      # of CLOCKS: the base of the key that holds the time
        self._unix: tuple[int, str] | None = None
        self._others: set[str] = set()
        self._decimal: set[str] = set()
        self._tracks: dict[Lane, int] = {}
        self._counters: dict[tuple[Lane, str], int | None] = {}
        self._events: list[tuple[int, int, int, int, bool, int]] = []
        self._samples: list[tuple[int, int, float]] = []

    def take(self, record: dict[str, Any]) -> None:
        """Keep one record: its event and its samples."""
        self.integrity.records_read += 1
        fields = [(key_of(key), value) for key, value in _flatten(list(record.items())[:MAX_FIELDS])]
        self.integrity.repair(f"fields beyond the first {MAX_FIELDS} of a record: left out", len(record) - len(fields))
        time_ns = self._time(fields)
        if time_ns is None:
            self._drop("without a time that can be read")
            return
        duration = next(((key, value) for key, value in fields if key.role == "duration" and value is not None), None)
        if duration is None:
            duration = self._until_end(time_ns, fields)
        name = _name(fields)
        numbers = [(key, value) for key, value in fields if key.role == "number" and is_number(value)]
        if name is None and duration is None and not numbers:
            self._drop("without a name and without a number")
            return
        lane = self._lane(fields)
        if name is not None or duration is not None:
            self._event(lane, time_ns, duration, name or UNNAMED, fields)
        sample_count = sum([self._sample(lane, time_ns, key, value) for key, value in numbers])
        if name is None and duration is None and not sample_count:
            self._drop("whose numbers are all none, or of counters beyond the limit")
            return
        kind = "samples" if name is None and duration is None else "events"
        self.integrity.count(kind)
        if len(self._events) + len(self._samples) >= _BATCH:
            self.flush()

    def _until_end(self, time_ns: int, fields: list[tuple[Key, Any]]) -> tuple[Key, Any] | None:
        """A duration from the record's time to the end that it states, on the same clock."""
        for key, value in fields:
            if key.role == "end" and is_number(value):
                scale = self._unix[0] if self._unix and not key.suffix else key.scale
                end_ns = nanoseconds(value, scale)
                if end_ns is not None and end_ns >= time_ns:
                    return Key("duration", key.base, 1), end_ns - time_ns
        return None

    def _drop(self, why: str) -> None:
        self.integrity.count("records that are no event")
        self.integrity.drop(f"records {why}")

    def _time(self, fields: list[tuple[Key, Any]]) -> int | None:
        """The record's time in ns, by the clock that the first record has."""
        clocks = [(key, value) for key, value in fields if key.role == "clock"]
        if self._clock is None:
            self._choose_clock(clocks)
        self._others.update(key.base for key, _ in clocks if key.base != self._clock)
        mine = [(key, value) for key, value in clocks if key.base == self._clock and is_number(value)]
        if not mine:
            return None
        key, value = min(mine, key=lambda pair: pair[0].scale)
        return nanoseconds(value, self._unix[0] if self._unix and key.is_plain_timestamp else key.scale)

    def _choose_clock(self, clocks: list[tuple[Key, Any]]) -> None:
        for base in CLOCKS:
            values = {key: value for key, value in clocks if key.base == base and is_number(value)}
            if values:
                self._clock = base
                self._unix = next((unix_unit(value) for key, value in values.items() if key.is_plain_timestamp), None)
                return

    def _lane(self, fields: list[tuple[Key, Any]]) -> Lane:
        values: dict[str, int | str] = {}
        for key, value in fields:
            if key.role == "lane" and value is not None:
                lane_key = lane_value(key.base, value)
                if lane_key is None:
                    self.integrity.remark(f"fields {', '.join(LANES)} that are no index or short text: left out")
                else:
                    values[key.base] = lane_key
        return Lane(values.get("rank"), values.get("gpu", values.get("device")), values.get("thread"))

    def _event(self, lane: Lane, time_ns: int, duration: tuple[Key, Any] | None, name: str, fields: list[tuple[Key, Any]]) -> None:
        dur_ns = 0 if duration is None else nanoseconds(duration[1], duration[0].scale)
        if dur_ns is None:
            self.integrity.repair("durations that are no number or beyond any clock: drawn as an instant of time")
        self._events.append((time_ns, dur_ns or 0, self.builder.names[name], self._track(lane), duration is None or dur_ns is None,
                             self._detail(fields)))

    def _track(self, lane: Lane) -> int:
        if lane not in self._tracks and len(self._tracks) >= MAX_TRACKS:
            return self.builder.further()
        if lane not in self._tracks:
            thread = lane.thread
            self._tracks[lane] = self.builder.track(("events", lane), lambda: Track(
                kind="thread", name="events" if thread is None else f"thread {thread}" if isinstance(thread, int) else thread,
                group=lane.group, device=lane.device))
            if lane.device is not None:
                self.devices.add(lane.device)
        return self._tracks[lane]

    def _detail(self, fields: list[tuple[Key, Any]]) -> int:
        """Texts and truths of a record, to be shown; numbers are counters."""
        shown: dict[str, Any] = {}
        for key, value in fields:
            if isinstance(value, list) and _is_shape(key.base) and len(shown) < _DETAILS:
                shown[key.base] = clean_text(json.dumps(value, ensure_ascii=False, default=str)[:_DETAIL_CHARS])
            elif isinstance(value, (dict, list)):
                self.integrity.remark("fields that hold lists or objects: left out")
            elif len(shown) < _DETAILS and key.role == "number" and isinstance(value, (str, bool)):
                shown[key.base] = value if isinstance(value, bool) else clean_text(value[:_DETAIL_CHARS])
        return self.builder.details[json.dumps(shown, ensure_ascii=False)] if shown else -1

    def _sample(self, lane: Lane, time_ns: int, key: Key, value: Any) -> bool:
        """Keep a number as a sample of its counter; False where it is none."""
        try:
            number = float(value) * key.scale
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.integrity.repair("numbers that are NaN, infinite or beyond a float64: left out")
            return False
        lane = lane._replace(thread=None)
        track = self._counter(lane, key)
        if track is None:
            self.integrity.repair(f"numbers of counters beyond the first {MAX_TRACKS:,}: left out")
            return False
        self._samples.append((track, time_ns, number))
        return True

    def _counter(self, lane: Lane, key: Key) -> int | None:
        if (lane, key.base) not in self._counters:
            if len(self._counters) >= MAX_TRACKS:
                return None
            if key.suffix in DECIMAL_BYTES:
                self._decimal.add(key.suffix)
            self._counters[lane, key.base] = self.builder.track(("counter", lane, key.base), lambda: Track(
                kind="counter", name=key.base, group=lane.group, sort=len(self._counters), device=lane.device, unit=key.unit))
            if lane.device is not None:
                self.devices.add(lane.device)
        return self._counters[lane, key.base]

    def flush(self) -> None:
        """Hand what was gathered to the builder."""
        if self._events:
            start, dur, name, track, instant, detail = (np.array(column) for column in zip(*self._events, strict=True))
            self.builder.add(
                start_ns=start.astype(np.int64), dur_ns=dur.astype(np.int64), name=name.astype(np.int32),
                category=np.full(start.size, int(Category.ANNOTATION), np.uint8), track=track.astype(np.int32),
                instant=instant.astype(np.bool_), detail=detail.astype(np.int32))
        if self._samples:
            of, time, value = (np.array(column) for column in zip(*self._samples, strict=True))
            self.builder.add_samples(of.astype(np.int32), time.astype(np.int64), value.astype(np.float64))
        self._events, self._samples = [], []

    def metadata(self) -> dict[str, Any]:
        """Return the sentence for a file of samples alone: without slices a page has no time to speak of."""
        if self._tracks:
            return {}
        count, plural = len(self._counters), "s" if len(self._counters) > 1 else ""
        return {"headline": f"No events, only samples: {self.integrity.records_kept:,} records of {count:,} counter{plural}."}

    def note_units(self) -> None:
        """Say what the file does not: how its clock and its sizes were understood."""
        notes = self.integrity.notes
        if self._unix:
            notes.append(f"`timestamp` was taken as Unix time in {self._unix[1]}, by the size of the first one.")
        if self._others:
            others = ", ".join(f"`{base}`" for base in sorted(self._others))
            notes.append(f"The time is `{self._clock}`; {others} beside it was left out.")
        if self._decimal:
            sizes = ", ".join(f"_{suffix}" for suffix in sorted(self._decimal))
            notes.append(f"Sizes in {sizes} were taken as powers of 1,000 bytes (_mib: of 1,024).")


def _flatten(fields: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Numbers of an inner object as fields of their own: {"memory": {"allocated_mb": 3}} is "memory allocated_mb"."""
    out: list[tuple[str, Any]] = []
    for key, value in fields:
        inner = list(value.items())[:MAX_INNER] if isinstance(value, dict) else []
        if inner and all(is_number(number) for _, number in inner):
            out += [(f"{key} {name}", number) for name, number in inner]
        else:
            out.append((key, value))
    return out


def _is_shape(base: str) -> bool:
    return base.lower().rpartition("_")[2] in SHAPES


def _name(fields: list[tuple[Key, Any]]) -> str | None:
    for base in NAMES:
        for key, value in fields:
            if key.base == base and key.role == "name" and _is_name(value):
                return clean_text(str(value))
    return None
