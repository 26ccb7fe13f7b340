"""The wall time of one GPU by cause: disjoint intervals that cover it, each under one key of CAUSES."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import gpus, intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import EMPTY, Intervals, select
from profiles.analysis.trace.account.causes import CAUSES
from profiles.analysis.trace.account.host import GENERIC, LATENCY_NS, Host, pageable_rows
from profiles.analysis.trace.launching.order import NEVER, Order
from profiles.analysis.trace.operators.tensor_cores import on_tensor_cores, type_of
from profiles.analysis.trace.time.classes import COMPUTE, MEMORY, REGIMES, SMALL_NS, UNKNOWN, kernels_of, kind_of
from profiles.analysis.trace.time.idle import busiest
from profiles.analysis.trace.time.tiling import DeviceWork, Tiling, in_turn, tiling
from profiles.ingest.arrays import Ints, Rows, sums_by
from profiles.ingest.trace import Category
from profiles.ingest.windows import MISSING32

# ---- work that waits ----
# Work that is launched and waits for another stream while the kernel that runs leaves most of the GPU empty.
# A kernel with fewer blocks than half of the GPU's SMs leaves room (CUDA C++ Programming Guide, "Concurrent Kernel Execution").
# While only such kernels run, a computing kernel of another stream that has been launched, and whose own stream is free, is held
# by an event or by the order of the legacy default stream. Whether it needs the result of what runs the trace does not say.

FILL = 0.5                          # of the SMs: a kernel with fewer blocks leaves room for another
WAITED_NS = 5_000                   # a shorter wait is the launch's own


def waiting_behind(order: Order, work: DeviceWork) -> tuple[Intervals, Rows]:
    """Return when a GPU ran small kernels alone while another stream's kernel waited, and the rows of those small kernels."""
    gpu = gpus.lookup(work.name)
    sms = gpu.sm_count if gpu else next((device.sm_count for device in order.frame.devices if device.index == work.index), 0)
    mine = np.flatnonzero((order.device == work.index) & (order.category == Category.COMPUTE))
    if not sms or not mine.size or np.unique(order.track[mine]).size < 2:
        return EMPTY, np.empty(0, np.intp)
    grid = [order.frame[f"grid_{axis}"][order.rows[mine]].astype(np.int64) for axis in "xyz"]
    has_grid = np.all([axis != MISSING32 for axis in grid], axis=0)
    blocks = np.prod([np.maximum(axis, 1) for axis in grid], axis=0)
    small = has_grid & (blocks < FILL * sms)
    ready = np.maximum(order.free_ns[mine], order.call_end_ns[mine])
    waits = order.has_call[mine] & (order.free_ns[mine] > NEVER) & (order.start_ns[mine] - ready > WAITED_NS)
    if not small.any() or not waits.any():
        return EMPTY, np.empty(0, np.intp)
    waiting = intervals.union(ready[waits], order.start_ns[mine][waits])
    running = intervals.union(order.start_ns[mine][small], order.end_ns[mine][small])
    full = intervals.union(order.start_ns[mine][~small], order.end_ns[mine][~small])
    spans = intervals.without(intervals.intersect(waiting, running), full)
    inside = small & (intervals.overlap_ns(spans, order.start_ns[mine], order.end_ns[mine]) > 0)
    return spans, order.rows[mine[inside]]


# ---- the wall time of one GPU by cause ----

Names = list[tuple[str, int]]               # what a cause's time was in, the most ns first
LAUNCH_NS = 30_000                          # of host time for one launch is usual for a framework (recorded: 5 to 30 µs)
_TENSOR = {"fp32": ("tf32_tensor", "fp16_tensor"), "fp16": ("fp16_tensor",)}      # before TF32 there was FP16 alone
_PRODUCTS = ("matrix product", "convolution", "attention")


@dataclass(frozen=True)
class GpuTime:
    """One GPU. `tiles` cover its wall time. `host_ns`: how long its launching threads were in each state, GPU idle or not."""

    work: DeviceWork
    tiles: Tiling
    names: dict[str, Names]
    host_ns: dict[str, int]


def gpu_time(frame: Frame, order: Order, host: Host, work: DeviceWork, begin_ns: int, end_ns: int,
             steps: Intervals, warm: Intervals = EMPTY) -> GpuTime:
    """Return the time of one GPU between two moments by cause.

    `steps`: marked steps, in which the host is known. `warm`: those that warm up.
    """
    names: dict[str, Names] = {}
    busy = _busy(frame, order, work, names)
    idle, launched = _idle(frame, host, work, begin_ns, end_ns, steps, names)
    for cause in GENERIC if warm.start_ns.size else ():
        own = intervals.intersect(idle.get(cause, EMPTY), warm)
        idle[cause] = intervals.without(idle.get(cause, EMPTY), own)
        idle["warm_up"] = intervals.join(idle.get("warm_up", EMPTY), own)
    small = _before_small(frame, work, idle.get("host_launch", EMPTY), launched)
    if small.start_ns.size:
        idle["host_launch"] = intervals.without(idle["host_launch"], small)
        busy["small_kernels"] = intervals.join(busy["small_kernels"], small)
    pieces = dict.fromkeys(CAUSES, EMPTY)
    for cause, piece in (*busy.items(), *idle.items()):
        pieces[cause] = intervals.join(pieces[cause], piece)
    return GpuTime(work, tiling(pieces), names, _host_ns(frame, host, work, begin_ns, end_ns))


