"""XPlane protobuf (`.xplane.pb`) of XProf: what JAX and TensorFlow record, before it is made into trace JSON.

Each plane is a GPU or TPU, or the host's threads; each line a stream or a thread. Times are ns of the line plus ps of
the event, exact for what GPUs and hosts count in ns; a TPU's picoseconds are cut to the ns below, both ends alike, so that
what nested still nests.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from profiles.ingest.chrome.kinds import (
    NAMED_CALL,
    NAMED_COLLECTIVE,
    NAMED_MEMCPY,
    NAMED_MEMSET,
    NAMED_PYTHON,
    NAMED_SCOPE,
    Lane,
    lane_of,
    name_code,
    stream_name,
)
from profiles.ingest.chrome.work import DETAIL_BYTES, MAX_DETAILS
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import Table
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.protobuf_messages import text
from profiles.ingest.core.source import Source
from profiles.ingest.trace import Category, Device, Integrity, Trace, TraceError, Track
from profiles.ingest.xplane.wire import (
    ERRORS,
    HOSTNAMES,
    PLANES,
    WARNINGS,
    Damage,
    Plane,
    Span,
    events_of,
    fields,
    line_of,
    plane_of,
)
from profiles.ingest.xplane.xprof import Shape, bytes_of, shape_of

# Statistics of XPlane events: what becomes a column, and what is shown as it is.

_VALUE = "union_1"                   # the values of an XStat exclude one another
_NO_SHAPE = Shape()
_TEXT_CHARS = 2000
_REMEMBERED = 200_000                # sets of statistics that are known by heart
# of one event: columns and flows, no details. _p, _pt and _c, _ct: what this event produced and consumed (id, type)
_OWN = frozenset({"correlation_id", "device_id", "context_id", "_p", "_pt", "_c", "_ct", "_a", "_r", "flow"})


class EventFacts(NamedTuple):
    """Of one event, by the set of its statistics that it shares with others."""

    detail: int = -1
    shape: Shape = _NO_SHAPE
    kind: str = ""                   # "kernel", "memcpy", "memset", "step" or "" where no statistic tells
    bytes: int = MISSING


class Stats:
    """Reads the statistics of one plane's events; equal sets are worked out once."""

    def __init__(self, builder: TraceBuilder, plane: Plane) -> None:
        self._builder, self._plane = builder, plane
        self._own = {number: name for number, name in plane.stats.items() if name in _OWN}
        self._known: dict[Any, EventFacts] = {}
        self.cut = self.left_out = 0

    def of(self, event: Any) -> tuple[EventFacts, dict[str, int]]:
        """Return what an event says, and the numbers that are its own."""
        shared: list[Any] = [event.metadata_id]
        own: dict[str, int] = {}
        for stat in event.stats:
            which = stat.WhichOneof(_VALUE)
            if which is None:
                continue
            value = getattr(stat, which)
            name = self._own.get(stat.metadata_id)
            if name is not None and isinstance(value, int):
                own[name] = value
            else:
                shared.append((stat.metadata_id, which, value))
        key = tuple(shared)
        facts = self._known.get(key)
        if facts is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            facts = self._known[key] = self._read_facts(event.metadata_id, shared[1:])
        return facts, own

    def _read_facts(self, metadata_id: int, stats: list[tuple[int, str, Any]]) -> EventFacts:
        named: dict[str, Any] = {}
        metadata = self._plane.events.get(metadata_id)
        if metadata is not None:
            if metadata.display_name and metadata.name != metadata.display_name:
                named["long_name"] = text(metadata.name[:_TEXT_CHARS])
            for stat in metadata.stats:
                which = stat.WhichOneof(_VALUE)
                if which is not None:
                    named[self._name(stat.metadata_id)] = self.plain(which, getattr(stat, which))
        for number, which, value in stats:
            named[self._name(number)] = self.plain(which, value)
        kind = next((name for name in ("kernel", "memcpy", "memset") if f"{name}_details" in named),
                    "step" if "step_num" in named else "")
        detail = -1
        if named:
            shown = msgspec.json.encode(named).decode()
            if len(shown) > DETAIL_BYTES:
                self.cut += 1
                shown = msgspec.json.encode({key: value for key, value in named.items() if len(str(value)) < 200}).decode()
            details = self._builder.details
            if shown in details or len(details.values_in_order) < MAX_DETAILS:
                detail = details[shown]
            else:
                self.left_out += 1
        return EventFacts(detail, shape_of(str(named["kernel_details"])) if kind == "kernel" else _NO_SHAPE, kind,
                    bytes_of(str(named[f"{kind}_details"])) if kind in ("memcpy", "memset") else MISSING)

    def _name(self, number: int) -> str:
        return self._plane.stats.get(number) or f"statistic {number}"

    def plain(self, which: str, value: Any) -> Any:
        """Return a value as JSON can hold it."""
        if which == "ref_value":
            return self._plane.stats.get(value, f"text {value}")
        if which == "bytes_value":
            return f"{len(value)} bytes"
        if which == "str_value":
            return text(value[:_TEXT_CHARS])
        return value if isinstance(value, int) or abs(value) < 1e300 else str(value)

    def own(self) -> dict[str, Any]:
        """The statistics of the plane itself by name."""
        return {self._name(stat.metadata_id): self.plain(which, getattr(stat, which))
                for stat in self._plane.own if (which := stat.WhichOneof(_VALUE)) is not None}


