"""Scheduler switches of ftrace: which thread ran on which CPU, one track per CPU. Other kernel events are counted by kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import Int64
from profiles.ingest.core.protobuf_messages import text
from profiles.ingest.perfetto.clocks import BOOTTIME, LATEST_NS, Clocks
from profiles.ingest.perfetto.gpu import Gpu
from profiles.ingest.trace import Category, Integrity, Track

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
        start: Int64 = np.array(times[:-1], np.int64)
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
