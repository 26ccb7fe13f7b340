"""An Nsight Compute report: which blocks of its shell are whole, what its session says, and what lies inside its launches.

NVIDIA's own reader gets only files that passed here: it stays silent about files that are cut short, and the shell is
where "how much is missing" can be known. Little endian::

    "NVR\\0"  u32 header size  FileHeader
    repeat to the end:  u32 block header size  BlockHeader  payload[BlockHeader.PayloadSize]

A report of ncu 2020 to 2026 holds one kernel result per block. Field numbers as found in files of those versions;
unknown fields are skipped.

Inside launches are instructions with their counters, source files and series over time: columns here.
The reader's process (`ncu_child_source`) says them as JSON within bounds per launch; here they are bounded per report, so
that a report of ten thousand launches keeps the first ones of every kernel.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from profiles.ingest.trace import INSTRUCTIONS, PERIODIC, CounterLaunch, Report, SourceFile, SourceMark, TraceError

MAGIC = b"NVR\0"
MAX_HEADER_BYTES = 256 * 2**20      # a block header carries a string table; more than this is damage
Field = tuple[int, int | bytes]     # field number, value: varint and fixed as int, the rest as bytes


@dataclass
class Container:
    """What the shell of one file says. `whole_bytes` is the length up to the end of the last whole block."""

    size_bytes: int
    whole_bytes: int = 0
    results: int = 0                 # profiled launches and ranges in whole blocks
    results_cut: int = 0             # announced by the block that is cut
    truncated: bool = False
    session: dict[str, str] = field(default_factory=dict)


def fields(buffer: bytes) -> Iterator[Field]:
    """The fields of one protobuf message. ValueError where the bytes are none."""
    position, end = 0, len(buffer)
    while position < end:
        key, position = _varint(buffer, position)
        number, wire = key >> 3, key & 7
        if wire == 0:
            number_value, position = _varint(buffer, position)
            yield number, number_value
            continue
        if wire == 2:
            length, position = _varint(buffer, position)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if position + length > end:
            raise ValueError("field beyond its message")
        chunk = buffer[position:position + length]
        position += length
        yield number, chunk if wire == 2 else int.from_bytes(chunk, "little")


def scan(path: Path) -> Container:
    """Walk the blocks of a report without reading their payloads."""
    size = os.path.getsize(path)
    container = Container(size_bytes=size)
    with open(path, "rb") as file:
        if file.read(4) != MAGIC:
            raise TraceError("byte 0", "this is not an Nsight Compute report", "Upload the .ncu-rep file of ncu.")
        header_bytes = _u32(file)
        if header_bytes is None or 8 + header_bytes > size:
            raise TraceError("byte 4", "the report ends inside its file header",
                             "The copy is incomplete: copy the file again from where ncu wrote it.")
        position = container.whole_bytes = 8 + header_bytes
        while position < size:
            file.seek(position)
            block = _block_header(file, position, size)
            if block is None:
                container.truncated = True
                break
            header_end, payload_bytes, results, session = block
            if header_end + payload_bytes > size:
                container.truncated, container.results_cut = True, results
                break
            position = container.whole_bytes = header_end + payload_bytes
            container.results += results
            container.session.update(session)
    return container


def _block_header(file: BinaryIO, position: int, size: int) -> tuple[int, int, int, dict[str, str]] | None:
    """(end of the header, payload bytes, results, session facts); None where the file ends inside the header."""
    length = _u32(file)
    if length is None or position + 4 + length > size:
        return None
    if length > MAX_HEADER_BYTES:
        raise TraceError(f"byte {position}", f"a block header claims {length} bytes: the file is damaged",
                         "Copy the report again from where ncu wrote it, or profile again.")
    payload, results, session = 0, 0, {}
    try:
        for number, value in fields(file.read(length)):
            if number == 5 and isinstance(value, int):
                payload = value
            elif number in (2, 7, 8, 9) and isinstance(value, int):   # kernel, range, command list and graph results
                results += value
            elif number == 3 and isinstance(value, bytes):
                session.update(_session(value))
    except ValueError as error:
        raise TraceError(f"byte {position}", f"the block header is damaged ({error})",
                         "Copy the report again from where ncu wrote it, or profile again.") from None
    return position + 4 + length, payload, results, session


def _session(message: bytes) -> dict[str, str]:
    """Driver, CUDA version, command line and time of a SessionDetails message, under names of ours."""
    facts: dict[str, str] = {}
    for number, value in fields(message):
        if number == 2 and isinstance(value, int) and value:
            facts["created_epoch_s"] = str(value)
        elif number == 8 and isinstance(value, bytes):
            pair = {n: v.decode("utf-8", "replace") for n, v in fields(value) if isinstance(v, bytes)}
            if 1 in pair and 2 in pair:
                facts[pair[1].strip().lower().replace(" ", "_")] = pair[2]
        elif number == 11 and isinstance(value, bytes):
            text = value.decode("utf-8", "replace")
            if text.isprintable():
                facts["ncu_command_line"] = text
    return facts


def _varint(buffer: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(buffer) and shift < 70:
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise ValueError("number beyond its message")


def _u32(file: BinaryIO) -> int | None:
    raw = file.read(4)
    return struct.unpack("<I", raw)[0] if len(raw) == 4 else None


LAUNCHES_PER_KERNEL = 12           # of one name, grid and block: more of the same tell nothing new
MAX_ROWS = 400_000                 # instructions of all launches together: some 200 MB while the ingest runs
MAX_SAMPLES = 2_000_000
ABSOLUTE_NS = 10**13               # a "time in the launch" beyond this is the GPU's clock: the reader could not align it
_CUT = "instructions beyond the bound of one kernel"
_BEYOND = "launches whose instructions were not kept (the first of each kernel are)"


class Inside:
    """Takes what is inside each launch, as long as there is room in the report."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.taken: Counter[tuple[Any, ...]] = Counter()
        self.rows = self.samples = 0

    def take(self, document: dict[str, Any], launch: CounterLaunch) -> None:
        """Fill `launch.instructions`, `.periodic` and `.marks`; files go to the report."""
        for entry in document.get("files", ()):
            self._file(entry)
        if "instructions" not in document and "sampling" not in document:
            return
        kind = (launch.kernel, launch.grid, launch.block)
        size, samples = len(document.get("instructions", {}).get("address", ())), sum(
            len(series["times"]) for series in document.get("sampling", ()))
        if self.taken[kind] >= LAUNCHES_PER_KERNEL or self.rows + size > MAX_ROWS or self.samples + samples > MAX_SAMPLES:
            self.report.integrity.remark(_BEYOND, 1)
            return
        self.taken[kind] += 1
        self.rows += size
        self.samples += samples
        if size:
            launch.instructions = instructions(document["instructions"])
            self.report.integrity.remark(_CUT, document["instructions"]["cut"])
            launch.marks = tuple(SourceMark(**mark) for mark in document.get("marks", ()))
        if samples:
            launch.periodic = periodic(document["sampling"])

    def _file(self, said: dict[str, Any]) -> None:
        """Numbers come in order; a hole (never seen) would shift every later file."""
        while len(self.report.files) <= said["number"]:
            self.report.files.append(SourceFile("(unnamed)"))
        self.report.files[said["number"]] = SourceFile(said["name"], said["text"])