_PLANE_NAMES = (b"/host:", b"/device:", b"#Chip", b"Task Environment", b"Host CPUs")
_MAX_PLANES = 4096
_EPOCH_NS = 10**17
_BY_STATISTIC = {"kernel": Category.COMPUTE, "memcpy": Category.MEMCPY, "memset": Category.MEMSET}
_ON_GPU = {NAMED_MEMCPY: Category.MEMCPY, NAMED_MEMSET: Category.MEMSET, NAMED_COLLECTIVE: Category.COMMUNICATION,
           NAMED_SCOPE: Category.GPU_ANNOTATION}
_ON_HOST = {NAMED_CALL: Category.RUNTIME, NAMED_PYTHON: Category.PYTHON}


def sniff(head: bytes) -> bool:
    """Tell whether the first plane has one of XProf's names.

    Perfetto's traces begin with the same byte.
    """
    if head[:1] != b"\n":
        return False
    try:
        for number, (_, begin, end) in enumerate(fields(head, 1 + _width(head), len(head))):
            if number > 4:
                return False
            if head[begin:end].startswith(_PLANE_NAMES) and end - begin < 200:
                return True
    except Damage:
        return False
    return False


def _width(head: bytes) -> int:
    """Bytes of the length that follows the first key."""
    return next((number + 1 for number, byte in enumerate(head[1:11]) if byte < 0x80), 10)


def read(source: Source) -> Trace:
    """Raises TraceError where no event can be read."""
    with source.as_file() as path:
        return _Space(source, path).read()


