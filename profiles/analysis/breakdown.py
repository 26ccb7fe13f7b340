"""Where the time of each GPU went: compute, exposed communication, exposed memory traffic and idle add up to wall time.

Wall time runs from the first to the last slice of anything (CPU or GPU; the profiler's own overhead and marks aside)
and is the same for all GPUs of a trace. Compute counts whenever a computing kernel runs; communication is *exposed*
while no kernel computes, memory traffic while neither computes nor communicates. `..._overlapped_ns` is the rest of
each. Holistic Trace Analysis measures from the first to the last GPU slice instead: `span_ns` and `idle_in_span_ns`
(it also cuts all times to whole µs, counts `cuda_sync` records as work and by default leaves the last step out).
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.analysis import intervals
from profiles.analysis.correlate import launch_calls
from profiles.analysis.intervals import Intervals
from profiles.analysis.kernels import dictionary, numbers
from profiles.trace import GPU_WORK, Category, Trace

LONGEST = 10                     # gaps that are listed
MAX_DEVICES = 64         # broken down one by one; a node has 8 or 16
_WALL = (*GPU_WORK, Category.RUNTIME, Category.CPU_OP, Category.PYTHON, Category.ANNOTATION)
STEP = re.compile(r"ProfilerStep#(\d+)$")


@dataclass(frozen=True)
class DeviceTime:
    """One GPU. compute_ns + communication_ns + memory_ns + idle_ns == wall_ns, exactly."""

    index: int
    name: str
    wall_ns: int
    busy_ns: int                         # union of all work
    idle_ns: int
    compute_ns: int
    communication_ns: int                # exposed
    memory_ns: int                       # exposed
    communication_overlapped_ns: int
    memory_overlapped_ns: int
    span_ns: int                         # first to last GPU work
    idle_in_span_ns: int
    launches: int
    kernel_ns: int                       # summed durations: larger than busy where streams overlap
    idle_causes: dict[str, int] = field(default_factory=dict)      # ns: host_late, queued, unknown, before_and_after
    longest_gaps: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Step:
    """One ProfilerStep#N: what the GPUs did between its CPU start and end (any GPU busy counts as busy)."""

    name: str
    start_ns: int
    end_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    communication_ns: int
    memory_ns: int


@dataclass(frozen=True)
class Breakdown:
    start_ns: int
    wall_ns: int
    devices: list[DeviceTime]
    steps: list[Step]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Work:
    """Busy time of one GPU (or of all): unions that contain each other."""

    compute: Intervals
    kernels: Intervals                   # compute and communication
    busy: Intervals
    communication: Intervals
    memory: Intervals


def breakdown(trace: Trace) -> Breakdown:
    """Every device that worked, and every step."""
    slices = trace.slices
    category, start, dur = (numbers(slices, name) for name in ("category", "start_ns", "dur_ns"))
    device = numbers(slices, "device")
    real = ~numbers(slices, "instant").astype(np.bool_)
    end = start + dur
    counted = real & np.isin(category, [int(kind) for kind in _WALL])
    counted = counted if counted.any() else real
    wall_start = int(start[counted].min()) if counted.any() else 0
    wall_end = int(end[counted].max()) if counted.any() else 0
    gpu = real & np.isin(category, [int(kind) for kind in GPU_WORK])
    names = {each.index: each.name for each in trace.devices}
    calls = launch_calls(trace)
    devices = []
    for index in np.unique(device[gpu])[:MAX_DEVICES].tolist():
        rows = np.flatnonzero(gpu & (device == index))
        work = _work(category[rows], start[rows], end[rows])
        causes, longest = _idle(trace, rows, work, calls, wall_start, wall_end)
        devices.append(_device(index, names.get(index, ""), category[rows], dur[rows], work, wall_start, wall_end,
                               causes, longest))
    everything = _work(category[gpu], start[gpu], end[gpu])
    return Breakdown(wall_start, wall_end - wall_start, devices, _steps(trace, category, start, end, everything))


