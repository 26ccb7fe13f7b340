"""The outer shell of an Nsight Compute report: which blocks are whole, and what the session says about itself.

NVIDIA's own reader gets only files that passed here: it stays silent about files that are cut short, and the shell is
where "how much is missing" can be known. Little endian::

    "NVR\\0"  u32 header size  FileHeader
    repeat to the end:  u32 block header size  BlockHeader  payload[BlockHeader.PayloadSize]

A report of ncu 2020 to 2026 holds one kernel result per block. Field numbers as found in files of those versions;
unknown fields are skipped.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from profiles.ingest.trace import TraceError

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