class _Space:
    def __init__(self, source: Source, path: Path) -> None:
        self._source, self._path = source, path
        self._integrity = Integrity()
        self._builder = TraceBuilder(source, "xplane", self._integrity)
        self._named = Table(self._builder.names, name_code, np.uint8)
        self._devices: dict[int, Device] = {}
        self._metadata: dict[str, Any] = {}
        self._flows: dict[str, list[Any]] = {"key": [], "track": [], "time": [], "is_end": []}
        self._base_ns: int | None = None
        self._finer = self._unnamed = self._cut = self._left_out = 0

    def read(self) -> Trace:
        with (self._path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages,
              memoryview(pages) as data):
            self._space(data)
        integrity = self._integrity
        if not integrity.records_read:
            raise TraceError(integrity.truncated_at or "planes", "no plane of the file holds an event" + (
                ", and the file is cut off or damaged there" if integrity.truncated_at else ""),
                             "Check that the profiled steps ran between start and stop, and copy the file again.")
        integrity.repair("event whose name is not in the file", self._unnamed)
        integrity.repair("statistics longer than 16 KiB were cut", self._cut)
        integrity.repair("statistics left out: the file has too many distinct ones", self._left_out)
        integrity.remark("times finer than 1 ns: cut to the nanosecond below", self._finer)
        self._add_flows()
        trace = self._builder.finish(devices=[self._devices[index] for index in sorted(self._devices)], base_ns=self._base_ns,
                                     metadata=self._metadata)
        integrity.settle()
        return trace

    def _space(self, data: Any) -> None:
        texts: dict[int, list[str]] = {ERRORS: [], WARNINGS: [], HOSTNAMES: []}
        planes: list[Span] = []
        try:
            for field, begin, end in fields(data, 0, len(data)):
                if field == PLANES:
                    planes.append((begin, end))
                elif field in texts and len(texts[field]) < 8:
                    texts[field].append(text(bytes(data[begin:min(end, begin + 400)])))
                if len(planes) > _MAX_PLANES:
                    raise TraceError(f"byte {begin}", f"more than {_MAX_PLANES:,} planes", "No profiler writes such a file.")
        except Damage as error:
            if error.field == PLANES:
                planes.append((error.at, len(data)))
            self._note_damage(error)
        self._integrity.notes += [f"XProf reported: {message}" for field in (ERRORS, WARNINGS) for message in texts[field]]
        if texts[HOSTNAMES]:
            self._metadata["hostnames"] = ", ".join(texts[HOSTNAMES])
        for number, span in enumerate(planes):
            plane, damage = plane_of(data, span, self._integrity)
            if damage:
                self._note_damage(damage)
            self._plane(data, number, plane)

    def _note_damage(self, error: Damage) -> None:
        self._integrity.truncated_at = self._integrity.truncated_at or f"byte {error.where}"
        note = f"The file is cut off or damaged at byte {error.where:,}: {error.what}."
        if len(self._integrity.notes) < 20 and note not in self._integrity.notes:
            self._integrity.notes.append(note)

    def _plane(self, data: Any, number: int, plane: Plane) -> None:
        stats = Stats(self._builder, plane)
        own = stats.own()
        if "profile_start_time" in own and isinstance(own["profile_start_time"], int):
            self._base_ns = own["profile_start_time"]
        lane = lane_of(plane.name, "", plane.name, "")
        if lane.gpu and plane.lines and 0 <= lane.device < 2**31:
            self._devices.setdefault(lane.device, _device(lane.device, plane.name, own))
        for place, span in enumerate(plane.lines):
            line, damage = line_of(data, span)
            if damage:
                self._note_damage(damage)
            self._line(data, (number, place), plane, stats, line, span)
        self._cut += stats.cut
        self._left_out += stats.left_out

    def _line(self, data: Any, key: tuple[int, int], plane: Plane, stats: Stats, line: Any, span: Span) -> None:
        name = text(line.display_name or line.name)[:200]
        lane = lane_of(plane.name, line.id, plane.name, name)
        track, order = _track(plane.name, name, line.id, lane, key)
        number: int | None = None
        base = line.timestamp_ns if abs(line.timestamp_ns) < 2**62 else 0
        if base > _EPOCH_NS:
            self._base_ns = 0
        for events in events_of(data, span, self._integrity):
            if number is None:
                number = self._builder.track(key, lambda: track, order)
            self._events(events, plane, stats, lane, number, base)
            self._source.progress("reading", self._integrity.records_read)

    def _events(self, events: list[Any], plane: Plane, stats: Stats, lane: Lane, track: int, base: int) -> None:
        kind = f"{plane.name[:60]} event"
        self._integrity.records_read += len(events)
        self._integrity.count(kind, len(events))
        timed = [event for event in events if event.WhichOneof("union_1") != "num_occurrences"]
        self._integrity.drop("sum of several occurrences, without times", len(events) - len(timed))
        start_ps = np.array([_bounded_or_zero(event.offset_ps) for event in timed], np.int64)
        end_ps = start_ps + np.array([_bounded_or_zero(event.duration_ps) for event in timed], np.int64)
        self._finer += int(np.count_nonzero((start_ps % 1000 != 0) | (end_ps % 1000 != 0)))
        start, dur = base + start_ps // 1000, end_ps // 1000 - start_ps // 1000
        facts = [stats.of(event) for event in timed]
        name = self._builder.names.column([self._name(plane, event.metadata_id) for event in timed])
        category = self._categories(lane, name, [fact for fact, _ in facts])
        n = len(timed)
        gpu = lane.gpu
        self._builder.add(
            start_ns=start, dur_ns=dur, name=name, category=category, track=np.full(n, track, np.int32),
            instant=(dur == 0) & (not gpu), correlation=_numbers([own.get("correlation_id") for _, own in facts]),
            device=np.full(n, lane.device if gpu else MISSING), stream=np.full(n, lane.stream if gpu else MISSING),
            grid=np.array([fact.shape.grid for fact, _ in facts], np.int64).reshape(-1, 3),
            block=np.array([fact.shape.block for fact, _ in facts], np.int64).reshape(-1, 3),
            registers_per_thread=_numbers([fact.shape.registers_per_thread for fact, _ in facts]),
            smem_bytes=_numbers([fact.shape.smem_bytes for fact, _ in facts]),
            occupancy_pct=np.array([fact.shape.occupancy_pct for fact, _ in facts], np.float64),
            bytes=_numbers([fact.bytes if gpu else None for fact, _ in facts]),
            detail=np.array([fact.detail for fact, _ in facts], np.int32))
        self._add_flow_ends(facts, track, start)

    def _name(self, plane: Plane, metadata_id: int) -> str:
        metadata = plane.events.get(metadata_id)
        name = text(metadata.display_name or metadata.name) if metadata is not None else ""
        if not name:
            self._unnamed += 1
        return name or f"event {metadata_id}"

    def _categories(self, lane: Lane, name: Any, said: list[EventFacts]) -> Any:
        named = self._named(name).tolist()
        if not lane.gpu:
            return np.array([Category.ANNOTATION if fact.kind == "step" else _ON_HOST.get(code, Category.CPU_OP)
                             for fact, code in zip(said, named, strict=True)], np.uint8)
        if lane.derived:
            return np.full(len(said), Category.GPU_ANNOTATION, np.uint8)
        return np.array([_of_gpu(fact.kind, code) for fact, code in zip(said, named, strict=True)], np.uint8)

    def _add_flow_ends(self, facts: list[tuple[EventFacts, dict[str, int]]], track: int, start: Any) -> None:
        for (_, own), time in zip(facts, start.tolist(), strict=True):
            for identity, kind, is_end in (("_p", "_pt", False), ("_c", "_ct", True)):
                if identity in own:
                    self._flows["key"].append(hash((own.get(kind), own[identity])))
                    self._flows["track"].append(track)
                    self._flows["time"].append(time)
                    self._flows["is_end"].append(is_end)

    def _add_flows(self) -> None:
        if self._flows["key"]:
            _, number = np.unique(np.array(self._flows["key"], np.int64), return_inverse=True)
            self._builder.add_flows(number.astype(np.int64) + 1, "flow", np.array(self._flows["track"], np.int32),
                                    np.array(self._flows["time"], np.int64), np.array(self._flows["is_end"], np.bool_))


