"""Arguments of a Chrome trace's records: what GPU work and launch calls say in the words of several exporters; the rest as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from profiles.ingest.arrays import Array, Bools, Bytes, Int32, Rows
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import Ids, decode_args, floats, optional, triples
from profiles.ingest.core.events import MISSING
from profiles.ingest.trace import Category, Integrity

DETAIL_BYTES = 16 << 10                  # longer arguments are cut, and counted
LEFT_OUT = -2
MAX_DETAILS, DETAIL_ROOM = 1_000_000, 128 << 20      # distinct texts of arguments, and their characters: held until the end
Columns = dict[str, Array]
_NUMBERS = ("correlation", "external_id", "device", "stream", "registers_per_thread", "smem_bytes", "bytes")
_TRIPLE = re.compile(r"\D*(\d+)\D+(\d+)\D+(\d+)\D*$")


def _field(name: str) -> Any:
    return msgspec.field(default=None, name=name)


class WorkArgs(msgspec.Struct, gc=False):
    """Kineto's words first, then those of converters from Nsight Systems, nvprof and rocprof."""

    correlation: Any = None
    correlation_id: Any = None
    correlation_camel: Any = _field("correlationId")
    correlation_spaced: Any = _field("correlation id")
    external_id: Any = _field("External id")
    device: Any = None
    device_camel: Any = _field("deviceId")
    stream: Any = None
    stream_camel: Any = _field("streamId")
    grid: Any = None
    block: Any = None
    registers: Any = _field("registers per thread")
    registers_camel: Any = _field("registersPerThread")
    registers_short: Any = _field("registers")
    shared: Any = _field("shared memory")
    bytes: Any = None
    size: Any = None
    occupancy: Any = _field("est. achieved occupancy %")


_SPELLED = {"correlation": ("correlation", "correlation_id", "correlation_camel", "correlation_spaced"),
            "external_id": ("external_id",), "device": ("device", "device_camel"), "stream": ("stream", "stream_camel"),
            "registers_per_thread": ("registers", "registers_camel", "registers_short"), "smem_bytes": ("shared",),
            "bytes": ("bytes", "size")}


class Arguments:
    """Columns of arguments, by record. Subclasses know the words of one exporter."""

    def __init__(self, builder: TraceBuilder) -> None:
        self.builder, self.cut, self.misread, self.left_out = builder, 0, 0, 0
        self._room = DETAIL_ROOM

    def columns(self, raws: Sequence[Any], kind: Bytes, on_gpu: Bools) -> Columns:
        """Return all optional columns of `TraceBuilder.add`.

        MISSING where nothing is said. May put `kind` right, in place.
        """
        n = len(raws)
        out = blank(n)
        out["detail"] = self.details(raws)
        rows = np.flatnonzero((on_gpu | (kind == Category.RUNTIME)) & (out["detail"] >= 0))
        if rows.size:
            self.work([raws[i] for i in rows.tolist()], rows, on_gpu[rows], out)
        return out

    def work(self, raws: list[Any], rows: Rows, on_gpu: Bools, out: Columns) -> None:
        """Fill `out` at `rows`, which lie on a GPU or call its runtime."""
        args, bad = decode_args(WorkArgs, raws)
        self.misread += bad
        for key, attributes in _SPELLED.items():
            values = np.full(rows.size, MISSING, np.int64)
            for attribute in attributes:
                numbers = optional(getattr(arg, attribute) for arg in args)
                values = np.where(values == MISSING, numbers, values)
            if key in ("correlation", "external_id"):
                out[key][rows] = values
            else:
                out[key][rows] = np.where(on_gpu, values, MISSING)
        for key in ("grid", "block"):
            out[key][rows] = triples([_triple(getattr(arg, key)) for arg in args])
        out["occupancy_pct"][rows] = floats([arg.occupancy for arg in args])

    def report(self, integrity: Integrity) -> None:
        """Count what was not kept as it stood."""
        integrity.repair("arguments that could not be understood were left out", self.misread)
        integrity.repair("arguments longer than 16 KiB were cut", self.cut)
        integrity.repair("arguments left out: the trace has too many distinct ones", self.left_out)

    def report_and_forget(self, integrity: Integrity) -> None:
        self.report(integrity)
        self.misread = self.cut = self.left_out = 0

    def details(self, raws: Sequence[Any]) -> Int32:
        """Return the number of every record's arguments as they stand in the file, else -1."""
        here = Ids()
        numbers = here.column(list(map(bytes, raws)))
        detail = np.array([self._detail(raw) for raw in here.values_in_order] or [-1], np.int32)[numbers]
        self.left_out += int(np.count_nonzero(detail == LEFT_OUT))
        return np.maximum(detail, -1)

    def _detail(self, raw: bytes) -> int:
        text = raw.strip()
        if not text.strip(b"{}[]\" \t\r\n") or text == b"null":
            return -1
        if len(text) > DETAIL_BYTES:
            self.cut += 1
            return self.add_detail(_shorten(text))
        return self.add_detail((text if text[:1] == b"{" else b'{"args": ' + text + b"}").decode("utf-8", "replace"))

    def add_detail(self, text: str) -> int:
        """Return the number of a text.

        LEFT_OUT where there are too many distinct ones to keep.
        """
        number = self.builder.details.get(text)
        if number is not None:
            return number
        if self._room < len(text) or len(self.builder.details.values_in_order) >= MAX_DETAILS:
            return LEFT_OUT
        self._room -= len(text)
        return int(self.builder.details[text])

    def both(self, begin: Int32, end: Int32) -> Int32:
        """Arguments of begins with those of their ends: a record of what was known only then."""
        out = np.where(begin < 0, end, begin)
        texts = self.builder.details.values_in_order
        for row in np.flatnonzero((begin >= 0) & (end >= 0) & (begin != end)).tolist():
            first, second = str(texts[begin[row]]).rstrip(), str(texts[end[row]]).lstrip()
            joined = f"{first[:-1].rstrip()}, {second[1:].lstrip()}"
            number = self.add_detail(joined) if len(joined) <= 2 * DETAIL_BYTES else LEFT_OUT
            out[row] = number if number != LEFT_OUT else begin[row]
        return out.astype(np.int32)


def blank(n: int) -> Columns:
    """Optional columns of `TraceBuilder.add` in which nothing is known."""
    return {**{key: np.full(n, MISSING, np.int64) for key in _NUMBERS}, "grid": np.full((n, 3), MISSING, np.int64),
            "block": np.full((n, 3), MISSING, np.int64), "occupancy_pct": np.full(n, np.nan), "detail": np.full(n, -1, np.int32)}


def _shorten(raw: bytes) -> str:
    text = raw[:DETAIL_BYTES // 2].decode("utf-8", "replace")
    return msgspec.json.encode({f"first {DETAIL_BYTES // 2} of {len(raw)} bytes": text}).decode()


def _triple(value: Any) -> Any:
    """[1, 2, 3] as it is; "1,2,3", "(1, 2, 3)" and {"x": …} as such a list."""
    if isinstance(value, str) and len(value) < 64:
        match = _TRIPLE.match(value)
        return [int(part) for part in match.groups()] if match else None
    if isinstance(value, dict):
        return [value.get("x"), value.get("y", 1), value.get("z", 1)]
    return value
