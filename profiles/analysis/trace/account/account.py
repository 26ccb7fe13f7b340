"""One account of the time: every nanosecond of wall time of every GPU under one cause, where and on which rank it starts.

`account_of` returns rows whose `wall_ns` add up to the wall time of each GPU. `recoverable_ns` is an upper bound of what the
run would win if the cause went away: never more than the row's own time, so that all rows together never exceed the run. None
where the trace cannot say. The lead is what has the most to win over all GPUs (`lead`); where nothing has a tenth of the time to
win, what the GPUs did the most.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from profiles.analysis.core import gpus, intervals
from profiles.analysis.core.frame import Frame, once_a_frame
from profiles.analysis.core.intervals import EMPTY, Intervals
from profiles.analysis.trace.account.causes import CAUSES, Group, Row
from profiles.analysis.trace.account.gpu import GpuTime, Names, gain_of, gpu_time
from profiles.analysis.trace.account.host import Host, pageable_rows
from profiles.analysis.trace.account.ranks import KERNEL_CAUSES, RankWait, rank_waits
from profiles.analysis.trace.launching.calls import short_kernels
from profiles.analysis.trace.launching.order import order_of
from profiles.analysis.trace.time.classes import SMALL_NS
from profiles.analysis.trace.time.steps import WARM_UP, Steps, StepVerdict, judge_steps, steps_of
from profiles.analysis.trace.time.tiling import DeviceWork, devices
from profiles.ingest.trace import Category

# What leads an account: the cause, or the causes that one change takes away together, with the most to win.

LEAD_PCT = 10.0                     # of all GPUs' time: a cause with less to win does not lead
TYPE_TIMES = 3
# The host does not keep up: whether it is then in a launch, between two, or the kernels are too short for any host, is one fault.
HOST_BOUND = ("host_launch", "small_kernels", "host_code")
LEAST_JOINED = 0.1                  # of what they win together: the rest beside the largest, to be told together


@dataclass(frozen=True)
class HostBound:
    """The causes of HOST_BOUND together, where one CUDA graph wins more than any other single cause; ns are means over the GPUs."""

    groups: tuple[Group, ...]       # the most to win first
    idle_ns: int                    # time that the GPU waits for a launch: what there is to win at most
    graph_ns: int                   # of that what launching the same kernels as one CUDA graph wins, at most


def lead_of(groups: Sequence[Group], wall_ns: int, graph_ns: int) -> tuple[Group | None, HostBound | None]:
    """Return what leads, and that it is a host which does not keep up where it is. `graph_ns`: what one CUDA graph wins.

    The cause with the most to win, else what the GPUs did the most. Tensor cores change results, so they lead only where they win
    TYPE_TIMES as much as what costs nothing. A group that stands for several causes has the time and the rows of all.
    """
    if not groups:
        return None, None
    bound = _host_bound(groups, wall_ns, graph_ns)
    if bound:
        joined = replace(bound.groups[0], wall_ns=bound.idle_ns, recoverable_ns=bound.idle_ns,
                         rows=tuple(row for group in bound.groups for row in group.rows))
        groups = sorted([joined, *(other for other in groups if other not in bound.groups)], key=lambda each: -each.gain_ns)
    lead = _lead(groups, wall_ns)
    return lead, bound if bound and lead is joined else None


def _host_bound(groups: Sequence[Group], wall_ns: int, graph_ns: int) -> HostBound | None:
    """The causes of a host that does not keep up, where a graph alone wins more than any other cause does."""
    mine = [group for group in groups if group.cause in HOST_BOUND and group.gain_ns and not group.rank]
    idle_ns = sum(group.gain_ns for group in mine)
    graph_ns = min(graph_ns, idle_ns)
    others = max((group.gain_ns for group in groups if group not in mine), default=0)
    if 100 * graph_ns < LEAD_PCT * wall_ns or graph_ns <= others or idle_ns - mine[0].gain_ns < LEAST_JOINED * idle_ns:
        return None
    return HostBound(tuple(mine), idle_ns, graph_ns)


def _lead(groups: Sequence[Group], wall_ns: int) -> Group:
    """`groups`: the most to win first."""
    worth = [group for group in groups if 100 * group.gain_ns >= LEAD_PCT * wall_ns]
    free = [group for group in worth if group.cause != "no_tensor_cores"]
    if worth and worth[0].cause == "no_tensor_cores" and free and worth[0].gain_ns < TYPE_TIMES * free[0].gain_ns:
        return free[0]
    if worth:
        return worth[0]
    most = max((group for group in groups if CAUSES[group.cause].side != "outside"), key=lambda each: (each.wall_ns, each.cause),
               default=None)
    return most if most and most.wall_ns * 20 >= wall_ns else max(groups, key=lambda each: (each.wall_ns, each.cause))


ONE_RANK = 0.75                     # of a cause's time: it is that rank's
WHERE_PCT = 2.0                     # of the wall time: a name with more is a row of its own
NAMED_PCT = 10.0                    # of a cause's time: a name with less does not stand for it
MOST_WHERE = 8                      # rows of one cause on one GPU
# Idle causes of which nothing can be said, or nothing won.
_NO_GAIN = ("outside", "warm_up")
_NOT_KNOWN = ("unknown", "unknown_kernels", "compute", "memory_traffic", "launch_latency", "profiler")


@dataclass(frozen=True)
class Account:
    wall_ns: int
    gpus: dict[int, str]            # number -> label
    rows: tuple[Row, ...]           # by GPU, the most time first
    groups: tuple[Group, ...]       # the most to win first
    lead: Group | None              # None without GPU work; of `host_bound` its causes in one
    host_bound: HostBound | None    # the lead is a host that does not keep up
    steps: int                      # marked or found
    step_ns: float | None           # mean of those that count: without warm-up; None where none do
    in_steps: dict[str, int]        # of these how many hold a usual share of each cause
    waits: tuple[RankWait, ...]


@once_a_frame
def account_of(frame: Frame) -> Account:
    """Return the account of a trace, made once: every page draws on it. Without GPU work it has no rows."""
    begin_ns, end_ns = frame.wall
    works = devices(frame) if end_ns > begin_ns else []
    if not works:
        return Account(max(0, end_ns - begin_ns), {}, (), (), None, None, 0, None, {}, ())
    steps, host, order = steps_of(frame, works), Host(frame), order_of(frame)
    verdicts = judge_steps(frame, steps.spans, works)
    warm = _warm_up(steps, verdicts)
    lengths_ns = [span.end_ns - span.start_ns for span, verdict in zip(steps.spans, verdicts, strict=True) if verdict.counts]
    times = []
    for work in works:
        marked = steps.spans if steps.source not in ("", "detected") else []
        mine = [span for span in marked if span.rank in (work.rank, "")]
        inside = intervals.union(*(np.array([getattr(span, name) for span in mine], np.int64) for name in ("start_ns", "end_ns")))
        times.append(gpu_time(frame, order, host, work, begin_ns, end_ns, inside, warm.get(work.rank, EMPTY)))
    waits = rank_waits(frame, times, _step_count(steps))
    rows = [row for time in times for row in _rows(frame, time, times, waits)]
    labels = {time.work.index: time.work.label for time in times}
    groups = group_rows(rows, len(times))
    lead, host_bound = lead_of(groups, end_ns - begin_ns, round(int(short_kernels(order).won_ns.sum()) / len(times)))
    return Account(end_ns - begin_ns, labels, tuple(rows), groups, lead, host_bound, _step_count(steps),
                   float(np.mean(lengths_ns)) if lengths_ns else None, _in_steps(steps, times), tuple(waits))


def _warm_up(steps: Steps, verdicts: Sequence[StepVerdict]) -> dict[str, Intervals]:
    """By rank when its leading, slow steps were."""
    slow = [span for span, verdict in zip(steps.spans, verdicts, strict=True) if verdict.why == WARM_UP]
    return {rank: intervals.union(*(np.array([getattr(span, name) for span in slow if span.rank == rank], np.int64)
                                    for name in ("start_ns", "end_ns"))) for rank in {span.rank for span in slow}}


def _step_count(steps: Steps) -> int:
    ranks = {span.rank for span in steps.spans}
    return len(steps.spans) // max(1, len(ranks))


def _in_steps(steps: Steps, times: list[GpuTime]) -> dict[str, int]:
    """By cause the steps of one rank in which it takes a quarter of its mean or more; the most over all GPUs."""
    out = dict.fromkeys(CAUSES, 0)
    for time in times:
        mine = [span for span in steps.spans if span.rank in (time.work.rank, "")]
        start, end = (np.array([getattr(span, name) for span in mine], np.int64) for name in ("start_ns", "end_ns"))
        inside = time.tiles.within(start, end)
        usual = (inside > 0) & (4 * inside * max(1, len(mine)) >= inside.sum(axis=1, keepdims=True))
        for cause, count in zip(time.tiles.labels, usual.sum(axis=1).tolist(), strict=True):
            out[cause] = max(out[cause], int(count))
    return out


def _rows(frame: Frame, gpu: GpuTime, times: list[GpuTime], waits: Sequence[RankWait]) -> list[Row]:
    """The rows of one GPU. Waits for another rank are taken out of its communication."""
    sums, work = gpu.tiles.sums(), gpu.work
    wall_ns = sum(sums.values())
    by_index = {time.work.index: time for time in times}
    rows: list[Row] = []
    mine = [wait for wait in waits if wait.waiting == work.index]
    left = sums["communication"]
    for wait in mine:
        late = by_index[wait.late]
        scale = min(1.0, left / max(1, sum(wait.causes.values())))
        for cause, ns in wait.causes.items():
            share_ns = min(left, round(ns * scale))
            left -= share_ns
            if share_ns:
                where = _where(wait.kernels.get(cause) or late.names.get(cause, []))
                rows.append(Row(work.index, cause, where, late.work.rank or late.work.label, share_ns,
                                0 if cause in _NO_GAIN else share_ns,
                                {"waits_in": wait.operation, "waits_for_gpu": wait.late, "collectives": wait.meetings}))
    sums = {**sums, "communication": left}
    rows += _own_excess(gpu, sums, [wait for wait in waits if wait.late == work.index])
    hidden_by = sums["compute"] + sums["memory_traffic"] + sums["unknown_kernels"] + sums["no_tensor_cores"]
    for cause, ns in sums.items():
        if ns:
            rows += _split(frame, gpu, cause, ns, wall_ns, hidden_by)
    return sorted(rows, key=lambda row: (-row.wall_ns, row.cause, row.where))


def _own_excess(gpu: GpuTime, sums: dict[str, int], waits: Sequence[RankWait]) -> list[Row]:
    """What a late GPU's kernels take more than those of the ranks that wait: taken out of `sums`, where its kernels are."""
    rows = []
    for cause in ("slow_gpu", "more_work"):
        found = max((one for one in waits if one.causes.get(cause)), key=lambda one: one.causes[cause], default=None)
        kernels = sum(sums[kernel_cause] for kernel_cause in KERNEL_CAUSES)
        if found is None or not kernels:
            continue
        excess_ns = min(found.causes[cause], kernels)
        parts = {kernel_cause: excess_ns * sums[kernel_cause] // kernels for kernel_cause in KERNEL_CAUSES}
        for kernel_cause, ns in parts.items():
            sums[kernel_cause] -= ns
        ns = sum(parts.values())
        if ns:
            names = found.kernels.get(cause, [])
            evidence: dict[str, Any] = {"names": [{"name": name[:200], "ns": name_ns} for name, name_ns in names[:3]]}
            if cause == "slow_gpu" and found.pace:
                pace = found.pace
                evidence |= {"slower_ns": pace.slower_ns, "slower_low_ns": pace.low_ns, "slower_high_ns": pace.high_ns,
                             "slower_pct": 100 * pace.slower_ns / max(1, pace.shared_ns), "compared_steps": pace.steps}
            rows.append(Row(gpu.work.index, cause, _where(names), gpu.work.rank or gpu.work.label, ns, ns, evidence))
    return rows


def _split(frame: Frame, each: GpuTime, cause: str, ns: int, wall_ns: int, computing_ns: int) -> list[Row]:
    """A cause's time by place: names with a share of their own, then the rest."""
    names = each.names.get(cause, [])
    total = sum(name_ns for _, name_ns in names)
    out, left = [], ns
    for name, name_ns in names[:MOST_WHERE]:
        part = min(left, ns * name_ns // total) if total else 0
        if part * 100 >= WHERE_PCT * wall_ns and name:
            out.append((name, part))
            left -= part
    if left and not out:
        out, left = [(_where(names), left)], 0
    elif left and out and left * 100 < WHERE_PCT * wall_ns:
        out[0] = (out[0][0], out[0][1] + left)
        left = 0
    if left:
        out.append(("", left))
    evidence = _evidence(frame, each, cause)
    gain = _gain(cause, ns, computing_ns)
    if cause == "pageable_copies" and gain is not None:     # pinned, the bytes still cross the link, beside what computes at best
        evidence["pinned_ns"] = _least_copy_ns(frame, each.work)
        gain = max(0, gain - max(0, (evidence["pinned_ns"] or 0) - computing_ns))
    if cause == "small_kernels":                        # what so short a kernel would take as part of another is not known
        gain = max(0, ns - int(evidence.get("running_ns") or 0))
    rows = []
    for name, part in out:
        own = round(gain * part / ns) if gain is not None else None
        if cause == "no_tensor_cores":
            gpu = gpus.lookup(each.work.name)
            own = round(part * gain_of(name or (names[0][0] if names else ""), gpu)) if gpu else None
        rows.append(Row(each.work.index, cause, name, each.work.rank, part, own, evidence))
    return rows


def _least_copy_ns(frame: Frame, work: DeviceWork) -> int | None:
    """Return what the pageable copies of a GPU would take over its link at least; None where its link is not known."""
    gpu = gpus.lookup(work.name)
    rate = gpu.host_link_bytes_s if gpu else None
    if rate is None:
        return None
    copied = np.maximum(frame["bytes"][np.intersect1d(work.rows, pageable_rows(frame))].astype(np.int64), 0)
    return round(1e9 * float(copied.sum()) / rate)


def _gain(cause: str, ns: int, computing_ns: int) -> int | None:
    """What the run would win at most without the cause, ns."""
    if cause in _NO_GAIN:
        return 0
    if cause in _NOT_KNOWN or (CAUSES[cause].side == "busy" and cause not in (
            "pageable_copies", "copies", "memset", "communication", "small_kernels", "serial_streams")):
        return None
    if cause in ("copies", "communication"):            # can hide behind what computes, not more
        return min(ns, computing_ns)
    if cause == "serial_streams":                       # two beside each other: half
        return ns // 2
    return ns


def _evidence(frame: Frame, gpu: GpuTime, cause: str) -> dict[str, Any]:
    work = gpu.work
    if cause in ("compute", "memory_traffic", "unknown_kernels", "no_tensor_cores", "small_kernels"):
        kernels = work.rows[frame["category"][work.rows] == Category.COMPUTE]
        out: dict[str, Any] = {"launches": int(kernels.size)}
        if cause == "small_kernels" and kernels.size:
            dur = frame["dur_ns"][kernels]
            small = kernels[dur < SMALL_NS]
            busy = intervals.union(frame["start_ns"][small], frame.end_ns[small]).length_ns
            out = {"launches": int(small.size), "mean_kernel_ns": int(dur[dur < SMALL_NS].mean()) if small.size else None,
                   "running_ns": busy}
        return out
    spent = {"host_ns": gpu.host_ns[cause]} if CAUSES[cause].side == "idle" and cause in gpu.host_ns else {}
    return {**spent, "names": [{"name": name[:200], "ns": ns} for name, ns in gpu.names.get(cause, [])[:3]]}


def _where(names: Names) -> str:
    """The name with the most time, "" where no name has a share worth saying."""
    name, ns = max(((name, ns) for name, ns in names if name), key=lambda pair: (pair[1], pair[0]), default=("", 0))
    return name if ns * 100 >= NAMED_PCT * sum(ns for _, ns in names) else ""


def group_rows(rows: Sequence[Row], count: int) -> tuple[Group, ...]:
    """Return the causes over all GPUs, the most to win first, then the most time."""
    by_cause: dict[str, list[Row]] = {}
    for row in rows:
        by_cause.setdefault(row.cause, []).append(row)
    groups = []
    for cause, mine in by_cause.items():
        whole = sum(row.wall_ns for row in mine)
        gains = [row.recoverable_ns for row in mine if row.recoverable_ns is not None]
        by_rank: dict[str, int] = {}
        for row in mine:
            by_rank[row.rank] = by_rank.get(row.rank, 0) + row.wall_ns
        rank, most = max(by_rank.items(), key=lambda pair: (pair[1], pair[0]))
        rank = rank if most >= ONE_RANK * whole and len({row.rank for row in rows}) > 1 else ""
        by_where: dict[str, int] = {}
        for row in mine:
            by_where[row.where] = by_where.get(row.where, 0) + row.wall_ns
        where = _where(list(by_where.items()))
        groups.append(Group(cause, where, rank, round(whole / count), round(sum(gains) / count) if gains else None, tuple(mine)))
    return tuple(sorted(groups, key=lambda each: (-each.gain_ns, -each.wall_ns, each.cause)))


_RANK = re.compile(r"rank (\d{1,9})$")


def rank_number(rank: str) -> int | str | None:
    """Return 3 for "rank 3"; another label as it is, None of a single trace."""
    match = _RANK.match(rank)
    return int(match[1]) if match else rank or None
