"""The tables of the topic "launches"."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame, Ints
from profiles.analysis.core.result import cut_to_fit
from profiles.analysis.trace.launching.calls import Calls, ShortKernels
from profiles.analysis.trace.launching.graphs import Graph
from profiles.analysis.trace.launching.order import Order, group_values
from profiles.analysis.trace.launching.overlap import Copies, Run
from profiles.analysis.trace.launching.queue import FULL, LIMIT, Queue
from profiles.ingest.trace import Category, Cell, SummaryColumn, SummaryTable

MOST = 200
Bools = npt.NDArray[np.bool_]


def text_column(name: str) -> SummaryColumn:
    return SummaryColumn(name, text=True)


def ns_column(name: str) -> SummaryColumn:
    return SummaryColumn(name, "ns")


def count_column(name: str) -> SummaryColumn:
    return SummaryColumn(name, "count")


def kernel_column() -> SummaryColumn:
    """Return a column of full kernel names: pages show the short one, linked to the kernel."""
    return SummaryColumn("kernel", "kernel", text=True)


LINK = SummaryColumn("where", "slice")


def all_tables(order: Order, leads: Bools, queues: list[Queue], short: ShortKernels, calls: Calls, graphs: list[Graph],
               copies: list[Copies], serial: list[Run]) -> list[SummaryTable]:
    tables = [delay_table(order, leads), stream_table(order, queues), short_table(order, short), call_table(order.frame, calls),
             outlier_table(order.frame, calls), graph_table(order.frame, graphs), node_table(order.frame, graphs),
             copy_table(order, copies), serial_table(order, serial)]
    return [cut_to_fit(table) for table in tables if table.rows]


def delay_table(order: Order, leads: Bools) -> SummaryTable:
    """Return launch delays by kernel, those first that the GPU waited for longest."""
    groups = group_values(order.name[leads], order.delay_ns[leads])
    place = np.searchsorted(groups.code, order.name[leads])

    def sum_by_group(values: Ints) -> Ints:
        return np.bincount(place, weights=values[leads], minlength=groups.code.size).astype(np.int64)

    parts = [sum_by_group(each) for each in (order.in_call_ns, order.queued_ns, order.ready_ns, order.late_ns)]
    rows = [[order.frame.names[groups.code[i]], int(groups.count[i]), float(groups.p50[i]), float(groups.p95[i]),
             int(groups.largest[i]),
             *(float(part[i] / groups.count[i]) for part in parts[:3]), int(parts[3][i])]
            for i in np.lexsort((-groups.total, -parts[3]))[:MOST].tolist()]
    return SummaryTable("Launch delay by kernel", [
        kernel_column(), count_column("launches"), ns_column("median delay"), ns_column("p95"), ns_column("longest"),
        ns_column("mean in the call"), ns_column("mean queued"),
        ns_column("mean ready"), ns_column("GPU waited for it")], rows,
        "From the begin of the call to the start of the kernel. In the call: the driver. Queued: the stream was busy. Ready: the "
        "stream "
        "was free and the call had returned. Graph launches count once, by their first node.")


def stream_table(order: Order, queues: list[Queue]) -> SummaryTable:
    rows: list[list[Cell]] = [[order.track_text(each.track), each.launches, round(each.mean, 2), each.most, each.blocked_ns,
             100.0 * each.blocked_ns / each.window_ns if each.window_ns else 0.0,
             100.0 * each.empty_ns / each.window_ns if each.window_ns else 0.0] for each in queues[:MOST]]
    return SummaryTable("Queues", [
        text_column("stream"), count_column("launches"), SummaryColumn("mean depth"), count_column("deepest"),
        ns_column("at the limit"),
        SummaryColumn("share at the limit", "pct"), SummaryColumn("share empty", "pct")], rows,
        f"Launches asked for and not started. A stream takes about {LIMIT:,}; then calls block (from {FULL:,} on it counts as "
        f"full). Empty: nothing waited to start.")


def short_table(order: Order, short: ShortKernels) -> SummaryTable:
    rows = np.flatnonzero(short.is_short | (short.won_ns > 0))
    groups = group_values(order.name[rows], order.dur_ns[rows])
    place = np.searchsorted(groups.code, order.name[rows])

    def sum_by_group(values: npt.NDArray[np.int64] | Bools) -> Ints:
        return np.bincount(place, weights=values[rows], minlength=groups.code.size).astype(np.int64)

    below, idle, won = sum_by_group(short.is_short), sum_by_group(order.gap_ns), sum_by_group(short.won_ns)
    return SummaryTable("Short kernels and gaps before launches", [
        kernel_column(), count_column("launches"), count_column("under 10 µs"), ns_column("GPU time"), ns_column("median"),
        ns_column("GPU idle before"),
        ns_column("a graph wins back")],
        [[order.frame.names[groups.code[i]], int(groups.count[i]), int(below[i]), int(groups.total[i]), float(groups.p50[i]),
          int(idle[i]),
          int(won[i])] for i in np.lexsort((-groups.total, -won))[:MOST].tolist()],
        "A graph wins back the idle time before a kernel in which its launch call had not returned, less the gap that queued "
        "kernels "
        "keep in this trace; gaps over 200 µs and gaps with a synchronisation in them are left out. An upper bound.")


def call_table(frame: Frame, calls: Calls) -> SummaryTable:
    groups = calls.groups
    late = np.bincount(np.searchsorted(groups.code, frame["name"][calls.outliers]), minlength=groups.code.size)
    return SummaryTable("Runtime calls", [
        text_column("call"), count_column("calls"), ns_column("total"), ns_column("median"), ns_column("p95"),
        ns_column("longest"), count_column("outliers"),
                                          text_column("waits on purpose")],
        [[frame.names[groups.code[i]], int(groups.count[i]), int(groups.total[i]), float(groups.p50[i]), float(groups.p95[i]),
          int(groups.largest[i]), int(late[i]), "yes" if calls.waits[i] else ""]
         for i in np.argsort(-groups.total, kind="stable")[:MOST].tolist() if groups.code[i] >= 0])


def outlier_table(frame: Frame, calls: Calls) -> SummaryTable:
    chosen = calls.outliers[:50]
    busy = intervals.union(frame["start_ns"][frame.work], frame.end_ns[frame.work])
    idle = frame["dur_ns"][chosen] - intervals.overlap_ns(busy, frame["start_ns"][chosen], frame.end_ns[chosen])
    around = frame.enclosing(chosen, Category.CPU_OP)
    return SummaryTable("Slow calls", [
        text_column("call"), ns_column("took"), ns_column("longer than its median by"), ns_column("GPU idle meanwhile"),
        text_column("operator around it"),
                                       text_column("thread"), LINK],
        [[frame.text(row), int(frame["dur_ns"][row]), int(calls.excess_ns[i]), int(idle[i]),
          frame.text(int(around[i])) if around[i] >= 0 else None, frame.tracks[int(frame["track"][row])].name,
          int(frame["id"][row])]
         for i, row in enumerate(chosen.tolist())],
        "Longer than 50 µs and than 10 times the median of its name; calls that wait for the GPU on purpose are left out. The 50 "
        "longest.")


def graph_table(frame: Frame, graphs: list[Graph]) -> SummaryTable:
    return SummaryTable("CUDA graphs", [
        text_column("graph"), count_column("replays"), count_column("nodes"), ns_column("time from first to last node"),
        ns_column("per replay"),
        SummaryColumn("busy", "pct"), ns_column("summed kernel time"), ns_column("launch calls"), LINK],
        [[graph.label, graph.replays, graph.node_count, graph.wall_ns, graph.wall_ns / graph.replays,
          100.0 * graph.busy_ns / graph.wall_ns if graph.wall_ns else None, graph.work_ns, graph.call_ns,
          int(frame["id"][graph.example])]
         for graph in graphs],
        "Launches of the same nodes are replays of one graph. Summed kernel time above the time from first to last node: branches "
        "ran "
        "side by side.")


def node_table(frame: Frame, graphs: list[Graph]) -> SummaryTable:
    rows = [[graph.label, place, frame.names[node.name], node.node_id or None, node.count, node.total_ns,
             node.total_ns / node.count,
             100.0 * node.total_ns / graph.work_ns if graph.work_ns else None, int(frame["id"][node.example])]
            for graph in graphs for place, node in enumerate(graph.nodes, 1)]
    return SummaryTable("Nodes of the graphs", [
        text_column("graph"), count_column("place"), kernel_column(), text_column("node in the file"), count_column("runs"),
        ns_column("total"), ns_column("mean"),
        SummaryColumn("of its graph", "pct"), LINK], [list(row) for row in rows[:2 * MOST]],
        "Each node by its place in the first replay, summed over all replays.")


def copy_table(order: Order, copies: list[Copies]) -> SummaryTable:
    names = order.frame.names
    return SummaryTable("Copies beside kernels", [
        text_column("copy"), text_column("stream"), count_column("copies"), SummaryColumn("moved", "bytes"), ns_column("total"),
        ns_column("hidden behind kernels"),
        ns_column("exposed"), text_column("why")],
        [[names[each.name], order.track_text(each.track), each.count, each.moved_bytes, each.total_ns,
          each.total_ns - each.exposed_ns,
          each.exposed_ns, each.why or None] for each in copies],
        "Exposed: no kernel ran on the GPU at that time.")


def serial_table(order: Order, serial: list[Run]) -> SummaryTable:
    frame = order.frame
    return SummaryTable("Small kernels one after the other", [
        kernel_column(), text_column("stream"), count_column("blocks"), count_column("SMs"), count_column("runs"),
        count_column("launches"), ns_column("total"),
        ns_column("saved side by side"), LINK],
        [[frame.names[each.name], order.track_text(each.track), each.blocks, each.sm_count, each.runs, each.launches,
          each.total_ns, each.saved_ns, int(frame["id"][each.example])] for each in serial],
        "Runs of one kernel and grid, fewer blocks than the GPU has SMs, less than 200 µs apart. Whether they depend on each "
        "other a "
        "trace does not say. An upper bound.")
