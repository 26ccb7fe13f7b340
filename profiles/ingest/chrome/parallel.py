"""Decoding on all cores: pieces of a large trace go to processes of `profiles.ingest.chrome.decoder`, their columns come back.

Answers are taken in the order of the file, so that the trace is the same as without. The first piece that a process could
not decode ends it: that piece and what follows is read here, with all its mending.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, Any, cast

import msgspec
import numpy as np

from profiles.ingest.chrome.batches import MAX_METADATA, SharedIds
from profiles.ingest.chrome.decoder import receive, send, unpack
from profiles.ingest.core.columns import FURTHER_NAMES
from profiles.ingest.core.events import MetaArgs
from profiles.ingest.core.pieces import Pieces
from profiles.ingest.trace import Integrity

LEAST_BYTES = 32 << 20              # of an upload: below it the processes cost more than they win
_PACKED_SHARE = 8                   # a gzipped upload of an eighth is as large
_MAIN = "from profiles.ingest.chrome.decoder import main; main()"
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
                    pieces.give_back([each for each, _, _ in waiting])
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
