"""XSpace protobuf (`.xplane.pb`) piece by piece: planes and lines are found by walking, events are decoded in batches.

Field numbers: tsl/profiler/protobuf/xplane.proto of openxla/xla. Only events, their statistics and the two tables of names
become messages; the compiled programs that lie in `/host:metadata` are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from profiles.ingest.core.protobuf_messages import messages, text
from profiles.ingest.trace import Integrity

_M = messages("ridgepoint.xplane", """
XStat: metadata_id=1 int64, double_value=2 double|uint64_value=3 uint64|int64_value=4 int64|str_value=5 string|bytes_value=6 bytes|\
ref_value=7 uint64
XEvent: metadata_id=1 int64, offset_ps=2 int64|num_occurrences=5 int64, duration_ps=3 int64, stats=4 [XStat]
XLine: id=1 int64, name=2 string, timestamp_ns=3 int64, events=4 [XEvent], duration_ps=9 int64, display_name=11 string
XEventMetadata: id=1 int64, name=2 string, display_name=4 string, stats=5 [XStat]
XStatMetadata: id=1 int64, name=2 string
EventEntry: key=1 int64, value=2 XEventMetadata
StatEntry: key=1 int64, value=2 XStatMetadata
XPlane: id=1 int64, name=2 string, event_metadata=4 [EventEntry], stat_metadata=5 [StatEntry], stats=6 [XStat]
""")
PLANES, ERRORS, WARNINGS, HOSTNAMES = 1, 2, 3, 4
_NAME, _LINES, _EVENTS = 2, 3, 4
BATCH_BYTES = 4 << 20
Span = tuple[int, int]                     # of bytes


class Damage(Exception):
    """The bytes are no protobuf message from `at` on; `field` is the one that begins there and is cut off, if any."""

    def __init__(self, offset: int, what: str, field: int = 0, end: int | None = None) -> None:
        super().__init__(f"{what} at byte {offset}")
        self.at, self.what, self.field, self.where = offset, what, field, offset if end is None else end


class Plane(NamedTuple):
    name: str
    lines: list[Span]
    events: dict[int, Any]                 # metadata id -> XEventMetadata
    stats: dict[int, str]                  # metadata id -> name
    own: list[Any]                         # XStat of the plane itself


def fields(data: Any, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield (field number, begin, end) of the fields of a message.

    Their lengths end before `stop`. Raises Damage.
    """
    offset = start
    while offset < stop:
        key, offset = _varint(data, offset, stop)
        kind = key & 7
        if kind == 2:
            size, offset = _varint(data, offset, stop)
        elif kind == 0:
            _, end = _varint(data, offset, stop)
            size = end - offset
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise Damage(offset, "a field of unknown kind")
        if size > stop - offset:
            beyond = stop == len(data)
            raise Damage(offset, "it ends there" if beyond else "a field that is longer than what holds it", key >> 3,
                         stop if beyond else None)
        yield key >> 3, offset, offset + size
        offset += size


def _varint(data: Any, offset: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while offset < stop:
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
        if shift > 63:
            raise Damage(offset, "a number of more than 64 bits")
    raise Damage(offset, "a number that is cut off")


def plane_of(data: Any, span: Span, integrity: Integrity) -> tuple[Plane, Damage | None]:
    """Return a plane without its events, and the damage that ends it early."""
    lines: list[Span] = []
    plane, damage = Plane("", lines, {}, {}, []), None
    name = ""
    tables: list[tuple[int, int, int]] = []
    try:
        for field, begin, end in fields(data, *span):
            if field == _NAME:
                name = text(bytes(data[begin:min(end, begin + 1000)]))
            elif field == _LINES:
                lines.append((begin, end))
            elif field in (4, 5, 6):
                tables.append((field, begin, end))
    except Damage as error:
        damage = error
        if error.field == _LINES:
            lines.append((error.at, span[1]))
    if lines or name != "/host:metadata":
        for field, begin, end in tables:
            _table(plane, field, bytes(data[begin:end]), integrity)
    return plane._replace(name=name), damage


def _table(plane: Plane, field: int, raw: bytes, integrity: Integrity) -> None:
    try:
        if field == 4:
            event = _M["EventEntry"].FromString(raw)
            plane.events[event.key] = event.value
        elif field == 5:
            stat = _M["StatEntry"].FromString(raw)
            plane.stats[stat.key] = text(stat.value.name[:200])
        else:
            plane.own.append(_M["XStat"].FromString(raw))
    except DecodeError:
        integrity.repair("entries of tables of names that are damaged", 1)


def line_of(data: Any, span: Span) -> tuple[Any, Damage | None]:
    """Return a line's own fields as an XLine without events, and the damage that ends it."""
    own: list[bytes] = []
    damage, offset = None, span[0]
    try:
        for field, _, end in fields(data, *span):
            if field != _EVENTS:
                own.append(bytes(data[offset:end]))
            offset = end
    except Damage as error:
        damage = error
    try:
        return _M["XLine"].FromString(b"".join(own)), damage
    except DecodeError:
        return _M["XLine"](), Damage(span[0], "the head of a line is damaged")


def events_of(data: Any, span: Span, integrity: Integrity) -> Iterator[list[Any]]:
    """Yield XEvents of a line in batches up to where it is damaged.

    Single ones that cannot be read are counted.
    """
    batch: list[Any] = []
    size = 0
    try:
        for field, begin, end in fields(data, *span):
            if field != _EVENTS:
                continue
            try:
                batch.append(_M["XEvent"].FromString(data[begin:end]))
            except DecodeError:
                _count_lost(integrity, "unreadable")
            size += end - begin
            if size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
    except Damage as error:                          # told of by `line_of`
        if error.field == _EVENTS:
            _count_lost(integrity, "cut off by the end of the file")
    if batch:
        yield batch


def _count_lost(integrity: Integrity, reason: str) -> None:
    integrity.records_read += 1
    integrity.count("damaged event")
    integrity.drop(reason)