def _work(category: npt.NDArray[Any], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> _Work:
    def of(*kinds: Category) -> Intervals:
        mask = np.isin(category, [int(kind) for kind in kinds])
        return intervals.union(start[mask], end[mask])

    compute, communication = of(Category.COMPUTE), of(Category.COMMUNICATION)
    memory = of(Category.MEMCPY, Category.MEMSET)
    kernels = intervals.join(compute, communication)
    return _Work(compute, kernels, intervals.join(kernels, memory), communication, memory)


def _device(index: int, name: str, category: npt.NDArray[Any], dur: npt.NDArray[np.int64], work: _Work, start_ns: int,
            end_ns: int, causes: dict[str, int], longest: list[dict[str, Any]]) -> DeviceTime:
    busy, compute, kernels = work.busy.length_ns, work.compute.length_ns, work.kernels.length_ns
    span = int(work.busy.end_ns[-1] - work.busy.start_ns[0]) if work.busy.start_ns.size else 0
    launched = np.isin(category, [int(Category.COMPUTE), int(Category.COMMUNICATION)])
    return DeviceTime(
        index=index, name=name, wall_ns=end_ns - start_ns, busy_ns=busy, idle_ns=end_ns - start_ns - busy,
        compute_ns=compute, communication_ns=kernels - compute, memory_ns=busy - kernels,
        communication_overlapped_ns=work.communication.length_ns - (kernels - compute),
        memory_overlapped_ns=work.memory.length_ns - (busy - kernels),
        span_ns=span, idle_in_span_ns=span - busy, launches=int(np.count_nonzero(launched)),
        kernel_ns=int(dur[launched].sum()), idle_causes=causes, longest_gaps=longest)


def _steps(trace: Trace, category: npt.NDArray[Any], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64],
           work: _Work) -> list[Step]:
    codes, names = dictionary(trace.slices, "name")
    wanted = np.array([bool(STEP.match(name)) for name in names] or [False], np.bool_)
    rows = np.flatnonzero((category == Category.ANNOTATION) & (codes >= 0) & wanted[codes])
    rows = rows[np.argsort(start[rows], kind="stable")]
    first, last = start[rows], end[rows]
    busy, compute, kernels = (intervals.overlap_ns(part, first, last) for part in (work.busy, work.compute, work.kernels))
    return [Step(names[codes[row]], int(first[i]), int(last[i]), int(busy[i]), int(last[i] - first[i] - busy[i]),
                 int(compute[i]), int(kernels[i] - compute[i]), int(busy[i] - kernels[i]))
            for i, row in enumerate(rows.tolist())]


def _idle(trace: Trace, rows: npt.NDArray[np.intp], work: _Work, calls: npt.NDArray[np.int64], start_ns: int,
          end_ns: int) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Idle time by cause, and the longest gaps.

    The work that ends a gap was launched by a call: until that call ended the host was late; from then on the work was
    queued and waited (launch latency, or another stream's or copy's result).
    """
    gaps = intervals.gaps(work.busy, start_ns, end_ns)
    start = numbers(trace.slices, "start_ns")
    begins = start[rows]
    order = np.argsort(begins, kind="stable")
    at = np.searchsorted(begins[order], gaps.end_ns)
    inside = (at < order.size) & (gaps.start_ns > start_ns)
    after = rows[order[np.minimum(at, order.size - 1)]]
    call = np.where(inside, calls[after], -1)
    call_end = start[np.maximum(call, 0)] + numbers(trace.slices, "dur_ns")[np.maximum(call, 0)]
    length = gaps.end_ns - gaps.start_ns
    late = np.where(call >= 0, np.clip(call_end - gaps.start_ns, 0, length), 0)
    causes = {
        "host_late_ns": int(late.sum()), "queued_ns": int((length - late)[call >= 0].sum()),
        "unknown_ns": int(length[inside & (call < 0)].sum()), "before_and_after_ns": int(length[~inside].sum()),
    }
    codes, names = dictionary(trace.slices, "name")
    longest = [{
        "start_ns": int(gaps.start_ns[i]), "end_ns": int(gaps.end_ns[i]), "dur_ns": int(length[i]),
        "next": names[codes[after[i]]] if inside[i] else None,
        "host_late_ns": int(late[i]) if call[i] >= 0 else None,
        "cpu": _cpu_during(trace, int(call[i]), int(gaps.start_ns[i]), int(gaps.end_ns[i])) if call[i] >= 0 else [],
    } for i in np.argsort(-length, kind="stable")[:LONGEST].tolist()]
    return causes, longest


def _cpu_during(trace: Trace, call: int, start_ns: int, end_ns: int, most: int = 3) -> list[dict[str, Any]]:
    """What the launching thread spent a gap in: the names with the most time within it (nested ones each in full)."""
    slices = trace.slices
    track = slices["track"][call].as_py()
    start, dur = numbers(slices, "start_ns"), numbers(slices, "dur_ns")
    rows = np.flatnonzero((numbers(slices, "track") == track) & (start < end_ns) & (start + dur > start_ns))
    overlap = np.minimum(start[rows] + dur[rows], end_ns) - np.maximum(start[rows], start_ns)
    codes, names = dictionary(slices, "name")
    total = np.bincount(codes[rows], weights=overlap.astype(np.float64), minlength=1)
    return [{"name": names[code], "ns": int(total[code])} for code in np.argsort(-total)[:most].tolist() if total[code] > 0]
