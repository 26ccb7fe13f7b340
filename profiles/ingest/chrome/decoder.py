"""A process that decodes pieces of a Kineto trace for another: text in, columns out, over its standard input and output.

Ids of names, lanes, details and tracks are this process's own; each answer carries what is new among them, so that the
other side can follow. Nothing but msgpack is exchanged: numbers, texts and columns as bytes. A piece that does not decode
as it stands is answered with nothing: damage is for the reader that sees the whole file.
"""

from __future__ import annotations

import gc
import struct
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import IO, Any

import msgspec
import numpy as np
import numpy.typing as npt

from profiles.ingest.chrome.batches import SharedIds, add_piece
from profiles.ingest.core.columns import DetailIds, Ids, NameIds
from profiles.ingest.core.document.attempts import decode_piece
from profiles.ingest.core.events import EXACT_TIMES, Event
from profiles.ingest.trace import Integrity, Track

_LENGTH = struct.Struct("<Q")
_TEXTS = ("names", "details", "lanes", "categories")


def send(stream: IO[bytes], data: bytes) -> None:
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """The next message, None at the end."""
    head = stream.read(_LENGTH.size)
    return stream.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else None


class Recorder:
    """Stands in for a `TraceBuilder`: keeps what it is told until `take`."""

    shared: int | None = None

    def __init__(self) -> None:
        self.names, self.details = NameIds(), DetailIds()
        self.rows = 0
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.tracks: list[tuple[str, Any]] = []

    def track(self, key: Hashable, make: Callable[[], Track], order: Any = None) -> int:
        return self._new("counter" if isinstance(key, tuple) and key[0] == "counter" else "lane", key)

    def stand_in(self, lane: int | None = None) -> int:
        return self._new("end", lane)

    def further(self) -> int:
        if self.shared is None:
            self.shared = self._new("further", None)
        return self.shared

    def _new(self, kind: str, key: Any) -> int:
        self.tracks.append((kind, key))
        return len(self.tracks) - 1

    def add(self, **columns: Any) -> None:
        self.told.append(("add", columns))

    def add_samples(self, track: Any, time_ns: Any, value: Any) -> None:
        self.told.append(("samples", {"track": track, "time_ns": time_ns, "value": value}))

    def add_flows(self, flow: Any, kind: Sequence[str] | str, track: Any, time_ns: Any, is_end: Any, launch: Any = None) -> None:
        kinds = Ids()
        codes = kinds.column([kind] * time_ns.size if isinstance(kind, str) else kind)
        self.told.append(("flows", {"flow": flow, "track": track, "time_ns": time_ns, "is_end": is_end, "launch": launch,
                                    "codes": codes, "kinds": [str(value) for value in kinds.values_in_order]}))


class _Piece:
    """What a reader may ask of the text that a piece was decoded from."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def exact_times(self, events: list[Event]) -> list[Any]:
        return [record.ts for record in EXACT_TIMES.decode(self._text)]


class _Decoder:
    def __init__(self) -> None:
        self._recorder = Recorder()
        self._out = SharedIds(self._recorder)  # type: ignore[arg-type]  # the part of a builder that pieces use
        self._sent = dict.fromkeys((*_TEXTS, "tracks"), 0)

    def answer(self, text: bytes) -> bytes:
        outcome = decode_piece(text)
        if outcome is None:
            return b""
        integrity = Integrity()
        self._recorder.told = []
        add_piece(self._out, outcome.events, _Piece(outcome.text), integrity)
        self._out.arguments.report_and_forget(integrity)
        ids: dict[str, Ids] = {"names": self._recorder.names, "details": self._recorder.details, "lanes": self._out.lanes,
                               "categories": self._out.categories}
        new: dict[str, list[Any]] = {name: self._since(name, values.values_in_order) for name, values in ids.items()}
        new["tracks"] = [[kind, self._key(kind, key)] for kind, key in self._since("tracks", self._recorder.tracks)]
        meta, self._out.metadata = self._out.metadata, []
        return msgspec.msgpack.encode({
            "records": len(outcome.events), "integrity": integrity.as_json(), **new,
            "names_clipped": self._take_clipped(), "metadata": [[name, pid, tid, [args.name, args.labels, args.sort_index]]
                                                         for name, pid, tid, args in meta],
            "told": [[what, {name: _pack(values) for name, values in columns.items()}] for what, columns in self._recorder.told]})

    def _since(self, name: str, values: list[Any]) -> list[Any]:
        first, self._sent[name] = self._sent[name], len(values)
        return values[first:]

    def _take_clipped(self) -> int:
        clipped, self._recorder.names.clipped = self._recorder.names.clipped, 0
        return clipped

    def _key(self, kind: str, key: Any) -> Any:
        if kind == "lane":
            return [*self._out.lanes.values_in_order[key[0]], key[1]]
        return list(self._out.lanes.values_in_order[key]) if kind == "end" else list(key[1]) if kind == "counter" else None


def _pack(values: Any) -> Any:
    """A column as its type, width and bytes."""
    if not isinstance(values, np.ndarray):
        return values
    return [values.dtype.str, values.shape[1] if values.ndim == 2 else 0, np.ascontiguousarray(values).tobytes()]


def unpack(packed: Any) -> npt.NDArray[Any]:
    kind, width, data = packed
    values = np.frombuffer(data, kind)
    return values.reshape(-1, width) if width else values


def main() -> None:
    gc.disable()
    decoder = _Decoder()
    while (text := receive(sys.stdin.buffer)) is not None:
        try:
            data = decoder.answer(text)
        except (ValueError, OverflowError, TypeError, msgspec.MsgspecError):
            data = b""                      # a value that no message holds
        send(sys.stdout.buffer, data)

