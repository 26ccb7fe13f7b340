"""What GPU producers of Perfetto write beside track events: render and compute stages, hardware counters, frequency."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from profiles.ingest.chrome.kinds import NAMED_COLLECTIVE, NAMED_MEMCPY, NAMED_MEMSET, name_code
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import NAME_CHARS
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.protobuf_messages import text
from profiles.ingest.perfetto.sequence import Clocks, Sequence
from profiles.ingest.trace import Category, Integrity, Track

_UNITS = {                               # GpuCounterDescriptor.MeasureUnit
    1: "bit", 7: "bytes", 8: "kB", 9: "MB", 10: "GB", 13: "Hz", 14: "kHz", 15: "MHz", 16: "GHz", 19: "ns", 20: "µs", 21: "ms",
    22: "s", 28: "mW", 29: "W", 31: "J", 32: "V", 33: "A", 34: "°C", 37: "%", 40: "inst"}
_WORK = {NAMED_MEMCPY: Category.MEMCPY, NAMED_MEMSET: Category.MEMSET, NAMED_COLLECTIVE: Category.COMMUNICATION}
_FLUSH_ROWS = 1 << 16
_MAX_COUNTERS = 100_000
_LONGEST_NS = 2**62


class Gpu:
    """Takes these packets of all sequences."""

    def __init__(self, builder: TraceBuilder, clocks: Clocks, integrity: Integrity) -> None:
        self.builder, self.clocks, self.integrity = builder, clocks, integrity
        self.names: dict[int, str] = {}                    # GPU -> model
        self.seen: set[int] = set()
        self._counters: dict[tuple[int, int], tuple[str, str]] = {}       # GPU and counter id -> name, unit
        self._stages: list[str] = []                       # of the old specifications, by index
        self._queues: list[str] = []
        # time, clock, duration, name, category, track, GPU, queue, detail, 3 of the grid, 3 of the block
        self._rows: list[tuple[int, ...]] = []
        self._samples: list[tuple[int, int, int, float]] = []

    def info(self, message: Any) -> None:
        for index, gpu in enumerate(message.gpus[:1024]):
            self.names[index] = text((gpu.name or gpu.model)[:200])

    def counters(self, message: Any, sequence: Sequence, now: int, clock: int) -> None:
        """Take a GpuCounterEvent: what its counters are called, or their values."""
        gpu = message.gpu_id
        for spec in message.counter_descriptor.specs:
            self._specify(gpu, spec)
        interned = sequence.gpu_counters.get(message.counter_descriptor_iid)
        if interned is not None:
            for spec in interned.specs:
                self._specify(gpu, spec)
        for counter in message.counters:
            value = counter.double_value if counter.HasField("double_value") else counter.int_value
            self._samples.append((self._counter(gpu, counter.counter_id), now, clock, value))
        self._flush_when_full()

    def _specify(self, gpu: int, spec: Any) -> None:
        if len(self._counters) < _MAX_COUNTERS:
            upper, lower = ("·".join(filter(None, (_UNITS.get(unit, "") for unit in units[:4])))
                            for units in (spec.numerator_units, spec.denominator_units))
            self._counters[gpu, spec.counter_id] = text(spec.name[:300]), f"{upper}/{lower}" if lower else upper

    def _counter(self, gpu: int, number: int) -> int:
        name, unit = self._counters.get((gpu, number), (f"counter {number}", ""))
        self.seen.add(gpu) if len(self.seen) < 1024 else None
        return self.builder.track(("GPU counter", gpu, number), lambda: Track(
            kind="counter", name=name, group=f"GPU {gpu}", sort=number, device=gpu, unit=unit))

    def frequency(self, gpu: int, hertz: float, now: int, clock: int) -> None:
        track = self.builder.track(("GPU frequency", gpu), lambda: Track(
            kind="counter", name="GPU frequency", group=f"GPU {gpu}", device=gpu, unit="Hz"))
        self._samples.append((track, now, clock, hertz))

    def stage(self, message: Any, sequence: Sequence, now: int, clock: int) -> None:
        """Take a GpuRenderStageEvent: a slice on one of the GPU's queues."""
        if message.HasField("specifications"):
            self._queues = [text(spec.name[:300]) for spec in message.specifications.hw_queue[:1000]]
            self._stages = [text(spec.name[:300]) for spec in message.specifications.stage[:1000]]
        if not message.HasField("duration") and not message.event_id and not message.name:
            return                                          # it only carried the specifications
        stage = sequence.specifications.get(message.stage_iid, "")
        if not message.stage_iid and message.stage_id < len(self._stages):
            stage = self._stages[message.stage_id]
        name = self._name(message, sequence) or stage or "render stage"
        gpu, queue = message.gpu_id, message.hw_queue_iid or message.hw_queue_id
        detail = {text(field.name[:200]): text(field.value[:2000]) for field in message.extra_data[:100]}
        detail |= {"stage": stage} if stage and stage != name else {}
        api = sequence.contexts.get(message.context)
        detail |= {"process": str(api[0])} if api else {}
        category = _WORK.get(name_code(name), Category.COMPUTE)
        self._rows.append((
            now, clock, min(message.duration, _LONGEST_NS), self.builder.names[name], int(category),
            self._queue(message, sequence, gpu, queue), gpu, queue if queue < 2**63 else MISSING,
            self.builder.details[msgspec.json.encode(detail).decode()] if detail else -1,
            *_dimensions(message, "grid_size"), *_dimensions(message, "workgroup_size")))
        self._flush_when_full()

    def _name(self, message: Any, sequence: Sequence) -> str:
        if message.HasField("name_iid"):
            number = sequence.names.get(message.name_iid)
            return str(self.builder.names.values_in_order[number]) if number is not None else ""
        return text(message.name[:4 * NAME_CHARS])

    def _queue(self, message: Any, sequence: Sequence, gpu: int, queue: int) -> int:
        name = sequence.specifications.get(message.hw_queue_iid, "")
        if not message.hw_queue_iid and 0 <= message.hw_queue_id < len(self._queues):
            name = self._queues[message.hw_queue_id]
        self.seen.add(gpu) if len(self.seen) < 1024 else None
        return self.builder.track(("GPU queue", gpu, queue), lambda: Track(
            kind="stream", name=name or f"queue {queue}", group=f"GPU {gpu}", sort=min(queue, 2**31), device=gpu,
            stream=queue if queue < 2**63 else None))

    def _flush_when_full(self) -> None:
        if len(self._rows) + len(self._samples) > _FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Hand on what waits."""
        if self._rows:
            table, self._rows = np.array(self._rows, np.int64), []
            self.builder.add(
                start_ns=self.clocks.on_trace_clock(table[:, 0].copy(), table[:, 1].astype(np.int32)), dur_ns=table[:, 2],
                name=table[:, 3].astype(np.int32), category=table[:, 4].astype(np.uint8), track=table[:, 5].astype(np.int32),
                device=table[:, 6], stream=table[:, 7], detail=table[:, 8].astype(np.int32), grid=table[:, 9:12],
                block=table[:, 12:15])
        if self._samples:
            tracks, times, clocks, values = zip(*self._samples, strict=True)
            self._samples = []
            self.builder.add_samples(np.array(tracks, np.int32), self.clocks.on_trace_clock(
                np.array(times, np.int64), np.array(clocks, np.int32)), np.array(values, np.float64))


def _dimensions(message: Any, field: str) -> tuple[int, int, int]:
    if not message.launch.HasField(field):
        return MISSING, MISSING, MISSING
    size = getattr(message.launch, field)
    return size.x or 1, size.y or 1, size.z or 1