def instructions(said: dict[str, Any]) -> pa.Table:
    """Return INSTRUCTIONS with a column per metric.

    Null where the metric says nothing of an instruction.
    """
    size = len(said["address"])
    columns: dict[str, pa.Array] = {
        name: pa.array(said[name], field.type) for name, field in zip(INSTRUCTIONS.names, INSTRUCTIONS, strict=True)}
    for name, metric in sorted(said["metrics"].items()):
        if name in columns:
            continue
        values, is_present = np.zeros(size), np.zeros(size, np.bool_)
        values[metric["rows"]] = metric["values"]
        is_present[metric["rows"]] = True
        columns[name] = pa.array(values, mask=~is_present)
    return pa.table(columns)


def periodic(said: list[dict[str, Any]]) -> pa.Table:
    """Return PERIODIC of all series.

    Series that the reader could not align begin at their own first sample.
    """
    parts = [part for part in map(_series, said) if part.num_rows]
    return pa.concat_tables(parts).cast(PERIODIC) if parts else PERIODIC.empty_table()


def _series(series: dict[str, Any]) -> pa.Table:
    times = np.array(series["times"], np.int64)
    values = np.array([np.nan if value is None else value for value in series["values"]], np.float64)
    is_valid = np.isfinite(values)
    if times.size and times.max() > ABSOLUTE_NS:
        is_valid &= times > 0                              # the reader's first point has no time
        times = times - (times[is_valid].min() if is_valid.any() else 0)
    count = int(is_valid.sum())
    return pa.table({
        "metric": pa.array([series["metric"]] * count, pa.string()), "unit": pa.array([series["unit"]] * count, pa.string()),
        "label": pa.array([series["label"]] * count, pa.string()), "time_ns": times[is_valid], "value": values[is_valid],
    })
