"""Triton Proton's `chrome_trace` output (data="trace"): kernels with the scopes that launched them → `Trace`.

third_party/proton/csrc/lib/Data/TraceData.cpp of triton-lang/triton: every record is a kernel {cat "kernel", name, tid = stream,
ts, dur in µs, args {call_stack: [ROOT, scopes…, kernel]}}, without a pid and in order of scopes, not of time. The file does not
say which GPU. Scopes are drawn over the kernels launched in them.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from profiles.ingest.arrays import Int32, Ints, stable_order
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import decode_args, nanoseconds
from profiles.ingest.core.events import MISSING, Event
from profiles.ingest.core.pieces import Pieces
from profiles.ingest.core.source import Source
from profiles.ingest.naming.names import is_collective
from profiles.ingest.trace import Category, Device, Integrity, Trace, TraceError, Track

FORMAT = "proton-trace"
MAX_DEPTH = 64                           # scopes that are drawn
_RECORD = re.compile(rb'"call_stack"\s*:\s*\[\s*"ROOT"')
_OTHERS = re.compile(rb'"schemaVersion"|"deviceProperties"|"baseTimeNanoseconds"|"ph"\s*:\s*"[^X]"')


class Args(msgspec.Struct, gc=False):
    call_stack: Any = None


def sniff(head: bytes) -> bool:
    return b'"traceEvents"' in head and bool(_RECORD.search(head)) and not _OTHERS.search(head)


def read(source: Source) -> Trace:
    """Raises TraceError where no kernel can be read."""
    integrity = Integrity()
    pieces = Pieces(source, integrity)
    reader = _Reader(TraceBuilder(source, FORMAT, integrity), pieces, integrity)
    for records in pieces:
        if records:
            reader.add(records)
            source.progress("reading", integrity.records_read)
    if not reader.starts:
        raise TraceError(f"byte {source.position}", "none of its records is a kernel",
                         "Run the kernels between proton.start and finalize.")
    reader.scopes()
    integrity.settle()
    return reader.builder.finish(devices=[Device(0, "")])


class _Reader:
    def __init__(self, builder: TraceBuilder, pieces: Pieces, integrity: Integrity) -> None:
        self.builder, self.pieces, self.integrity = builder, pieces, integrity
        self.starts: list[Ints] = []
        self._ends: list[Ints] = []
        self._paths: list[Int32] = []
        self._numbers: dict[tuple[str, ...], int] = {}              # scopes of a kernel, outermost first -> number

    def add(self, records: list[Event]) -> None:
        """Take one piece of records, in any order of time."""
        self.integrity.records_read += len(records)
        chosen = [event for event in records if event.ph == "X"]
        self.integrity.drop("a record that is no kernel (ph other than X)", len(records) - len(chosen))
        start, bad = nanoseconds([event.ts for event in chosen], lambda: self.pieces.exact_times(chosen))
        dur, bad_dur = nanoseconds([event.dur for event in chosen], lambda: [event.dur for event in chosen])
        keep = ~(bad | bad_dur)
        self.integrity.drop("a kernel without a start or a duration", int(np.count_nonzero(~keep)))
        self.integrity.count("kernel", len(chosen))
        chosen = [event for event, good in zip(chosen, keep.tolist(), strict=True) if good]
        start, dur = start[keep], np.maximum(dur[keep], 0)
        if not chosen:
            return
        args, unread = decode_args(Args, [event.args for event in chosen])
        self.integrity.repair("arguments that could not be understood were left out", unread)
        names = [str(event.name) for event in chosen]
        tids = [event.tid if type(event.tid) is int and abs(event.tid) < 2**62 else MISSING for event in chosen]
        stream = np.array(tids, np.int64)
        paths = [_scopes(arg.call_stack) for arg in args]
        category = [int(Category.COMMUNICATION if is_collective(name) else Category.COMPUTE) for name in names]
        self.builder.add(
            start_ns=start, dur_ns=dur, name=self.builder.names.column(names), category=np.array(category, np.uint8),
            track=np.array([self._stream(value) for value in stream.tolist()], np.int32), stream=stream,
            device=np.zeros(len(chosen), np.int64), detail=np.array([self._detail(path) for path in paths], np.int32))
        self.starts.append(start)
        self._ends.append(start + dur)
        self._paths.append(np.array([self._numbers.setdefault(path, len(self._numbers)) for path in paths], np.int32))

    def _stream(self, number: int) -> int:
        is_set = number != MISSING
        return self.builder.track(("stream", number), lambda: Track(
            kind="stream", name=f"stream {number}" if is_set else "stream", group="GPU", sort=max(-1, min(number, 2**31)), device=0,
            stream=number if is_set else None))

    def _detail(self, path: tuple[str, ...]) -> int:
        return self.builder.details[msgspec.json.encode({"scopes": path}).decode()] if path else -1

    def scopes(self) -> None:
        """Add a slice for each run of kernels within one scope, nested like the scopes."""
        start, end, path = np.concatenate(self.starts), np.concatenate(self._ends), np.concatenate(self._paths)
        order = stable_order(start)
        start, end, path = start[order], end[order], path[order]
        words = list(self._numbers)
        track = self.builder.track("scopes", lambda: Track(kind="stream", name="scopes", group="GPU", sort=-2, device=0))
        for depth in range(min(MAX_DEPTH, max(map(len, words), default=0))):
            first: dict[tuple[str, ...], int] = {}
            of_path = [first.setdefault(word[:depth + 1], len(first)) if len(word) > depth else -1 for word in words]
            scope = np.array(of_path, np.int64)[path]
            begins = np.flatnonzero(np.diff(scope, prepend=-2))
            last = np.maximum.reduceat(end, begins)
            runs = np.flatnonzero(scope[begins] >= 0)
            names = [key[-1] for key in first]
            self.builder.add(
                start_ns=start[begins[runs]], dur_ns=last[runs] - start[begins[runs]],
                name=self.builder.names.column([names[number] for number in scope[begins[runs]].tolist()]),
                category=np.full(runs.size, int(Category.GPU_ANNOTATION), np.uint8), track=np.full(runs.size, track, np.int32),
                device=np.zeros(runs.size, np.int64))


def _scopes(call_stack: Any) -> tuple[str, ...]:
    """The scopes around a kernel: without ROOT and the kernel itself."""
    if not isinstance(call_stack, list):
        return ()
    return tuple(str(scope)[:1000] for scope in call_stack[1:-1][:MAX_DEPTH])
