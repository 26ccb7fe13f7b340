"""The topic "launches": is the host fast enough for the GPU, and what does the way from call to kernel cost?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.result import Finding, Result, cut_to_fit
from profiles.analysis.core.sentences import pct_of, pct_text, plural, time_text
from profiles.analysis.trace.launching import tables
from profiles.analysis.trace.launching.calls import (
    GAP_NS,
    SHORT_NS,
    Calls,
    ShortKernels,
    graphs,
    in_graph,
    runtime_calls,
    short_kernels,
    why_no_calls,
)
from profiles.analysis.trace.launching.order import DRAWN, FULL, LIMIT, Order, Queue, group_values, order_of, queue_points, queues
from profiles.analysis.trace.launching.overlap import Copies, Run, copies, serial_runs
from profiles.analysis.trace.plausibility.launches import count_launch_calls
from profiles.ingest.arrays import Bools, stable_order
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import CellRows, SummaryTable, summary_columns

# Kernels that end before they reach a steady state: what of their time is start, ramp and tail.
#
# A launch costs the GPU time whatever it computes: blocks are handed out, the first loads of every block find cold caches and an
# empty pipeline (ramp), and the last blocks end one by one (tail). Below STEADY_NS (20 µs, a rule of thumb) these parts are most
# of the kernel, so rates and occupancy of such a kernel say little of its code, and tuning it wins little: fewer and longer
# launches do.
#
# `floor_ns` is what a launch takes at least in this trace: the 5th percentile of its kernels' durations, where there are FEW or
# more, and FLOOR_NS at most (a kernel that does nothing takes some 1 to 1.5 µs of a GPU's time: a rule of thumb). Estimate of
# what fusing wins at most: the floor for every launch under STEADY_NS but one of each kernel. Not counted: the gaps before them
# (`launching.calls`).

STEADY_NS = 20_000
FLOOR_NS = 1_500
FEW = 20
UNSTEADY = {"time_pct": 20.0, "wall_pct": 2.0}      # of the kernels' time; of the wall time, to be more than a remark
MOST = 200


@dataclass(frozen=True)
class Brief:
    """Launches under STEADY_NS: a mask over the GPU work, and what they take together."""

    is_brief: Bools
    launches: int
    total_ns: int
    kernel_ns: int
    floor_ns: float | None
    most_ns: float | None                # that fusing them wins at most: an estimate

    @property
    def share_pct(self) -> float:
        return pct_of(self.total_ns, self.kernel_ns)


def brief_kernels(order: Order) -> Brief:
    brief = order.is_kernel & (order.dur_ns < STEADY_NS)
    count, names = int(np.count_nonzero(brief)), int(np.unique(order.name[brief]).size)
    durations = order.dur_ns[order.is_kernel]
    floor = min(float(np.percentile(durations, 5)), float(FLOOR_NS)) if durations.size >= FEW else None
    total = int(order.dur_ns[brief].sum())
    most = None if floor is None else min(float(total), floor * max(0, count - names))
    return Brief(brief, count, total, int(durations.sum()), floor, most)


def brief_table(order: Order, brief: Brief) -> SummaryTable:
    """Return one row per kernel with launches under STEADY_NS, most time first."""
    rows = np.flatnonzero(brief.is_brief)
    groups = group_values(order.name[rows], order.dur_ns[rows])
    everywhere = {int(code): int(number) for code, number in zip(*np.unique(order.name[order.is_kernel], return_counts=True),
                                                                 strict=True)}
    cells: CellRows = [
        [order.frame.names[groups.code[at]], int(groups.count[at]), everywhere.get(int(groups.code[at]), 0), int(groups.total[at]),
         float(groups.p50[at]), float(100.0 * min(1.0, brief.floor_ns / groups.p50[at])) if brief.floor_ns and groups.p50[at]
         else None]
        for at in stable_order(-groups.total)[:MOST].tolist()]
    columns = summary_columns("kernel: kernel | launches under 20 µs: count | launches: count | time in them: ns | "
                              "median: ns | floor of its median: pct")
    floor = (f"The floor, {time_text(brief.floor_ns)}, is the 5th percentile of all kernels here, {time_text(FLOOR_NS)} at "
             "most: about "
             "what a launch takes that does next to nothing.") if brief.floor_ns else f"Under {FEW} kernels: no floor is told."
    return SummaryTable("Kernels too short for a steady state", columns, cells,
                        f"Under 20 µs (a rule of thumb) start, ramp and tail are most of a kernel. {floor}")


def brief_finding(order: Order, brief: Brief, wall_ns: int, gpus: int) -> Finding | None:
    if brief.share_pct < UNSTEADY["time_pct"] or brief.launches < FEW:
        return None
    groups = group_values(order.name[brief.is_brief], order.dur_ns[brief.is_brief])
    top = order.frame.names[groups.code[int(np.argmax(groups.total))]]
    won = f": fusing them wins at most {time_text(brief.most_ns)} (estimate)" if brief.most_ns else ""
    weighs = brief.most_ns is not None and 100.0 * brief.most_ns / max(1, wall_ns * gpus) >= UNSTEADY["wall_pct"]
    return Finding(
        "unsteady_kernels", "medium" if weighs else "info",
        f"{pct_text(brief.share_pct)} of the kernels' time ({time_text(brief.total_ns)}) is in {brief.launches:,} launches "
        "under 20 µs, "
        f"which end before they reach a steady state, most in `{short_name(top)}`{won}",
        "Make fewer and longer launches: fuse neighbours (torch.compile, a fused optimizer), batch the work of several, or "
        "give each "
        "launch more of it. Tuning such a kernel by itself wins little.",
        {"launches": brief.launches, "brief_ns": brief.total_ns, "share_pct": brief.share_pct, "floor_ns": brief.floor_ns,
         "limit_ns": STEADY_NS}, worth_ns=None if brief.most_ns is None else brief.most_ns / gpus, kernel=top)


NOTABLE_PCT = {"won_pct": 2.0, "blocked_pct": 1.0, "outlier_pct": 1.0, "exposed_pct": 5.0,
         "serial_pct": 5.0}      # of the time of all GPUs; serial_pct: of the time of all kernels
_BINS_NS = np.array([0, *(int(10 ** (3 + step / 4)) for step in range(0, 25))])         # 1 µs to 1 s, four a decade


def launches_result(frame: Frame) -> Result:
    order = order_of(frame)
    if not order.is_kernel.any():
        called = count_launch_calls(frame)
        what = (f"The trace holds {plural(called, 'launch call')} and no GPU kernels: what was launched is not in it" if called else
                "The trace holds neither GPU kernels nor calls that launch them")
        return Result(f"{what}. Record with GPU activities on (`ProfilerActivity.CUDA`, `nsys profile -t cuda`).", applies=False)
    if not order.has_call.any():
        return Result(f"The trace does not say which call launched which kernel: {why_no_calls(frame)}", applies=False)
    start, end = frame.wall
    wall_ns = max(1, end - start)
    queue, short, calls = queues(order), short_kernels(order), runtime_calls(frame)
    graph, copied, serial, brief = graphs(order), copies(order), serial_runs(order), brief_kernels(order)
    leads = order.leads & order.has_call & order.is_kernel
    numbers = {
        "gpus": int(np.unique(order.device).size), "wall_ns": wall_ns, "start_ns": start, "end_ns": end,
        **_delay_numbers(order, leads),
               **_queue_numbers(order, queue, start, end),
        **_short_numbers(order, short), **_call_numbers(frame, calls), "graph_launches": sum(entry.replays for entry in graph),
        "graph_nodes_run": int(np.count_nonzero(in_graph(order))),
        "copy_exposed_ns": sum(copy.exposed_ns for copy in copied), "copy_total_ns": sum(copy.total_ns for copy in copied),
        "serial_saved_ns": sum(run.saved_ns for run in serial),
        "unsteady_launches": brief.launches, "unsteady_ns": brief.total_ns, "unsteady_limit_ns": STEADY_NS,
        "floor_ns": brief.floor_ns,
        "short_limit_ns": SHORT_NS, "gap_limit_ns": GAP_NS, "queue_limit": LIMIT, "queue_full_from": FULL,
               "thresholds_pct_of_wall": NOTABLE_PCT,
    }
    findings = [finding for finding in (_graph_finding(numbers), _full_queue_finding(numbers), _outlier_finding(numbers),
                               _exposed_copies_finding(numbers, copied, frame),
                               _serial_finding(serial, numbers, frame),
                               brief_finding(order, brief, wall_ns, numbers["gpus"])) if finding]
    shown = tables.all_tables(order, leads, queue, short, calls, graph, copied, serial)
    if brief.launches:
        shown.append(cut_to_fit(brief_table(order, brief)))
    return Result(_answer(numbers), numbers, shown, findings)


def _delay_numbers(order: Order, leads: Any) -> dict[str, Any]:
    delay = order.delay_ns[leads]
    if not delay.size:
        return {"launches": 0, "delay_p50_ns": None, "delay_p95_ns": None, "delay_bins": []}
    parts = {name: getattr(order, name)[leads] for name in ("in_call_ns", "queued_ns", "ready_ns")}
    place = np.searchsorted(_BINS_NS, delay, side="right") - 1
    most = np.argmax(np.stack(list(parts.values())), axis=0)             # the part that makes most of each delay
    counts = np.stack([np.bincount(place[most == part], minlength=_BINS_NS.size) for part in range(len(parts))])
    return {
        "launches": int(delay.size), "delay_p50_ns": float(np.median(delay)), "delay_p95_ns": float(np.percentile(delay, 95)),
        "delay_max_ns": int(delay.max()), **{f"{name.removesuffix('_ns')}_p50_ns": float(np.median(v)) for name,
                                             v in parts.items()},
        "behind_pct": 100.0 * float(np.count_nonzero(parts["queued_ns"] == 0)) / delay.size,      # found their stream idle
        "delay_bins": [{"from_ns": int(_BINS_NS[at]), "to_ns": int(_BINS_NS[at + 1]) if at + 1 < _BINS_NS.size else None,
                        **{name.removesuffix("_ns"): int(counts[part, at]) for part, name in enumerate(parts)}}
                       for at in range(int(place.min()), int(place.max()) + 1)],
    }


def _queue_numbers(order: Order, queues: list[Queue], start: int, end: int) -> dict[str, Any]:
    return {
        "queue_blocked_ns": max((queue.blocked_ns for queue in queues), default=0),
            "queue_most": max((queue.most for queue in queues), default=0),
        "queues": [{"stream": order.track_text(queue.track), "mean": queue.mean, "most": queue.most, "blocked_ns": queue.blocked_ns,
                    **queue_points(queue, start, end)} for queue in queues[:DRAWN] if queue.steps[0].size],
    }


def _short_numbers(order: Order, short: ShortKernels) -> dict[str, Any]:
    kernels = order.is_kernel
    return {
        "kernels": int(np.count_nonzero(kernels)), "kernel_ns": int(order.dur_ns[kernels].sum()),
        "short_kernels": int(np.count_nonzero(short.is_short)), "short_ns": int(order.dur_ns[short.is_short].sum()),
        "short_pct": 100.0 * float(np.count_nonzero(short.is_short)) / max(1, int(np.count_nonzero(kernels))),
        "graph_won_ns": int(short.won_ns.sum()), "graph_won_launches": int(np.count_nonzero(short.won_ns)),
        "kept_gap_ns": short.kept_gap_ns, "late_ns": int(order.late_ns.sum()), "idle_ns": int(order.gap_ns.sum()),
    }


def _call_numbers(frame: Frame, calls: Calls) -> dict[str, Any]:
    late = calls.outliers
    busy = intervals.union(frame["start_ns"][frame.work], frame.end_ns[frame.work])
    idle = intervals.without(intervals.union(frame["start_ns"][late], frame.end_ns[late]), busy)     # of several threads once
    return {"runtime_calls": int(calls.groups.count.sum()), "runtime_ns": int(calls.groups.total.sum()),
            "outliers": int(late.size), "outlier_ns": int(frame["dur_ns"][late].sum()),
            "outlier_excess_ns": int(calls.excess_ns.sum()),
            "outlier_idle_ns": idle.length_ns, "outlier_longest": frame.text(int(late[0])) if late.size else None}


def _share(numbers: dict[str, Any], name: str) -> float:
    """Of the wall time of all GPUs, 0-100."""
    return float(100 * numbers[name] / (numbers["wall_ns"] * max(1, numbers["gpus"])))


def _answer(numbers: dict[str, Any]) -> str:
    if numbers["graph_nodes_run"] > 0.5 * numbers["kernels"]:
        return (f"{plural(numbers['graph_launches'], 'graph launch')} ran {numbers['graph_nodes_run']:,} of "
                f"{numbers['kernels']:,} kernels and copies: one call each, so launching hardly costs; {numbers['launches']:,} "
                f"launches "
                "were made one by one or lead a graph.").replace("launchs", "launches")
    if numbers["launches"] < FEW:
        return f"Only {plural(numbers['launches'], 'launch')} with a known call: too few to judge how work reaches the GPU."
    behind, half = numbers["behind_pct"], time_text(numbers["delay_p50_ns"])
    if numbers["queue_blocked_ns"] > 0.01 * numbers["wall_ns"]:
        head = (f"The launch queue was full for {time_text(numbers['queue_blocked_ns'])} "
                f"({pct_text(100 * numbers['queue_blocked_ns'] / numbers['wall_ns'])} of the time): the host runs far ahead and "
                f"blocks")
    elif behind >= 50:
        head = (f"The host hardly keeps up: {pct_text(behind)} of {numbers['launches']:,} launches found their stream idle, half "
                f"of the "
                f"kernels start within {half} of their call")
    else:
        head = (f"The host keeps ahead of the GPU: only {pct_text(behind)} of {numbers['launches']:,} launches found their stream "
                f"idle, "
                f"half of the kernels start {half} or more after their call")
    tail = f"; {pct_text(numbers['short_pct'])} of the kernels run under 10 µs"
    if _share(numbers, "graph_won_ns") > 1:
        tail += (f", and CUDA graphs could win back up to {time_text(numbers['graph_won_ns'])} "
                 f"({pct_text(_share(numbers, 'graph_won_ns'))} of the wall time)")
    return head + tail + "."


def _graph_finding(numbers: dict[str, Any]) -> Finding | None:
    share = _share(numbers, "graph_won_ns")
    if share < NOTABLE_PCT["won_pct"]:
        return None
    gap_ns = numbers["kept_gap_ns"]
    return Finding(
        "graphs", "high" if share >= 15 else "medium",
        f"The GPU waits {time_text(numbers['graph_won_ns'])} ({pct_text(share)} of the wall time) for "
        f"{numbers['graph_won_launches']:,} launches "
        "that one CUDA graph could make at once",
        "Capture the steady part of the step as a CUDA graph (torch.cuda.graphs, torch.compile(mode=\"reduce-overhead\")), or "
        "fuse its "
        "small kernels (torch.compile). Both need fixed shapes.",
        {name: numbers[name] for name in ("graph_won_ns", "graph_won_launches", "short_kernels", "short_pct", "gap_limit_ns")}
        | {"kept_gap_ns": gap_ns, "share_pct": share}, worth_ns=numbers["graph_won_ns"] / numbers["gpus"])


def _full_queue_finding(numbers: dict[str, Any]) -> Finding | None:
    share = 100 * numbers["queue_blocked_ns"] / numbers["wall_ns"]
    if share < NOTABLE_PCT["blocked_pct"]:
        return None
    return Finding(
        "queue_full", "info",
        f"A stream's launch queue was full ({FULL:,} launches or more) for {time_text(numbers['queue_blocked_ns'])}: calls block "
        f"meanwhile",
        "Harmless while the GPU is busy, but host work behind such a call (data loading, another stream's launches) waits too. "
        "Launch "
        "from another thread, or launch fewer, larger pieces of work (CUDA graphs).",
        {"queue_blocked_ns": numbers["queue_blocked_ns"], "queue_most": numbers["queue_most"], "share_pct": share})


def _outlier_finding(numbers: dict[str, Any]) -> Finding | None:
    idle, all_of_it = (100 * numbers[name] / numbers["wall_ns"] for name in ("outlier_idle_ns", "outlier_ns"))
    if idle < NOTABLE_PCT["outlier_pct"] and all_of_it < 5 * NOTABLE_PCT["outlier_pct"]:
        return None
    return Finding(
        "slow_calls", "info" if idle < NOTABLE_PCT["outlier_pct"] else "medium" if idle < 10 else "high",
        f"{plural(numbers['outliers'], 'runtime call')} took far longer than usual ({time_text(numbers['outlier_ns'])} together, "
        f"the longest "
        f"`{numbers['outlier_longest']}`); no GPU worked during {time_text(numbers['outlier_idle_ns'])} of it",
        "Look at what they are in the table: allocations (use a caching allocator, reserve early), module loading on a kernel's "
        "first "
        "launch (warm up, CUDA_MODULE_LOADING=EAGER), a graph's first launch (upload it before), or a preempted host thread (pin "
        "threads, fewer workers than cores).",
        {name: numbers[name] for name in ("outliers", "outlier_ns", "outlier_excess_ns", "outlier_idle_ns")} | {"share_pct": idle},
        worth_ns=float(numbers["outlier_idle_ns"]))


def _exposed_copies_finding(numbers: dict[str, Any], copied: list[Copies], frame: Frame) -> Finding | None:
    share = _share(numbers, "copy_exposed_ns")
    if share < NOTABLE_PCT["exposed_pct"]:
        return None
    first = copied[0]
    return Finding(
        "copies_exposed", "medium",
        f"Copies run alone for {time_text(numbers['copy_exposed_ns'])} ({pct_text(share)} of the time): no kernel worked beside "
        f"them, most "
        f"in `{frame.names[first.name]}`",
        f"{first.why[:1].upper()}{first.why[1:]}.",
        {"copy_exposed_ns": numbers["copy_exposed_ns"], "copy_total_ns": numbers["copy_total_ns"], "share_pct": share},
        worth_ns=numbers["copy_exposed_ns"] / numbers["gpus"])


def _serial_finding(serial: list[Run], numbers: dict[str, Any], frame: Frame) -> Finding | None:
    saved, share = numbers["serial_saved_ns"], 100 * numbers["serial_saved_ns"] / max(1, numbers["kernel_ns"])
    if share < NOTABLE_PCT["serial_pct"]:
        return None
    first = serial[0]
    name = frame.names[first.name]
    return Finding(
        "serial_kernels", "medium" if _share(numbers, "serial_saved_ns") > 2 else "info",
        f"{sum(run.launches for run in serial):,} small launches run one after the other on their streams though together they "
        f"would fit on the GPU: up to {time_text(saved)} ({pct_text(share)} of the kernels' time), most in `{short_name(name)}` "
        f"with "
        f"{plural(first.blocks, 'block')} on {first.sm_count} SMs",
        "If they do not depend on each other, make them one launch (foreach or fused optimizer, grouped or batched GEMM), or put "
        "them "
        "on several streams.",
        {"serial_saved_ns": saved, "share_pct": share, "launches": sum(run.launches for run in serial), "blocks": first.blocks,
         "sm_count": first.sm_count}, worth_ns=saved / numbers["gpus"], kernel=name)
