"""Decoding on all cores: pieces of a large trace go to processes of their own (`main`), their columns come back.

Answers are taken in the order of the file, so that the trace is the same as without. The first piece that a process could
not decode ends it: that piece and what follows is read here, with all its mending.
"""

from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, Any, cast

import msgspec
import numpy as np

from profiles.ingest.arrays import Array
from profiles.ingest.chrome.batches import MAX_METADATA, SharedIds, add_piece
from profiles.ingest.core.columns import FURTHER_NAMES, DetailIds, Ids, NameIds
from profiles.ingest.core.document.boundaries import decode_piece
from profiles.ingest.core.events import EXACT_TIMES, Event, MetaArgs
from profiles.ingest.core.pieces import Pieces
from profiles.ingest.trace import Integrity, Track

# A process that decodes pieces of a Kineto trace for another: text in, columns out, over its standard input and output.
#
# Ids of names, lanes, details and tracks are this process's own; each answer carries what is new among them, so that the
# other side can follow. Nothing but msgpack is exchanged: numbers, texts and columns as bytes. A piece that does not decode
# as it stands is answered with nothing: damage is for the reader that sees the whole file.

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


def unpack(packed: Any) -> Array:
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


LEAST_BYTES = 32 << 20              # of an upload: below it the processes cost more than they win
_PACKED_SHARE = 8                   # a gzipped upload of an eighth is as large
_MAIN = "from profiles.ingest.chrome.parallel import main; main()"
_WAITING = 3                        # pieces per process that are under way


def is_worthwhile(pieces: Pieces) -> bool:
    size = pieces.source.total_bytes * (_PACKED_SHARE if pieces.source.layers else 1)
    return size >= LEAST_BYTES and (os.cpu_count() or 1) > 1


def gather(pieces: Pieces, integrity: Integrity, out: SharedIds) -> None:
    """Let other processes decode as much of the file as they can.

    `pieces` stands behind it afterwards.
    """
    with _processes(min(os.cpu_count() or 1, 4)) as workers:
        waiting: deque[tuple[bytes, _Worker, Future[bytes]]] = deque()
        turn = 0
        text: bytes | None = b""
        while text is not None or waiting:
            while text is not None and len(waiting) < _WAITING * len(workers):
                text = pieces.cut()
                if text:
                    worker = workers[turn % len(workers)]
                    turn += 1
                    waiting.append((text, worker, worker.ask(text)))
            if waiting:
                _, worker, future = waiting[0]
                answer = future.result()
                if not answer:
                    pieces.give_back([piece for piece, _, _ in waiting])
                    return
                waiting.popleft()
                pieces.records += worker.apply(msgspec.msgpack.decode(answer), out, integrity)
                pieces.tell()


class _Worker:
    """One process, and what its numbers mean here."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", _MAIN], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="decoder")
        self._maps = {name: np.empty(0, np.int32) for name in ("name", "detail", "track")}

    def ask(self, text: bytes) -> Future[bytes]:
        return self._pool.submit(self._answer, text)

    def _answer(self, text: bytes) -> bytes:
        try:
            send(cast(IO[bytes], self._process.stdin), text)
            return receive(cast(IO[bytes], self._process.stdout)) or b""
        except OSError:                     # it died: its pieces are read here
            return b""

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._process.kill()
        self._process.communicate()
        self._pool.shutdown()

    def apply(self, told: dict[str, Any], out: SharedIds, integrity: Integrity) -> int:
        """Take one answer over; returns its records."""
        builder = out.builder
        for category in told["categories"]:
            out.categories[category]
        for lane in told["lanes"]:
            out.lanes[tuple(lane)]
        builder.names.clipped += told["names_clipped"]
        beyond = builder.names.beyond
        self._extend("name", [builder.names[text] for text in told["names"]])
        builder.names.beyond = beyond           # rows are counted, not texts
        self._extend("detail", [builder.details[text] for text in told["details"]])
        self._extend("track", [out.number(kind, key) for kind, key in told["tracks"]])
        for what, columns in told["told"]:
            self._add(what, columns, out)
        room = MAX_METADATA - len(out.metadata)
        out.metadata += [(name, pid, tid, MetaArgs(*args)) for name, pid, tid, args in told["metadata"][:room]]
        integrity.absorb(told["integrity"])
        return int(told["records"])

    def _extend(self, name: str, numbers: list[int]) -> None:
        if numbers:
            self._maps[name] = np.concatenate((self._maps[name], np.array(numbers, np.int32)))

    def _add(self, what: str, packed: dict[str, Any], out: SharedIds) -> None:
        columns = {name: unpack(values) for name, values in packed.items() if values is not None and name != "kinds"}
        columns["track"] = self._maps["track"][columns["track"]]
        if what == "samples":
            out.builder.add_samples(columns["track"], columns["time_ns"], columns["value"])
        elif what == "flows":
            kinds = np.array(packed["kinds"], object)[columns.pop("codes")].tolist()
            out.builder.add_flows(kind=kinds, **columns)
        else:
            columns["name"] = self._maps["name"][columns["name"]]
            detail = columns["detail"]
            columns["detail"] = np.where(detail >= 0, self._maps["detail"][detail], -1) if self._maps["detail"].size else detail
            further = out.builder.names.get(FURTHER_NAMES)
            if further is not None:
                out.builder.names.beyond += int(np.count_nonzero(columns["name"] == further))
            out.builder.add(**columns)


@contextmanager
def _processes(count: int) -> Iterator[list[_Worker]]:
    workers = [_Worker() for _ in range(count)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.close()
