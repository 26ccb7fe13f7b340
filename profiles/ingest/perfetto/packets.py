"""The packets of a Perfetto trace, streamed: a few thousand in memory at a time, each bounded, damage counted."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import zstandard
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from profiles.ingest.core.protobuf_messages import messages
from profiles.ingest.core.source import Source
from profiles.ingest.trace import Integrity

# The fields of Perfetto's trace format that are read (protos/perfetto/trace/**.proto of google/perfetto, v58).

_M = messages("ridgepoint.perfetto", """
Trace: packet=1 [TracePacket]
TracePacket: timestamp=8 uint64, timestamp_clock_id=58 uint32, trusted_packet_sequence_id=10 uint32, sequence_flags=13 uint32, \
incremental_state_cleared=41 bool, previous_packet_dropped=42 uint32, machine_id=98 uint32, interned_data=12 InternedData, \
trace_packet_defaults=59 Defaults, track_event=11 TrackEvent, track_descriptor=60 TrackDescriptor, \
process_descriptor=43 Process, thread_descriptor=44 Thread, clock_snapshot=6 ClockSnapshot, compressed_packets=50 bytes, \
zstd_compressed_packets=133 bytes, ftrace_events=1 Ftrace, process_tree=2 ProcessTree, gpu_counter_event=52 GpuCounters, \
gpu_render_stage_event=53 RenderStage, gpu_info=128 GpuInfo, system_info=45 SystemInfo, trace_stats=35 TraceStats, \
generic_gpu_frequency_event=129 GpuFrequency
Defaults: timestamp_clock_id=58 uint32, track_event_defaults=11 EventDefaults
EventDefaults: track_uuid=11 uint64, extra_counter_track_uuids=31 [uint64], extra_double_counter_track_uuids=45 [uint64]
TrackEvent: type=9 uint32, track_uuid=11 uint64, name_iid=10 uint64|name=23 string, category_iids=3 [uint64], \
categories=22 [string], counter_value=30 int64|double_counter_value=44 double, extra_counter_track_uuids=31 [uint64], \
extra_counter_values=12 [int64], extra_double_counter_track_uuids=45 [uint64], extra_double_counter_values=46 [double], \
flow_ids_old=36 [uint64], flow_ids=47 [fixed64], terminating_flow_ids_old=42 [uint64], terminating_flow_ids=48 [fixed64], \
correlation_id=52 uint64, debug_annotations=4 [bytes], source_location=33 Location, source_location_iid=34 uint64, \
timestamp_delta_us=1 int64, timestamp_absolute_us=16 int64, legacy_event=6 Legacy
Legacy: name_iid=1 uint64, phase=2 int32, duration_us=3 int64, unscoped_id=6 uint64|local_id=10 uint64|global_id=11 uint64, \
id_scope=7 string, bind_id=8 uint64, flow_direction=13 uint32, pid_override=18 int32, tid_override=19 int32
Annotation: name_iid=1 uint64|name=10 string, bool_value=2 bool|uint_value=3 uint64|int_value=4 int64|double_value=5 double|\
pointer_value=7 uint64|nested_value=8 Nested|legacy_json_value=9 string|string_value=6 string|string_value_iid=17 uint64, \
dict_entries=11 [Annotation], array_values=12 [Annotation]
Nested: nested_type=1 uint32, dict_keys=2 [string], dict_values=3 [Nested], array_values=4 [Nested], int_value=5 int64, \
double_value=6 double, bool_value=7 bool, string_value=8 string
TrackDescriptor: uuid=1 uint64, parent_uuid=5 uint64, name=2 string, static_name=10 string, atrace_name=13 string, \
description=14 string, process=3 Process, thread=4 Thread, counter=8 Counter, child_ordering=11 uint32, sibling_order_rank=12 int32
Process: pid=1 int32, process_name=6 string, cmdline=2 [string], legacy_sort_index=3 int32
Thread: pid=1 int32, tid=2 int64, thread_name=5 string, reference_timestamp_us=6 int64, legacy_sort_index=3 int32
Counter: type=1 uint32, unit=3 uint32, unit_multiplier=4 int64, is_incremental=5 bool, unit_name=6 string
InternedData: event_categories=1 [Interned], event_names=2 [Interned], debug_annotation_names=3 [Interned], \
source_locations=4 [Location], debug_annotation_string_values=29 [Interned], graphics_contexts=23 [Context], \
gpu_specifications=24 [Interned], gpu_counter_descriptors=47 [InternedGpuCounters]
Interned: iid=1 uint64, name=2 string, description=3 string, category=4 uint32
Location: iid=1 uint64, file_name=2 string, function_name=3 string, line_number=4 uint32
Context: iid=1 uint64, pid=2 int32, api=3 uint32
ClockSnapshot: clocks=1 [Clock], primary_trace_clock=2 uint32
Clock: clock_id=1 uint32, timestamp=2 uint64, is_incremental=3 bool, unit_multiplier_ns=4 uint64
Ftrace: cpu=1 uint32, event=2 [FtraceEvent], lost_events=3 bool, compact_sched=4 CompactSched
FtraceEvent: timestamp=1 uint64, pid=2 uint32, sched_switch=4 Switch, gpu_frequency=332 FtraceGpuFrequency
Switch: prev_comm=1 string, prev_pid=2 int32, next_comm=5 string, next_pid=6 int32
FtraceGpuFrequency: gpu_id=1 uint32, state=2 uint32
CompactSched: intern_table=5 [string], switch_timestamp=1 [uint64], switch_next_pid=3 [int32], switch_next_comm_index=6 [uint32]
ProcessTree: processes=1 [TreeProcess], threads=2 [TreeThread]
TreeProcess: pid=1 int32, cmdline=3 [string]
TreeThread: tid=1 int32, tgid=3 int32, name=2 string
GpuCounters: counter_descriptor=1 GpuCounterDescriptor, counter_descriptor_iid=4 uint64, counters=2 [GpuCounter], gpu_id=3 int32
GpuCounter: counter_id=1 uint32, int_value=2 int64|double_value=3 double
GpuCounterDescriptor: specs=1 [GpuCounterSpec]
GpuCounterSpec: counter_id=1 uint32, name=2 string, numerator_units=7 [uint32], denominator_units=8 [uint32]
InternedGpuCounters: iid=1 uint64, counter_descriptor=2 GpuCounterDescriptor, gpu_id=3 int32
RenderStage: event_id=1 uint64, duration=2 uint64, hw_queue_iid=13 uint64, stage_iid=14 uint64, hw_queue_id=3 int32, \
stage_id=4 int32, context=5 uint64, gpu_id=11 int32, submission_id=10 uint32, extra_data=6 [Extra], name=17 string, \
name_iid=20 uint64, launch=21 Launch, specifications=7 Specifications
Extra: name=1 string, value=2 string
Launch: grid_size=1 Dim3, workgroup_size=2 Dim3
Dim3: x=1 uint32, y=2 uint32, z=3 uint32
Specifications: hw_queue=2 [Description], stage=3 [Description]
Description: name=1 string
GpuInfo: gpus=1 [Gpu]
Gpu: name=1 string, model=3 string, architecture=4 string
GpuFrequency: gpu_id=1 uint32, frequency_khz=2 uint32
SystemInfo: utsname=1 Utsname, tracing_service_version=4 string
Utsname: sysname=1 string, release=3 string, machine=4 string
TraceStats: buffer_stats=1 [BufferStats]
BufferStats: chunks_overwritten=3 uint64, chunks_discarded=18 uint64, trace_writer_packet_loss=19 uint64
""")
Trace, TracePacket, TrackEvent, Annotation = (_M[name] for name in ("Trace", "TracePacket", "TrackEvent", "Annotation"))

# Fields of TracePacket that a packet is counted by (its `data`); what is missing here shows as "field 123".
DATA = {
    1: "ftrace_events", 2: "process_tree", 4: "inode_file_map", 5: "chrome_events", 6: "clock_snapshot", 7: "sys_stats",
    9: "process_stats", 11: "track_event", 33: "trace_config", 34: "ftrace_stats", 35: "trace_stats", 36: "synchronization_marker",
    37: "profile_packet", 38: "battery", 39: "android_log", 40: "power_rails", 43: "process_descriptor", 44: "thread_descriptor",
    45: "system_info", 46: "trigger", 47: "packages_list", 49: "perfetto_metatrace", 51: "chrome_metadata", 52: "gpu_counter_event",
    53: "gpu_render_stage_event", 54: "streaming_profile_packet", 57: "graphics_frame_event", 60: "track_descriptor",
    61: "module_symbols", 62: "vulkan_memory_event", 63: "gpu_log", 64: "deobfuscation_mapping", 65: "vulkan_api_event",
    66: "perf_sample", 67: "cpu_info", 68: "smaps_packet", 69: "service_event", 71: "gpu_mem_total_event",
    72: "extension_descriptor", 74: "streaming_allocation", 75: "streaming_free", 89: "trace_uuid",
    90: "track_event_range_of_interest", 107: "remote_clock_sync",
    128: "gpu_info", 129: "generic_gpu_frequency_event", 900: "for_testing",
}
# Said about the packet, not its data.
ENVELOPE = frozenset({3, 8, 10, 12, 13, 41, 42, 58, 59, 76, 79, 87, 88, 98})


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
            offset = 0
            while True:
                stop, count = self._frames(offset)
                if not count:
                    break
                yield from self._decode(self._data[offset:stop])
                offset = stop
            self._start += offset
            self._data = self._data[offset:]
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

    def _frames(self, offset: int) -> tuple[int, int]:
        """End and number of the whole packets from `offset` on, at most a batch of them."""
        data, size, count = self._data, len(self._data), 0
        while count < _BATCH and offset < size and data[offset] == _PACKET:
            body, length = _varint(data, offset + 1)
            if body < 0 or body + length > size:
                break
            offset, count = body + length, count + 1
        return offset, count

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
        offset = 0
        while offset < len(data):
            body, length = _varint(data, offset + 1)
            try:
                yield from Trace.FromString(data[offset:body + length]).packet
            except DecodeError:
                self.integrity.records_read += 1
                self.integrity.drop("a packet that could not be decoded")
            offset = body + length

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


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """(first byte after it, value); (-1, 0) where it does not end within the data or within ten bytes."""
    value = shift = 0
    for place in range(offset, min(offset + 10, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return place + 1, value
        shift += 7
    return -1, 0


def data_of(packet: Any) -> str:
    """Name what a packet holds beside the fields read: "trace_config", "field 123"."""
    unknown = UnknownFieldSet(packet)
    numbers = [field.number for field, _ in packet.ListFields()] + [unknown[index].field_number for index in range(len(unknown))]
    number = next((number for number in numbers if number not in ENVELOPE), 0)
    return DATA.get(number, f"field {number}") if number else "empty"


def looks_like(head: bytes) -> bool:
    """Tell whether content starts with packets.

    XSpace (XProf) starts with the same byte, but its planes have fields 1 to 6 only.
    """
    offset = 0
    for _ in range(_LOOKED_AT):
        if offset >= len(head) or head[offset] != _PACKET:
            return False
        body, length = _varint(head, offset + 1)
        if body < 0 or length > MAX_PACKET_BYTES:
            return False
        numbers = _field_numbers(head[body:body + length])
        if numbers is None:
            return False
        if numbers & _TELLING:
            return True
        offset = body + length
    return False


def _field_numbers(packet: bytes) -> set[int] | None:
    """Numbers of a packet's fields as far as it is there; None where one has a type that no packet's field has."""
    offset, numbers = 0, set[int]()
    while 0 <= offset < len(packet):
        offset, tag = _varint(packet, offset)
        number, kind = tag >> 3, tag & 7
        if offset > 0 and number in _TYPES and _TYPES[number] != kind:
            return None
        numbers.add(number if offset > 0 else 0)
        if kind == 2 and offset > 0:
            offset, length = _varint(packet, offset)
            offset = offset + length if offset > 0 else offset
        elif kind == 0 and offset > 0:
            offset, _ = _varint(packet, offset)
        elif kind in (1, 5):
            offset += 8 if kind == 1 else 4
        elif offset > 0:
            return None
    return numbers
