"""Perfetto's protobuf traces (.pftrace, .perfetto-trace): rocprofv3, rocprofiler-systems, Perfetto's SDK, Chrome, Android.

Packets are read one after the other (protos/perfetto/trace/trace_packet.proto of google/perfetto); what they refer to
(interned names, default tracks, clocks) belongs to their sequence and may be cleared at any time.
"""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import numpy as np

from profiles.ingest.arrays import Ints
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.protobuf_messages import text
from profiles.ingest.core.source import Source
from profiles.ingest.perfetto.events import Events
from profiles.ingest.perfetto.gpu import Gpu
from profiles.ingest.perfetto.packets import Packets, data_of, looks_like
from profiles.ingest.perfetto.sequence import BOOTTIME, LATEST_NS, MONOTONIC, Clocks, Sequence
from profiles.ingest.perfetto.tracks import Tracks
from profiles.ingest.trace import Category, Device, Integrity, Trace, TraceError, Track

# ---- scheduler switches of ftrace ----
# Which thread ran on which CPU, one track per CPU. Other kernel events are counted by kind.

_MAX_CPUS = 8192


class Sched:
    """Takes ftrace bundles; a switch ends what ran on that CPU before."""

    def __init__(self, builder: TraceBuilder, clocks: Clocks, gpu: Gpu, integrity: Integrity) -> None:
        self.builder, self.clocks, self.gpu, self.integrity = builder, clocks, gpu, integrity
        self._running: dict[int, tuple[int, int, bytes]] = {}        # CPU -> since, pid, command

    def take(self, bundle: Any) -> None:
        """Take one bundle: the events of one CPU.

        The bundle is one record, each of its events another.
        """
        if bundle.lost_events:
            self.integrity.remark("kernel events were lost before a bundle of them (its buffer was full)")
        compact = bundle.compact_sched
        if bundle.cpu < _MAX_CPUS:
            self._switches(bundle.cpu, *self._compact(compact))
        self.integrity.records_read += len(compact.switch_timestamp)
        self._events(bundle)

    def _compact(self, compact: Any) -> tuple[list[int], list[int], list[bytes]]:
        texts = list(compact.intern_table)
        times = [min(t, LATEST_NS) for t in _sums(compact.switch_timestamp)]
        comms = [texts[i] if i < len(texts) else b"" for i in compact.switch_next_comm_index]
        n = min(len(times), len(comms), len(compact.switch_next_pid))
        self.integrity.drop("scheduler switch without all its fields", len(times) - n)
        return times[:n], list(compact.switch_next_pid)[:n], comms[:n]

    def _events(self, bundle: Any) -> None:
        times: list[int] = []
        pids: list[int] = []
        comms: list[bytes] = []
        other = 0
        clock = self.clocks.numbers[BOOTTIME]
        for event in bundle.event:
            if event.HasField("sched_switch"):
                times.append(min(event.timestamp, LATEST_NS))
                pids.append(event.sched_switch.next_pid)
                comms.append(event.sched_switch.next_comm)
            elif event.HasField("gpu_frequency"):
                frequency = event.gpu_frequency
                self.gpu.frequency(frequency.gpu_id, frequency.state * 1000.0, min(event.timestamp, LATEST_NS), clock)
            else:
                other += 1
        self.integrity.records_read += len(bundle.event)
        self.integrity.drop("kernel event (ftrace) that is not a scheduler switch: not drawn", other)
        if bundle.cpu < _MAX_CPUS:
            self._switches(bundle.cpu, times, pids, comms)
        else:
            self.integrity.drop("scheduler switch of an impossible CPU", len(times))

    def _switches(self, cpu: int, times: list[int], pids: list[int], comms: list[bytes]) -> None:
        """Slices between switches; the idle task (pid 0) is none."""
        if not times:
            return
        before = self._running.get(cpu)
        if before:
            times, pids, comms = [before[0], *times], [before[1], *pids], [before[2], *comms]
        self._running[cpu] = (times[-1], pids[-1], comms[-1])
        start: Ints = np.array(times[:-1], np.int64)
        end = np.array(times[1:], np.int64)
        pid = np.array(pids[:-1], np.int64)
        keep = (pid != 0) & (end >= start)
        if not keep.any():
            return
        shown = [f"{text(comm[:200])} [{number}]" for comm, number in zip(comms[:-1], pid.tolist(), strict=True)]
        names = self.builder.names.column(shown)
        clock = np.full(start.size, self.clocks.numbers[BOOTTIME], np.int32)
        on_trace = self.clocks.on_trace_clock(start, clock)
        track = self.builder.track(("CPU", cpu), lambda: Track(kind="other", name=f"CPU {cpu}", group="CPU scheduling", sort=cpu))
        self.builder.add(
            start_ns=on_trace[keep], dur_ns=(end - start)[keep], name=names[keep],
            category=np.full(int(keep.sum()), int(Category.OTHER), np.uint8), track=np.full(int(keep.sum()), track, np.int32))