def _of_gpu(kind: str, code: int) -> Category:
    category = _BY_STATISTIC.get(kind)
    if category == Category.COMPUTE:
        return Category.COMMUNICATION if code == NAMED_COLLECTIVE else Category.COMPUTE
    return category if category is not None else _ON_GPU.get(code, Category.COMPUTE)


def _track(plane: str, name: str, line_id: int, lane: Lane, key: tuple[int, int]) -> tuple[Track, tuple[Any, ...]]:
    if lane.gpu and 0 <= lane.device < 2**31:
        stream = None if lane.stream == MISSING else lane.stream
        return (Track(kind="stream", name=stream_name(name) or f"line {line_id}", group=f"GPU {lane.device}", sort=key[1],
                      tid=str(line_id), device=lane.device, stream=stream), ((1, lane.device), "", lane.derived, stream or 0, key))
    track = Track(kind="thread", name=name or f"thread {line_id}", group=plane[:200], sort=key[1], tid=str(line_id))
    return track, ((0, key[0]), plane, key)


def _device(index: int, plane: str, own: dict[str, Any]) -> Device:
    def number(key: str) -> int | None:
        value = own.get(key)
        return value if isinstance(value, int) and 0 < value < 2**62 else None
    vendor = str(own.get("device_type_string") or own.get("device_vendor") or ("TPU" if "TPU" in plane else ""))[:100]
    major, minor = own.get("compute_cap_major"), own.get("compute_cap_minor")
    return Device(index, vendor, f"{major}.{minor or 0}" if isinstance(major, int) else None, number("core_count"),
                  number("memory_size"))


def _bounded_or_zero(value: int) -> int:
    return value if abs(value) < 2**61 else 0


def _numbers(values: list[int | None]) -> Any:
    return np.array([MISSING if value is None else value - 2**64 if value >= 2**63 else value for value in values], np.int64)