def _host_ns(frame: Frame, host: Host, work: DeviceWork, begin_ns: int, end_ns: int) -> dict[str, int]:
    call = frame.call[work.rows]
    total: dict[str, int] = {}
    for track in busiest(frame["track"][call[call >= 0]].astype(np.int64)):
        for cause, spans in host.thread(track).sets.items():
            total[cause] = total.get(cause, 0) + intervals.clip(spans, begin_ns, end_ns).length_ns
    return total


def _busy(frame: Frame, order: Order, work: DeviceWork, names: dict[str, Names]) -> dict[str, Intervals]:
    """What the GPU did, by cause. Where work overlaps, the first of this order has the time."""
    kernels = kernels_of(frame, work)
    rows, regime = kernels.rows, kernels.regime
    small = frame["dur_ns"][rows] < SMALL_NS
    slow = without_tensor_cores(frame, rows, work.name) & ~small
    copies = work.rows[frame["category"][work.rows] == Category.MEMCPY]
    pageable = copies[np.isin(copies, pageable_rows(frame))]
    members: dict[str, Rows] = {
        "no_tensor_cores": rows[slow],
        **{cause: rows[(regime == REGIMES.index(name)) & ~small & ~slow] for cause, name in (
            ("compute", COMPUTE), ("memory_traffic", MEMORY), ("unknown_kernels", UNKNOWN))},
        "small_kernels": rows[small],
        "communication": work.rows[frame["category"][work.rows] == Category.COMMUNICATION],
        "pageable_copies": pageable,
        "copies": np.setdiff1d(copies, pageable),
        "memset": work.rows[frame["category"][work.rows] == Category.MEMSET]}
    sets = in_turn({cause: intervals.union(frame["start_ns"][mine], frame.end_ns[mine]) for cause, mine in members.items()})
    serial, waiting = waiting_behind(order, work)
    for cause in ("compute", "memory_traffic", "unknown_kernels", "small_kernels"):
        sets[cause] = intervals.without(sets[cause], serial)
    sets["serial_streams"] = intervals.without(intervals.intersect(serial, work.whole["compute"]), sets["no_tensor_cores"])
    names.update({cause: _names(frame, mine) for cause, mine in members.items()})
    names["serial_streams"] = _names(frame, waiting)
    return sets


def _names(frame: Frame, rows: Rows) -> Names:
    """Summed durations by name."""
    codes, place = np.unique(frame["name"][rows], return_inverse=True)
    total = sums_by(place, frame["dur_ns"][rows], codes.size)
    order = np.lexsort((codes, -total))[:20]
    return [(frame.names[int(codes[i])] if codes[i] >= 0 else "", int(total[i])) for i in order.tolist() if total[i]]


