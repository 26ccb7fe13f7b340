"""Statistics of XPlane events: what becomes a column, and what is shown as it is."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from profiles.ingest.chrome.work import DETAIL_BYTES, MAX_DETAILS
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.protobuf_messages import text
from profiles.ingest.xplane.wire import Plane
from profiles.ingest.xplane.xprof_details import Shape, bytes_of, shape_of

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
        kind = next((each for each in ("kernel", "memcpy", "memset") if f"{each}_details" in named),
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
