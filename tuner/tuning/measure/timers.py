"""Timers of the measurement policies: CUDA events with cold or warm L2, or a CUDA graph.

The driver is asked for clocks and throttling while the queued work still runs: what it says then is true of the samples.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from tuner.tuning.measure import nvml
from tuner.tuning.measure.flush import Flush
from tuner.tuning.measure.policy import MOST_LEAD_MS, Policy

Launch = Callable[[], Any]
EVENT_MS = 0.0005            # what a CUDA event resolves (cudaEventElapsedTime): a shorter time is told as this, never as 0
WAIT_CYCLES = 200_000        # about 0.1 ms: the GPU waits while the host queues the launch and its events
CYCLES_PER_MS = 2_000_000
LEAD = 1.5                   # of the time that the host took for launches it was late with
RETAKES = 4                  # of launches that the host is late with again and again
GRAPH_MS = 0.5               # a graph holds launches for so long: the events' half microsecond is a thousandth of it
GRAPH_LAUNCHES = 200         # … but not more than these


@dataclass(frozen=True, eq=False)
class PreparedLaunch:
    """A launch that is timed without what must be done before each of them."""

    prepare: Launch
    start: Launch

    def __call__(self) -> Any:
        return self.start()

    def whole(self) -> Any:
        """Prepare and launch: in a graph nothing can be left out of the time."""
        self.prepare()
        return self.start()


class Timer(Protocol):
    def samples(self, launch: Launch, count: int) -> list[float]:
        """Return `count` times of one launch each, in ms."""
        ...

    def about(self) -> dict[str, Any]:
        """Return fields for the policy: cold or warm L2, the flush."""
        ...

    def reading(self) -> dict[str, Any]:
        """Return clocks, temperature, power and throttling of the last samples; empty if unknown."""
        ...


class _CudaTimer:
    def __init__(self, device: torch.device, gpu_index: int) -> None:
        self.device, self.gpu_index = device, gpu_index
        self.l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        self._reading: dict[str, Any] = {}
        self.lead_ms = 0.0
        self._late_ms = 0.0                       # what the host took for a batch that it was late with

    def reading(self) -> dict[str, Any]:
        return self._reading

    def _wait(self) -> None:
        torch.cuda._sleep(WAIT_CYCLES)

    def _time_launches(self, before: Launch, launch: Launch, count: int) -> list[float]:
        """Return ms of `count` launches, each between two events with `before` ahead, in one queue.

        A host that is late for a launch would be timed with it: the GPU is past the first event before the launch is queued. Then
        all are taken again, and the GPU starts when everything is queued. Where the host was late for most of several, what follows
        is taken like that from the start, as several are where the policy says `lead_ms`. The wait is in no sample.
        """
        lead_ms = max(self.lead_ms if count > 1 else 0.0, self._late_ms)
        late, queued_ms, samples_ms = self._queue_launches(before, launch, count, lead_ms)
        for _ in range(RETAKES):
            again_ms = min(MOST_LEAD_MS, LEAD * queued_ms)
            if not late or again_ms <= lead_ms:
                break
            if count > 1 and 2 * late > count:
                self._late_ms = again_ms
            lead_ms = again_ms
            late, queued_ms, samples_ms = self._queue_launches(before, launch, count, lead_ms)
        return samples_ms

    def _queue_launches(self, before: Launch, launch: Launch, count: int, lead_ms: float) -> tuple[int, float, list[float]]:
        """Return for how many launches the host was late, the ms that it took for all, and each one's ms."""
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
        if lead_ms:
            torch.cuda._sleep(round(lead_ms * CYCLES_PER_MS))
        began_s, late = time.perf_counter(), 0
        prepare = getattr(launch, "prepare", None)
        for start, end in events:
            if prepare is not None:             # ahead of the flush: what it leaves in L2 helps no launch
                prepare()
            before()
            start.record()
            launch()
            end.record()
            late += start.query()
        queued_ms = 1e3 * (time.perf_counter() - began_s)
        self._reading = nvml.reading(self.gpu_index)
        torch.cuda.synchronize(self.device)
        return late, queued_ms, [max(EVENT_MS, start.elapsed_time(end)) for start, end in events]


class ColdTimer(_CudaTimer):
    """Flushes L2 before each launch, which also hides the launch's CPU time."""

    def __init__(self, device: torch.device, gpu_index: int) -> None:
        super().__init__(device, gpu_index)
        self.flush = Flush(device, self.l2_bytes)

    def samples(self, launch: Launch, count: int) -> list[float]:
        self.flush.begin()
        return self._time_launches(self.flush, launch, count)

    def about(self) -> dict[str, Any]:
        return {**self.flush.about(), "l2_bytes": self.l2_bytes}


class WarmTimer(_CudaTimer):
    """Makes the GPU wait 0.1 ms before each launch, so that the kernel is queued in time."""

    def samples(self, launch: Launch, count: int) -> list[float]:
        return self._time_launches(self._wait, launch, count)

    def about(self) -> dict[str, Any]:
        return {"cold_l2": False, "l2_bytes": self.l2_bytes}


class GraphTimer(_CudaTimer):
    """Times a CUDA graph of many launches, captured once per launch function."""

    def __init__(self, device: torch.device, gpu_index: int) -> None:
        super().__init__(device, gpu_index)
        self._graphs: weakref.WeakKeyDictionary[Launch, tuple[torch.cuda.CUDAGraph, int]] = weakref.WeakKeyDictionary()

    def samples(self, launch: Launch, count: int) -> list[float]:
        if launch not in self._graphs:
            self._graphs[launch] = self._capture(launch)
        graph, launches = self._graphs[launch]
        return [ms / launches for ms in self._time_launches(self._wait, graph.replay, count)]

    def _capture(self, launch: Launch) -> tuple[torch.cuda.CUDAGraph, int]:
        launch = getattr(launch, "whole", launch)
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            launch()                                          # nothing may compile or choose an algorithm in a capture
        torch.cuda.current_stream(self.device).wait_stream(stream)
        once_ms = self._time_launches(self._wait, launch, 2)[1]
        launches = max(1, min(GRAPH_LAUNCHES, round(GRAPH_MS / max(once_ms, 1e-4))))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(launches):
                launch()
        return graph, launches

    def about(self) -> dict[str, Any]:
        return {"cold_l2": False, "l2_bytes": self.l2_bytes, "graph_launches": f"up to {GRAPH_LAUNCHES} or {GRAPH_MS:g} ms"}


_TIMERS: dict[str, type[ColdTimer | WarmTimer | GraphTimer]] = {"cold": ColdTimer, "warm": WarmTimer, "graph": GraphTimer}


def make_timer(device: torch.device, policy: Policy, gpu_index: int) -> Timer:
    """Return the timer of a policy on one CUDA device."""
    timer = _TIMERS[policy.kind](device, gpu_index)
    timer.lead_ms = policy.lead_ms
    return timer
