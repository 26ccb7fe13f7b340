"""Chrome trace JSON of any program: an array of trace events, or an object that holds one as `traceEvents`."""

from __future__ import annotations

import re
from typing import Any

from profiles.ingest.chrome.flows import bind
from profiles.ingest.chrome.gather import Gather
from profiles.ingest.chrome.ranks import split_ranks
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.pieces import Pieces
from profiles.ingest.core.source import Source
from profiles.ingest.trace import Device, Integrity, Trace, TraceError

_START = re.compile(rb'\s*(?:\{|\[\s*(?:\{|\]|$))')
_RECORD = re.compile(rb'"(?:traceEvents|ph)"\s*:')
_EXPORTED = re.compile(rb'"exportedBy"\s*:\s*\{\s*"program"\s*:\s*"Ridgepoint"')      # profiles.downloads.trace
_KEPT_KEYS = ("displayTimeUnit", "otherData", "metadata", "systemTraceEvents", "controllerTraceDataKey", "viztracer_metadata")
_HINT = "Check that the program recorded something, and export the trace again."


def sniff(head: bytes) -> bool:
    """Tell whether content is JSON with trace events, whoever wrote them."""
    text = head.removeprefix(b"\xef\xbb\xbf")
    return bool(_START.match(text)) and bool(_RECORD.search(text))


def is_of_tool(head: bytes) -> bool:
    """Tell whether content is trace events in a dialect that a tool's own reader may know by names.

    What Ridgepoint exported is in PyTorch's, whatever lanes and records it names.
    """
    return sniff(head) and not _EXPORTED.search(head)


def read(source: Source) -> Trace:
    """Raises TraceError where no record can be read."""
    integrity = Integrity()
    pieces = Pieces(source, integrity)
    builder = TraceBuilder(source, "chrome", integrity)
    return assemble(Gather(pieces, builder), source, "chrome")


def assemble(gather: Gather, source: Source, what: str) -> Trace:
    """Read all pieces and settle them.

    Shared with the exporters that write Chrome traces of their own kind.
    """
    bare = source.peek().removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["
    gather.all()
    if bare and not source.damage:
        _open_array(gather.integrity)
    integrity = gather.integrity
    keys = {**gather.pieces.head, **gather.pieces.tail}
    gather.finish(keys.get("stackFrames"), keys.get("samples"))
    if not gather.builder.rows and integrity.records_read <= sum(integrity.not_kept.values()):
        raise TraceError(f"byte {source.position}", why_nothing(integrity), _HINT)
    devices = gather.lanes.finish()
    trace = split_ranks(gather.builder.finish(devices=[Device(index, "") for index in sorted(devices)],
                                              metadata={key: _shorten(keys[key]) for key in _KEPT_KEYS if key in keys}),
                        gather.builder.call_ids, gather.lanes.names.process)
    bind(trace)
    integrity.settle()
    return trace


def _open_array(integrity: Integrity) -> None:
    """The format lets a bare array end without its bracket: where no record was cut, nothing is lost."""
    if integrity.truncated_at and "cut off by the end of the file" not in integrity.not_kept:
        integrity.truncated_at = None
        integrity.notes = [note for note in integrity.notes if not note.startswith("The array of records is not closed")]
        integrity.notes.append("The array of records has no closing bracket, which the format allows.")


def why_nothing(integrity: Integrity) -> str:
    if not integrity.records_read:
        return "the array of trace events holds no records"
    return f"none of the {integrity.records_read:,} records could be read ({', '.join(integrity.not_kept)})"


def _shorten(value: Any) -> Any:
    """What the file says of itself, without what would fill a page."""
    if isinstance(value, dict):
        return {str(key)[:100]: _shorten(inner) for key, inner in list(value.items())[:50] if not isinstance(inner, (dict, list))}
    return value if isinstance(value, (int, float, bool)) else str(value)[:400]