def without_tensor_cores(frame: Frame, rows: Rows, gpu_name: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Tell which kernels multiply matrices on CUDA cores, although the GPU has tensor cores for their type.

    By their names; fp64 products and those of GPUs that are not known are none.
    """
    gpu = gpus.lookup(gpu_name)
    if gpu is None or not rows.size:
        return np.zeros(rows.size, np.bool_)
    codes, place = np.unique(frame["name"][rows], return_inverse=True)
    names = [frame.names[code] if code >= 0 else "" for code in codes.tolist()]
    fits = [kind_of(name)[0] in _PRODUCTS and on_tensor_cores(name) == "no" and gain_of(name, gpu) > 0 for name in names]
    return np.array(fits, np.bool_)[place]


def gain_of(kernel: str, gpu: gpus.Gpu) -> float:
    """Return the share of a product's time that tensor cores would save at the peaks' ratio, 0 where there is no such peak."""
    kind = type_of(kernel)
    own = gpu.peaks.get(kind)
    tensor = next((gpu.peaks[name] for name in _TENSOR.get(kind, ()) if name in gpu.peaks), None)
    return max(0.0, 1 - own / tensor) if own and tensor else 0.0


@dataclass(frozen=True)
class _Launched:
    """The gaps that end with work whose call is known."""

    gaps: Intervals
    after: Ints             # row of the work that ends each


def _idle(frame: Frame, host: Host, work: DeviceWork, begin_ns: int, end_ns: int, steps: Intervals,
          names: dict[str, Names]) -> tuple[dict[str, Intervals], _Launched]:
    """Why the GPU did nothing, by cause."""
    gaps = intervals.gaps(work.busy, begin_ns, end_ns)
    position = np.searchsorted(frame["start_ns"][work.rows], gaps.end_ns)
    ended = position < work.rows.size
    after = np.where(ended, work.rows[np.minimum(position, work.rows.size - 1)], -1)
    call = np.where(ended, frame.call[after], -1)
    first = gaps.start_ns < work.span[0]
    known = ended & (call >= 0)
    returned = np.where(known, np.clip(frame.end_ns[call], gaps.start_ns, gaps.end_ns), gaps.end_ns)
    thread = np.where(call >= 0, frame["track"][call], -1).astype(np.int64)
    queued = gaps.end_ns - returned
    waits = known & ~first & (queued > LATENCY_NS)      # before its first work a GPU may do what was launched before the recording
    starting = known & (queued <= LATENCY_NS)
    out = {"stream_wait": select(returned, gaps.end_ns, waits),
           "unknown": select(gaps.start_ns, gaps.end_ns, ended & ~known & ~first),
           "outside": intervals.join(select(gaps.start_ns, gaps.end_ns, first & ~known),
                                     select(returned, gaps.end_ns, first & known & (queued > LATENCY_NS)))}
    names["stream_wait"] = _names_of_gaps(frame, after, np.where(waits, queued, 0))
    tracks = busiest(thread[known])
    unread = known & ~np.isin(thread, tracks)
    out["host_code"] = select(gaps.start_ns, returned, unread & ~first)
    out["launch_latency"] = select(returned, gaps.end_ns, starting & unread)
    for track in tracks:
        for some, known_only in ((known & (thread == track) & ~first, False), (known & (thread == track) & first, True)):
            late, latency = select(gaps.start_ns, returned, some), select(returned, gaps.end_ns, starting & some)
            _add(out, names, host, late, latency, track, known_only)
    tail = select(gaps.start_ns, gaps.end_ns, ~ended)
    within = intervals.intersect(tail, steps)
    last = frame.call[work.rows[-1]] if work.rows.size else -1
    if last >= 0 and within.start_ns.size:
        _add(out, names, host, within, EMPTY, int(frame["track"][last]), True)
        tail = intervals.without(tail, within)
    out["outside"] = intervals.join(out["outside"], tail)
    return out, _Launched(Intervals(gaps.start_ns[known], gaps.end_ns[known]), after[known])


def _add(out: dict[str, Intervals], names: dict[str, Names], host: Host, late: Intervals, latency: Intervals, track: int,
         known_only: bool) -> None:
    if not late.start_ns.size and not latency.start_ns.size:
        return
    for cause, piece in host.divide(late, latency, track, known_only).items():
        if not piece.start_ns.size:
            continue
        out[cause] = intervals.join(out.get(cause, EMPTY), piece)
        if CAUSES[cause].side == "idle":
            names[cause] = merge_names(names.get(cause, []), host.names(cause, piece, track))


def merge_names(*lists: Names) -> Names:
    """Add up what several lists say of one name, the most time first."""
    total: dict[str, int] = {}
    for names in lists:
        for name, ns in names:
            total[name] = total.get(name, 0) + ns
    return sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))


def _names_of_gaps(frame: Frame, after: Ints, ns: Ints) -> Names:
    codes, place = np.unique(frame["name"][after[ns > 0]], return_inverse=True)
    total = sums_by(place, ns[ns > 0], codes.size)
    return merge_names([(frame.names[int(code)] if code >= 0 else "", int(name_ns)) for code, name_ns in
                        zip(codes.tolist(), total.tolist(), strict=True)])


def _before_small(frame: Frame, work: DeviceWork, launching: Intervals, launched: _Launched) -> Intervals:
    """Of the time in which the host was launching the part that ends with a kernel under SMALL_NS, where a launch takes no longer
    than LAUNCH_NS: the kernels are too small for what any launch costs. Slower launches are the host's."""
    if not launching.start_ns.size or not launched.after.size:
        return EMPTY
    kernels = work.rows[frame["category"][work.rows] == Category.COMPUTE]
    ends_small = (frame["dur_ns"][launched.after] < SMALL_NS) & (frame["category"][launched.after] == Category.COMPUTE)
    if not ends_small.any() or not kernels.size:
        return EMPTY
    cost = intervals.overlap_ns(launching, launched.gaps.start_ns, launched.gaps.end_ns)
    usual = cost <= LAUNCH_NS
    chosen = ends_small & usual
    return intervals.intersect(launching, intervals.union(launched.gaps.start_ns[chosen], launched.gaps.end_ns[chosen]))
