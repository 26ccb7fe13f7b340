"""What the topic "time" knows, before anything is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import Intervals
from profiles.analysis.trace.time.activity import Activity, activity
from profiles.analysis.trace.time.classes import PARTS, Kernels, KernelTime, Verdict, kernel_times, kernels_of, parts_of, verdict
from profiles.analysis.trace.time.idle import Idle, host_rows, idle_of
from profiles.analysis.trace.time.phases import ORDER, Phases
from profiles.analysis.trace.time.ranges import RangeTime, range_times
from profiles.analysis.trace.time.steps import KernelSteps, Span, Steps, StepVerdict, kernel_steps, steps_of
from profiles.analysis.trace.time.steps import judge_steps as counted
from profiles.analysis.trace.time.tiling import DeviceWork, Tiling, devices
from profiles.ingest.arrays import Ints


@dataclass(frozen=True)
class DeviceTime:
    """One GPU: its work, its gaps, its computing kernels, and its wall time as tiles of PARTS."""

    work: DeviceWork
    idle: Idle
    kernels: Kernels
    tiles: Tiling


@dataclass(frozen=True)
class StepTime:
    """One step. `parts` are ns per GPU of its rank (a mean where there are several), in the order of PARTS."""

    span: Span
    counted: StepVerdict
    gpus: int
    parts: dict[str, float]

    @property
    def dur_ns(self) -> int:
        return self.span.end_ns - self.span.start_ns


class TimeFacts:
    """Everything the topic knows, each piece made when it is first asked for."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.begin_ns, self.end_ns = frame.wall
        self.devices: list[DeviceTime] = []
        works = devices(frame) if self.wall_ns > 0 else []
        self.marked: Steps = steps_of(frame, works)
        host = host_rows(frame)
        for work in works:
            idle = idle_of(frame, work, host, self.begin_ns, self.end_ns, self._first_step_ns(work))
            kernels = kernels_of(frame, work)
            self.devices.append(DeviceTime(work, idle, kernels, parts_of(frame, work, kernels, idle)))

    def _first_step_ns(self, work: DeviceWork) -> int | None:
        if self.marked.source in ("", "detected"):
            return None
        return min((span.start_ns for span in self.marked.spans if span.rank == work.rank), default=None)

    @property
    def wall_ns(self) -> int:
        return self.end_ns - self.begin_ns

    @cached_property
    def steps(self) -> list[StepTime]:
        spans = self.marked.spans
        out: list[StepTime | None] = [None] * len(spans)
        verdicts = counted(self.frame, spans, [each.work for each in self.devices])
        for rank in dict.fromkeys(span.rank for span in spans):
            mine = [i for i, span in enumerate(spans) if span.rank == rank]
            gpus = [each for each in self.devices if each.work.rank == rank] or self.devices
            start, end = (np.array([getattr(spans[i], name) for i in mine], np.int64) for name in ("start_ns", "end_ns"))
            total: Ints = np.sum([each.tiles.within(start, end) for each in gpus], axis=0)
            for column, i in enumerate(mine):
                ns = total[:, column].tolist()
                parts = {name: ns[row] if len(gpus) == 1 else ns[row] / len(gpus) for row, name in enumerate(PARTS)}
                out[i] = StepTime(spans[i], verdicts[i], len(gpus), parts)
        return [step for step in out if step is not None]

    @cached_property
    def kernel_steps(self) -> tuple[Ints | None, Ints]:
        """Return kernels and ns by step and outside every step: launched in it (None: not known), begun in it."""
        return self.steps_of_kernels.sums(self.frame["dur_ns"][self.frame.kernels].astype(np.int64), len(self.marked.spans))

    @cached_property
    def steps_of_kernels(self) -> KernelSteps:
        return kernel_steps(self.frame, self.marked)

    @cached_property
    def whole(self) -> tuple[Verdict, str]:
        """Return the classes of the run and what they are of.

        The steps that count, else each GPU from its first to its last work.
        """
        steps = [step for step in self.steps if step.counted.counts]
        if steps:
            return verdict({name: round(sum(step.parts[name] * step.gpus for step in steps)) for name in PARTS}), "steps"
        total = dict.fromkeys(PARTS, 0)
        for each in self.devices:
            first, last = (np.array([ns], np.int64) for ns in each.work.span)
            for name, ns in zip(PARTS, each.tiles.within(first, last)[:, 0].tolist(), strict=True):
                total[name] += ns
        return verdict(total), "span"

    def windows(self, device: DeviceTime) -> Intervals:
        """The time of a GPU that counts: what `whole` is of."""
        steps = [step.span for step in self.steps if step.counted.counts and step.span.rank in (device.work.rank, "")]
        spans = [(span.start_ns, span.end_ns) for span in steps] or [device.work.span]
        start, end = np.array(spans, np.int64).T
        return intervals.union(start, end)

    @cached_property
    def activities(self) -> list[tuple[DeviceTime, list[Activity]]]:
        return [(each, activity(self.frame, each.idle, self.windows(each))) for each in self.devices]

    @cached_property
    def phases(self) -> tuple[dict[str, Verdict], dict[str, int]]:
        """Return each phase's parts over all GPUs, and the CPU's time in its slices.

        Their parts add up to the wall time of all GPUs.
        """
        phases = Phases(self.frame)
        total: Ints = np.zeros((len(ORDER), len(PARTS)), np.int64)
        for each in self.devices:
            total += phases.tiles(each.work, each.idle).across(each.tiles)
        return ({phase: verdict(dict(zip(PARTS, total[row].tolist(), strict=True))) for row, phase in enumerate(ORDER)},
                phases.host_ns())

    @cached_property
    def kernels(self) -> list[KernelTime]:
        return kernel_times(self.frame, [(each.kernels, self.windows(each)) for each in self.devices])

    @cached_property
    def ranges(self) -> list[RangeTime]:
        return range_times(self.frame)