def _sums(deltas: Any) -> list[int]:
    """Running sums: times of a bundle are differences to the one before."""
    out, now = [], 0
    for delta in deltas:
        now = min(now + delta, LATEST_NS)
        out.append(now)
    return out


# ---- Perfetto's protobuf traces ----

FORMAT = "perfetto"
MAX_SEQUENCES = 65_536
_CLEARED, _NEEDED = 1, 2                 # TracePacket.sequence_flags
_PROGRESS_PACKETS = 20_000
_SYSTEM_CLOCKS = frozenset(range(1, 64))
_EVENTS = {1: "slice begin", 2: "slice end", 3: "instant", 4: "counter sample"}
_QUIET = frozenset({"service_event", "synchronization_marker", "trace_uuid", "trace_config", "trace_stats", "system_info", "empty",
                    "extension_descriptor", "for_testing", "track_event_range_of_interest"})      # about the recording itself
sniff = looks_like


def read(source: Source) -> Trace:
    """Raises TraceError where the trace holds no slice, instant or counter sample."""
    return _Reader(source).read()


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source, self.integrity = source, Integrity()
        self.builder = TraceBuilder(source, FORMAT, self.integrity)
        self.clocks = Clocks(self.integrity)
        self.tracks = Tracks(self.builder, self.integrity)
        self.events = Events(self.builder, self.tracks, self.clocks, self.integrity)
        self.gpu = Gpu(self.builder, self.clocks, self.integrity)
        self.sched = Sched(self.builder, self.clocks, self.gpu, self.integrity)
        self.sequences: dict[int, Sequence] = {}
        self.metadata: dict[str, Any] = {}
        self.kinds: Counter[Any] = Counter()
        self.dropped = 0

    def read(self) -> Trace:
        collecting = gc.isenabled()
        gc.disable()                     # packets and rows hold no cycles: walking them costs a tenth
        try:
            count = self._packets()
            self.integrity.records_read += count
        finally:
            if collecting:
                gc.enable()
        self._kinds()
        gpu = self.events.finish()
        self.gpu.flush()
        self.tracks.finish(gpu)
        self.clocks.count_unrelated()
        self.integrity.remark("packets were lost before a packet (a buffer was full): slices may be missing", self.dropped)
        self.integrity.records_kept = max(0, self.integrity.records_read - sum(self.integrity.not_kept.values()))
        return self._trace(gpu)

    def _advance(self, read: int) -> None:
        if self.events.full():
            self.events.flush()
        self.source.progress("reading", read)
        if read > self.source.limits.records:
            raise TraceError(f"byte {self.source.position}", f"more than {self.source.limits.records} packets",
                             "Record a shorter time.")

    def _trace(self, gpu: dict[int, tuple[int | None, int | None]]) -> Trace:
        devices = {device for device, _ in gpu.values() if device is not None and device < 2**31} | self.gpu.seen
        epoch = self.clocks.epoch_ns()
        return self.builder.finish(
            devices=[Device(index, self.gpu.names.get(index, "")) for index in sorted(devices)], base_ns=epoch,
            metadata=self.metadata)

    def _packets(self) -> int:
        """Take all packets: first what one says about its sequence, then its data. Returns how many there were."""
        count, sequences, kinds, take, clock_of = 0, self.sequences, self.kinds, self.events.take, self.clocks.numbers
        for packet in Packets(self.source, self.integrity):
            count += 1
            number = packet.trusted_packet_sequence_id
            sequence = sequences.get(number) or self._sequence(number)
            flags = packet.sequence_flags
            if sequence is None or ((flags != _NEEDED or packet.previous_packet_dropped or not sequence.valid)
                                    and not self._state(packet, sequence, flags)):
                continue
            if packet.HasField("interned_data"):
                sequence.intern(packet.interned_data)
            if packet.HasField("trace_packet_defaults"):
                sequence.defaults(packet.trace_packet_defaults)
            if packet.HasField("track_event"):
                event = packet.track_event
                kind = event.type
                kinds[kind] += 1
                stamp, clock = packet.timestamp, packet.timestamp_clock_id
                if stamp and clock in _SYSTEM_CLOCKS and stamp < LATEST_NS:
                    take(event, kind, sequence, stamp, clock_of[clock])
                else:
                    take(event, kind, sequence, *self._time(packet, event, sequence))
            else:
                self._other(packet, sequence)
            if count % _PROGRESS_PACKETS == 0:
                self._advance(count)
        return count

    def _state(self, packet: Any, sequence: Sequence, flags: int) -> bool:
        """Follow the sequence's incremental state; False where the packet needs one that was lost."""
        if packet.previous_packet_dropped and not flags & _CLEARED:
            self.dropped += 1
            sequence.valid = False
        if flags & _CLEARED or packet.incremental_state_cleared:
            sequence.clear()
            sequence.valid = True
        elif flags & _NEEDED and not sequence.valid:
            self.integrity.drop("packet that refers to names and times which the file lost before it")
            self.kinds["packet after a loss"] += 1
            return False
        return True

    def _time(self, packet: Any, event: Any, sequence: Sequence) -> tuple[int, int]:
        """(ns, clock number) of a track event; old ones hold their time themselves, in µs of CLOCK_MONOTONIC."""
        if packet.timestamp or not (event.HasField("timestamp_delta_us") or event.HasField("timestamp_absolute_us")):
            return sequence.time(packet.timestamp, packet.timestamp_clock_id)
        now = event.timestamp_absolute_us
        if not event.HasField("timestamp_absolute_us"):
            now = sequence.micros = sequence.micros + event.timestamp_delta_us
        return max(0, min(now, 2**51)) * 1000, self.clocks.numbers[MONOTONIC]

    def _sequence(self, number: int) -> Sequence | None:
        if len(self.sequences) >= MAX_SEQUENCES:
            self.integrity.drop(f"packets of sequences beyond the first {MAX_SEQUENCES:,}")
            return None
        sequence = self.sequences[number] = Sequence(number, self.clocks, self.builder.names, self.events.categories)
        return sequence

    def _other(self, packet: Any, sequence: Sequence) -> None:
        if packet.HasField("track_descriptor"):
            self.kinds["track_descriptor"] += 1
            self.tracks.describe(packet.track_descriptor)
        elif packet.HasField("clock_snapshot"):
            self.kinds["clock_snapshot"] += 1
            sequence.snapshot(self.clocks.snapshot(packet.clock_snapshot, sequence.number))
        elif packet.HasField("ftrace_events"):
            self.kinds["ftrace_events"] += 1
            self.sched.take(packet.ftrace_events)
        elif packet.HasField("gpu_render_stage_event"):
            self.kinds["gpu_render_stage_event"] += 1
            self.gpu.stage(packet.gpu_render_stage_event, sequence, *sequence.time(packet.timestamp, packet.timestamp_clock_id))
        elif packet.HasField("gpu_counter_event"):
            self.kinds["gpu_counter_event"] += 1
            self.gpu.counters(packet.gpu_counter_event, sequence, *sequence.time(packet.timestamp, packet.timestamp_clock_id))
        else:
            self._about(packet, sequence)

    def _about(self, packet: Any, sequence: Sequence) -> None:
        """Packets that name things, and those that are not read."""
        kind = data_of(packet)
        self.kinds[kind] += 1
        if kind == "process_tree":
            self.tracks.process_tree(packet.process_tree)
        elif kind == "process_descriptor":
            self.tracks.process(packet.process_descriptor)
        elif kind == "thread_descriptor":
            message = packet.thread_descriptor
            self.tracks.thread(message)
            sequence.thread, sequence.micros = (message.pid, message.tid), message.reference_timestamp_us
        elif kind == "gpu_info":
            self.gpu.info(packet.gpu_info)
        elif kind == "generic_gpu_frequency_event":
            message = packet.generic_gpu_frequency_event
            self.gpu.frequency(message.gpu_id, message.frequency_khz * 1000.0,
                               *sequence.time(packet.timestamp, packet.timestamp_clock_id))
        elif kind == "system_info":
            self._system(packet.system_info)
        elif kind == "trace_stats":
            lost = sum(stats.chunks_overwritten + stats.chunks_discarded + stats.trace_writer_packet_loss
                       for stats in packet.trace_stats.buffer_stats)
            if lost:
                self.integrity.notes.append(f"The recording itself lost data: {lost} chunks or packets were overwritten or "
                                            "discarded because its buffers were full.")
        elif kind not in _QUIET and kind != "empty":
            self.integrity.drop(f"{kind}: not read")

    def _system(self, message: Any) -> None:
        name = message.utsname
        self.metadata["system"] = text(b" ".join((name.sysname, name.release, name.machine))[:300]).strip()
        self.metadata["perfetto_version"] = text(message.tracing_service_version[:200])

    def _kinds(self) -> None:
        for kind, count in self.kinds.items():
            shown = kind if isinstance(kind, str) else f"track_event: {_EVENTS.get(kind, f'type {kind}' if kind else 'legacy')}"
            self.integrity.count(shown, count)
