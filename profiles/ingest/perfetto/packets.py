"""The packets of a Perfetto trace, streamed: a few thousand in memory at a time, each bounded, damage counted."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import zstandard
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from profiles.ingest.core.source import Source
from profiles.ingest.perfetto.messages import DATA, ENVELOPE, Trace
from profiles.ingest.trace import Integrity

MAX_PACKET_BYTES = 64 << 20
MAX_UNPACKED_BYTES = 256 << 20           # of one compressed packet
_BLOCK = 1 << 20
_BATCH = 4096
_MORE, _AGAIN, _STOP = range(3)
_PACKET = 0x0A                           # field 1, length-delimited
_LOOKED_AT = 100                         # packets, to recognise the format
_TELLING = {8, 10, 11, 33, 36, 43, 44, 50, 52, 53, 58, 59, 60, 89, 133}        # of field numbers: no other format has these
_TYPES = {**dict.fromkeys(DATA, 2), **dict.fromkeys(ENVELOPE, 0), 12: 2, 59: 2}


class Packets:
    """Iterate over all packets, those of compressed packets in their place. Counts what is not a packet."""

    def __init__(self, source: Source, integrity: Integrity) -> None:
        self.source, self.integrity = source, integrity
        self._data = b""
        self._start = 0                  # byte of the content at which `_data` begins

    def __iter__(self) -> Iterator[Any]:
        reading = self._more()
        while reading:
            at = 0
            while True:
                stop, count = self._frames(at)
                if not count:
                    break
                yield from self._decode(self._data[at:stop])
                at = stop
            self._start += at
            self._data = self._data[at:]
            odd = self._odd() if self._data else _MORE
            if odd == _STOP:
                return
            reading = odd == _AGAIN or self._more()
        self._finish()

    def _more(self) -> bool:
        """Append the next block; False at the end of the content."""
        block = self.source.read(_BLOCK)
        self._data += block
        return bool(block)

    def _frames(self, at: int) -> tuple[int, int]:
        """End and number of the whole packets from `at` on, at most a batch of them."""
        data, size, count = self._data, len(self._data), 0
        while count < _BATCH and at < size and data[at] == _PACKET:
            body, length = _varint(data, at + 1)
            if body < 0 or body + length > size:
                break
            at, count = body + length, count + 1
        return at, count

    def _odd(self) -> int:
        """`_data` starts with no whole packet: read more of it, or skip what it is and look again, or stop."""
        body, length = _varint(self._data, 1)
        kind = self._data[0] & 7
        if kind == 2 and body < 0 and len(self._data) < 11:
            return _MORE                                     # the length itself is cut
        if kind == 2 and body > 0:
            if self._data[0] != _PACKET and body + length <= len(self._data):
                return self._skip(body + length, "a field of the trace that is no packet")
            if length <= MAX_PACKET_BYTES:
                return _MORE
            return self._skip(body + length, f"a packet of more than {MAX_PACKET_BYTES >> 20} MiB")
        self.integrity.truncated_at = f"byte {self._start}"
        self.integrity.notes.append(f"From byte {self._start} on the file holds no packets: it was damaged there, or packets "
                                    "were lost. What follows was not read.")
        self.integrity.records_read += 1
        self.integrity.drop("damaged from here to the end")
        return _STOP

    def _skip(self, size: int, reason: str) -> int:
        """Pass over bytes, most of which may not be read yet."""
        self.integrity.records_read += 1
        self.integrity.drop(reason)
        left = size - len(self._data)
        self._start += size
        self._data = self._data[size:]
        while left > 0 and (block := self.source.read(min(left, _BLOCK))):
            left -= len(block)
        if left > 0:
            self.integrity.truncated_at = f"byte {self.source.position}"
        return _AGAIN if self._data else _MORE

    def _finish(self) -> None:
        if self.source.damage:
            self.integrity.notes.append(f"The compressed stream is incomplete: {self.source.damage}.")
            self.integrity.truncated_at = f"byte {self.source.position}"
        if self._data:
            self.integrity.truncated_at = f"byte {self._start}"
            self.integrity.notes.append(f"The file ends in the middle of a packet that begins at byte {self._start}.")
            self.integrity.records_read += 1
            self.integrity.drop("cut off at the end of the file")

    def _decode(self, data: bytes) -> Iterator[Any]:
        try:
            packets = Trace.FromString(data).packet
        except DecodeError:
            packets = self._one_by_one(data)
        for packet in packets:
            if packet.HasField("compressed_packets") or packet.HasField("zstd_compressed_packets"):
                yield from self._unpack(packet)
            else:
                yield packet

    def _one_by_one(self, data: bytes) -> Iterator[Any]:
        """The packets of a batch in which at least one cannot be decoded."""
        at = 0
        while at < len(data):
            body, length = _varint(data, at + 1)
            try:
                yield from Trace.FromString(data[at:body + length]).packet
            except DecodeError:
                self.integrity.records_read += 1
                self.integrity.drop("a packet that could not be decoded")
            at = body + length

    def _unpack(self, packet: Any) -> Iterator[Any]:
        try:
            if packet.HasField("compressed_packets"):
                tool = zlib.decompressobj()
                data = tool.decompress(packet.compressed_packets, MAX_UNPACKED_BYTES)
                whole = tool.eof
            else:
                reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(packet.zstd_compressed_packets)
                data = reader.read(MAX_UNPACKED_BYTES)
                whole = len(data) < MAX_UNPACKED_BYTES
            packets = Trace.FromString(data).packet if whole else ()
        except (zlib.error, zstandard.ZstdError, DecodeError):
            packets, whole = (), False
        if not whole:
            self.integrity.records_read += 1
            self.integrity.drop("compressed packets that could not be unpacked, or only to more than "
                                f"{MAX_UNPACKED_BYTES >> 20} MiB")
        self.source.count_expanded(len(data) if whole else 0)
        yield from packets


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(first byte after it, value); (-1, 0) where it does not end within the data or within ten bytes."""
    value = shift = 0
    for place in range(at, min(at + 10, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return place + 1, value
        shift += 7
    return -1, 0


def data_of(packet: Any) -> str:
    """Name what a packet holds beside the fields read: "trace_config", "field 123"."""
    unknown = UnknownFieldSet(packet)
    numbers = [field.number for field, _ in packet.ListFields()] + [unknown[at].field_number for at in range(len(unknown))]
    number = next((number for number in numbers if number not in ENVELOPE), 0)
    return DATA.get(number, f"field {number}") if number else "empty"


def looks_like(head: bytes) -> bool:
    """Tell whether content starts with packets.

    XSpace (XProf) starts with the same byte, but its planes have fields 1 to 6 only.
    """
    at = 0
    for _ in range(_LOOKED_AT):
        if at >= len(head) or head[at] != _PACKET:
            return False
        body, length = _varint(head, at + 1)
        if body < 0 or length > MAX_PACKET_BYTES:
            return False
        numbers = _field_numbers(head[body:body + length])
        if numbers is None:
            return False
        if numbers & _TELLING:
            return True
        at = body + length
    return False


def _field_numbers(packet: bytes) -> set[int] | None:
    """Numbers of a packet's fields as far as it is there; None where one has a type that no packet's field has."""
    at, numbers = 0, set[int]()
    while 0 <= at < len(packet):
        at, tag = _varint(packet, at)
        number, kind = tag >> 3, tag & 7
        if at > 0 and number in _TYPES and _TYPES[number] != kind:
            return None
        numbers.add(number if at > 0 else 0)
        if kind == 2 and at > 0:
            at, length = _varint(packet, at)
            at = at + length if at > 0 else at
        elif kind == 0 and at > 0:
            at, _ = _varint(packet, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif at > 0:
            return None
    return numbers
