"""What the topic "time" knows, and what it says of it: its answer and its findings, with the numbers they rest on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import Intervals
from profiles.analysis.core.result import Finding
from profiles.analysis.core.sentences import pct_text, plural, time_text
from profiles.analysis.trace.account.account import account_of
from profiles.analysis.trace.account.causes import CAUSES
from profiles.analysis.trace.account.words import group_text
from profiles.analysis.trace.time.classes import PARTS, Kernels, KernelTime, Verdict, kernel_times, kernels_of, parts_of, verdict
from profiles.analysis.trace.time.idle import Activity, Idle, activity, host_rows, idle_of
from profiles.analysis.trace.time.ranges import ORDER, Phases, RangeTime, range_times
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
        verdicts = counted(self.frame, spans, [device.work for device in self.devices])
        for rank in dict.fromkeys(span.rank for span in spans):
            mine = [i for i, span in enumerate(spans) if span.rank == rank]
            gpus = [gpu for gpu in self.devices if gpu.work.rank == rank] or self.devices
            start, end = (np.array([getattr(spans[i], name) for i in mine], np.int64) for name in ("start_ns", "end_ns"))
            total: Ints = np.sum([gpu.tiles.within(start, end) for gpu in gpus], axis=0)
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
        for device in self.devices:
            first, last = (np.array([ns], np.int64) for ns in device.work.span)
            for name, ns in zip(PARTS, device.tiles.within(first, last)[:, 0].tolist(), strict=True):
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
        return [(device, activity(self.frame, device.idle, self.windows(device))) for device in self.devices]

    @cached_property
    def phases(self) -> tuple[dict[str, Verdict], dict[str, int]]:
        """Return each phase's parts over all GPUs, and the CPU's time in its slices.

        Their parts add up to the wall time of all GPUs.
        """
        phases = Phases(self.frame)
        total: Ints = np.zeros((len(ORDER), len(PARTS)), np.int64)
        for device in self.devices:
            total += phases.tiles(device.work, device.idle).across(device.tiles)
        return ({phase: verdict(dict(zip(PARTS, total[row].tolist(), strict=True))) for row, phase in enumerate(ORDER)},
                phases.host_ns())

    @cached_property
    def kernels(self) -> list[KernelTime]:
        return kernel_times(self.frame, [(device.kernels, self.windows(device)) for device in self.devices])

    @cached_property
    def ranges(self) -> list[RangeTime]:
        return range_times(self.frame)


DATA_PCT = 10.0                 # of the wall time: from here on data loading is a finding, twice that a severe one
TRANSFER_PCT = 10.0             # the same of exposed copies
SLOW_STEP = 1.5                 # times the median of the steps that count
MOST_SLOW = 3


def no_work_text(frame: Frame) -> str:
    """Why there is no time of a GPU to divide."""
    what = "No GPU work in this trace" if frame.rows else "This trace holds no slices"
    return f"{what}: record kernels and copies too (`ProfilerActivity.CUDA`, `nsys profile -t cuda`)."


def answer(facts: TimeFacts) -> str:
    whole, of = facts.whole
    return f"{_bottleneck_text(whole)} {_busy_text(facts)}{_scope_text(facts, of)}"


def _bottleneck_text(verdict: Verdict) -> str:
    if not verdict.bound:
        return "No time passes between the first and the last GPU work."
    by_time = sorted(verdict.classes, key=lambda name: -verdict.classes[name])
    others = ", ".join(f"{name} {pct_text(verdict.pct(name))}" for name in by_time
                       if name != verdict.bound and verdict.classes[name])
    rest = f"; {others}" if others else ""
    if verdict.bound == "unknown":
        return f"What holds the GPU back is not known: kernels of unknown kind take {pct_text(verdict.pct('unknown'))}{rest}."
    if verdict.bound != "overhead":
        what = "arithmetic" if verdict.bound == "compute" else "memory traffic"
        return f"{verdict.bound.capitalize()} holds the GPU back: {what} takes {pct_text(verdict.pct(verdict.bound))}{rest}."
    return f"Overhead holds the GPU back: {pct_text(verdict.pct('overhead'))} of its time{rest}."      # of what: the account


def _busy_text(facts: TimeFacts) -> str:
    busy_pct = 100 * sum(device.work.busy.length_ns for device in facts.devices) / (facts.wall_ns * len(facts.devices))
    who = facts.devices[0].work.label if len(facts.devices) == 1 else f"{plural(len(facts.devices), 'GPU')} on average"
    return f"{who} {'is' if len(facts.devices) == 1 else 'are'} busy {pct_text(busy_pct)} of {time_text(facts.wall_ns)}"


def _scope_text(facts: TimeFacts, of: str) -> str:
    if of == "span":
        return "; the classes are of the time from each GPU's first to its last work."
    steps = [step for step in facts.steps if step.counted.counts]
    mean = time_text(float(np.mean([step.dur_ns for step in steps])))
    kind = "repetition" if facts.marked.source == "detected" else "step"
    left = [step for step in facts.steps if not step.counted.counts]
    whys = " and ".join(dict.fromkeys(step.counted.why for step in left))
    out = f" and {plural(len(left), kind)} of {whys} left out" if left else ""
    return f"; the classes are of {plural(len(steps), kind)} of {mean} on average{out}."


def findings(facts: TimeFacts) -> list[Finding]:
    return [*_find_data(facts), *_find_transfers(facts), *_find_left_out(facts), *_find_slow_steps(facts)]


def _find_data(facts: TimeFacts) -> Iterator[Finding]:
    """As the account has it: what it costs all GPUs, also those that wait for the one that loads."""
    account = account_of(facts.frame)
    group = next((candidate for candidate in account.groups if candidate.cause == "data_loading"), None)
    pct = 100 * group.wall_ns / max(1, account.wall_ns) if group else 0.0
    if group and pct >= DATA_PCT:
        yield Finding(
            "data_loading", "high" if pct >= 2 * DATA_PCT else "medium", group_text(account, group), CAUSES[group.cause].advice,
            {"data_loading_ns": group.wall_ns, "of_ns": account.wall_ns, "data_loading_pct": pct},
            worth_ns=float(group.gain_ns))


def _find_transfers(facts: TimeFacts) -> Iterator[Finding]:
    whole, _ = facts.whole
    pct = whole.part_pct("transfers")
    if pct >= TRANSFER_PCT:
        yield Finding(
            "exposed_transfers", "high" if pct >= 2 * TRANSFER_PCT else "medium",
            f"Copies keep the GPU from computing {pct_text(pct)} of its time",
            "Copy from pinned memory on a stream of its own while the step before computes (`pin_memory()`, "
            "`to(device, non_blocking=True)`), copy less, or keep the data on the GPU.",
            {"transfers_ns": whole.parts["transfers"], "of_ns": whole.total_ns, "transfers_pct": pct},
            worth_ns=whole.parts["transfers"] / len(facts.devices))


def _find_left_out(facts: TimeFacts) -> Iterator[Finding]:
    left = [step for step in facts.steps if not step.counted.counts]
    if left and len(left) < len(facts.steps):
        typical = _median(facts)
        whys = " and ".join(dict.fromkeys(step.counted.why for step in left))
        names = ", ".join(f"`{step.span.name[:60].replace('`', chr(39))}`" for step in left[:MOST_SLOW])
        yield Finding(
            "warm_up", "info", f"{plural(len(left), 'step')} of {whys} left out of averages: {names}"
            + (" and others" if len(left) > MOST_SLOW else ""),
            "Nothing to do for a long run. To measure steady steps record later (`schedule(wait=…, warmup=…)`, "
            "`nsys profile --delay`).",
            {"steps": len(left), "longest_ns": max(step.dur_ns for step in left), "typical_ns": typical,
             "compiling_ns": sum(step.counted.compiling_ns for step in left)})


def _median(facts: TimeFacts) -> float:
    return float(np.median([step.dur_ns for step in facts.steps if step.counted.counts]))


def _find_slow_steps(facts: TimeFacts) -> Iterator[Finding]:
    """Steps that count and take much longer than the others: which part grew the most against its median."""
    counts = [step for step in facts.steps if step.counted.counts]
    if len(counts) < 4 or facts.marked.source == "detected":
        return
    typical = _median(facts)
    usual = {name: float(np.median([step.parts[name] for step in counts])) for name in PARTS}
    slow = sorted((step for step in counts if step.dur_ns >= SLOW_STEP * typical), key=lambda step: -step.dur_ns)
    for step in slow[:MOST_SLOW]:
        yield _slow_step_finding(step, typical, usual)


def _slow_step_finding(step: StepTime, typical: float, usual: dict[str, float]) -> Finding:
    grown = max(PARTS, key=lambda name: step.parts[name] - usual[name])
    more = step.parts[grown] - usual[grown]
    name = step.span.name[:60].replace("`", "'")
    return Finding(
        "slow_step", "medium", f"`{name}` takes {step.dur_ns / typical:.1f} times the typical step; "
        f"{time_text(more)} of the {time_text(step.dur_ns - typical)} more is {PARTS[grown].label}",
        "Open the step in the timeline beside a typical one: a garbage collection, a checkpoint, an evaluation or another "
        "process on the host or GPU.",
        {"start_ns": step.span.start_ns, "end_ns": step.span.end_ns, "step_ns": step.dur_ns, "typical_ns": typical,
         "grown_part": grown, "grown_ns": more}, worth_ns=float(step.dur_ns - typical))
