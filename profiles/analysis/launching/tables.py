"""The tables of the topic "launches"."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiles.analysis import intervals
from profiles.analysis.found import fitting
from profiles.analysis.frame import Frame, Ints
from profiles.analysis.launching.calls import Calls
from profiles.analysis.launching.graphs import Graph
from profiles.analysis.launching.order import Order, grouped
from profiles.analysis.launching.overlap import Copies, Run
from profiles.analysis.launching.queue import FULL, LIMIT, Queue
from profiles.analysis.launching.short import Short
from profiles.trace import Category, Cell, SummaryColumn, SummaryTable

MOST = 200
Bools = npt.NDArray[np.bool_]


def text(name: str) -> SummaryColumn:
    return SummaryColumn(name, text=True)


def ns(name: str) -> SummaryColumn:
    return SummaryColumn(name, "ns")


def count(name: str) -> SummaryColumn:
    return SummaryColumn(name, "count")


def kernel() -> SummaryColumn:
    """A full kernel name: pages show the short one, linked to the kernel."""
    return SummaryColumn("kernel", "kernel", text=True)


LINK = SummaryColumn("where", "slice")


def all_tables(order: Order, leads: Bools, queues: list[Queue], short: Short, calls: Calls, graphs: list[Graph],
               copies: list[Copies], serial: list[Run]) -> list[SummaryTable]:
    found = [delays(order, leads), streams(order, queues), shorts(order, short), call_names(order.frame, calls),
             outliers(order.frame, calls), graph_table(order.frame, graphs), nodes(order.frame, graphs),
             copy_table(order, copies), serial_table(order, serial)]
    return [fitting(table) for table in found if table.rows]


def delays(order: Order, leads: Bools) -> SummaryTable:
    """By kernel, those first whose launches the GPU waited for longest."""
    groups = grouped(order.name[leads], order.delay_ns[leads])
    place = np.searchsorted(groups.code, order.name[leads])

    def summed(values: Ints) -> Ints:
        return np.bincount(place, weights=values[leads], minlength=groups.code.size).astype(np.int64)

    parts = [summed(each) for each in (order.in_call_ns, order.queued_ns, order.ready_ns, order.late_ns)]
    rows = [[order.frame.names[groups.code[i]], int(groups.count[i]), float(groups.p50[i]), float(groups.p95[i]),
             int(groups.largest[i]),
             *(float(part[i] / groups.count[i]) for part in parts[:3]), int(parts[3][i])]
            for i in np.lexsort((-groups.total, -parts[3]))[:MOST].tolist()]
    return SummaryTable("Launch delay by kernel", [
        kernel(), count("launches"), ns("median delay"), ns("p95"), ns("longest"), ns("mean in the call"), ns("mean queued"),
        ns("mean ready"), ns("GPU waited for it")], rows,
        "From the begin of the call to the start of the kernel. In the call: the driver. Queued: the stream was busy. Ready: the "
        "stream "
        "was free and the call had returned. Graph launches count once, by their first node.")


def streams(order: Order, queues: list[Queue]) -> SummaryTable:
    rows: list[list[Cell]] = [[order.track_text(each.track), each.launches, round(each.mean, 2), each.most, each.blocked_ns,
             100.0 * each.blocked_ns / each.window_ns if each.window_ns else 0.0,
             100.0 * each.empty_ns / each.window_ns if each.window_ns else 0.0] for each in queues[:MOST]]
    return SummaryTable("Queues", [
        text("stream"), count("launches"), SummaryColumn("mean depth"), count("deepest"), ns("at the limit"),
        SummaryColumn("share at the limit", "pct"), SummaryColumn("share empty", "pct")], rows,
        f"Launches asked for and not started. A stream takes about {LIMIT:,}; then calls block (from {FULL:,} on it counts as "
        f"full). Empty: nothing waited to start.")


def shorts(order: Order, short: Short) -> SummaryTable:
    rows = np.flatnonzero(short.is_short | (short.won_ns > 0))
    groups = grouped(order.name[rows], order.dur_ns[rows])
    place = np.searchsorted(groups.code, order.name[rows])

    def summed(values: npt.NDArray[np.int64] | Bools) -> Ints:
        return np.bincount(place, weights=values[rows], minlength=groups.code.size).astype(np.int64)

    below, idle, won = summed(short.is_short), summed(order.gap_ns), summed(short.won_ns)
    return SummaryTable("Short kernels and gaps before launches", [
        kernel(), count("launches"), count("under 10 µs"), ns("GPU time"), ns("median"), ns("GPU idle before"),
        ns("a graph wins back")],
        [[order.frame.names[groups.code[i]], int(groups.count[i]), int(below[i]), int(groups.total[i]), float(groups.p50[i]),
          int(idle[i]),
          int(won[i])] for i in np.lexsort((-groups.total, -won))[:MOST].tolist()],
        "A graph wins back the idle time before a kernel in which its launch call had not returned, less the gap that queued "
        "kernels "
        "keep in this trace; gaps over 200 µs and gaps with a synchronisation in them are left out. An upper bound.")


def call_names(frame: Frame, calls: Calls) -> SummaryTable:
    groups = calls.groups
    late = np.bincount(np.searchsorted(groups.code, frame["name"][calls.outliers]), minlength=groups.code.size)
    return SummaryTable("Runtime calls", [
        text("call"), count("calls"), ns("total"), ns("median"), ns("p95"), ns("longest"), count("outliers"),
                                          text("waits on purpose")],
        [[frame.names[groups.code[i]], int(groups.count[i]), int(groups.total[i]), float(groups.p50[i]), float(groups.p95[i]),
          int(groups.largest[i]), int(late[i]), "yes" if calls.waits[i] else ""]
         for i in np.argsort(-groups.total, kind="stable")[:MOST].tolist() if groups.code[i] >= 0])


def outliers(frame: Frame, calls: Calls) -> SummaryTable:
    chosen = calls.outliers[:50]
    busy = intervals.union(frame["start_ns"][frame.work], frame.end_ns[frame.work])
    idle = frame["dur_ns"][chosen] - intervals.overlap_ns(busy, frame["start_ns"][chosen], frame.end_ns[chosen])
    around = frame.enclosing(chosen, Category.CPU_OP)
    return SummaryTable("Slow calls", [
        text("call"), ns("took"), ns("longer than its median by"), ns("GPU idle meanwhile"), text("operator around it"),
                                       text("thread"), LINK],
        [[frame.text(row), int(frame["dur_ns"][row]), int(calls.excess_ns[i]), int(idle[i]),
          frame.text(int(around[i])) if around[i] >= 0 else None, frame.tracks[int(frame["track"][row])].name,
          int(frame["id"][row])]
         for i, row in enumerate(chosen.tolist())],
        "Longer than 50 µs and than 10 times the median of its name; calls that wait for the GPU on purpose are left out. The 50 "
        "longest.")


def graph_table(frame: Frame, graphs: list[Graph]) -> SummaryTable:
    return SummaryTable("CUDA graphs", [
        text("graph"), count("replays"), count("nodes"), ns("time from first to last node"), ns("per replay"),
        SummaryColumn("busy", "pct"), ns("summed kernel time"), ns("launch calls"), LINK],
        [[graph.label, graph.replays, graph.node_count, graph.wall_ns, graph.wall_ns / graph.replays,
          100.0 * graph.busy_ns / graph.wall_ns if graph.wall_ns else None, graph.work_ns, graph.call_ns,
          int(frame["id"][graph.example])]
         for graph in graphs],
        "Launches of the same nodes are replays of one graph. Summed kernel time above the time from first to last node: branches "
        "ran "
        "side by side.")


def nodes(frame: Frame, graphs: list[Graph]) -> SummaryTable:
    rows = [[graph.label, place, frame.names[node.name], node.node_id or None, node.count, node.total_ns,
             node.total_ns / node.count,
             100.0 * node.total_ns / graph.work_ns if graph.work_ns else None, int(frame["id"][node.example])]
            for graph in graphs for place, node in enumerate(graph.nodes, 1)]
    return SummaryTable("Nodes of the graphs", [
        text("graph"), count("place"), kernel(), text("node in the file"), count("runs"), ns("total"), ns("mean"),
        SummaryColumn("of its graph", "pct"), LINK], [list(row) for row in rows[:2 * MOST]],
        "Each node by its place in the first replay, summed over all replays.")


def copy_table(order: Order, copies: list[Copies]) -> SummaryTable:
    names = order.frame.names
    return SummaryTable("Copies beside kernels", [
        text("copy"), text("stream"), count("copies"), SummaryColumn("moved", "bytes"), ns("total"), ns("hidden behind kernels"),
        ns("exposed"), text("why")],
        [[names[each.name], order.track_text(each.track), each.count, each.moved_bytes, each.total_ns,
          each.total_ns - each.exposed_ns,
          each.exposed_ns, each.why or None] for each in copies],
        "Exposed: no kernel ran on the GPU at that time.")


def serial_table(order: Order, serial: list[Run]) -> SummaryTable:
    frame = order.frame
    return SummaryTable("Small kernels one after the other", [
        kernel(), text("stream"), count("blocks"), count("SMs"), count("runs"), count("launches"), ns("total"),
        ns("saved side by side"), LINK],
        [[frame.names[each.name], order.track_text(each.track), each.blocks, each.sm_count, each.runs, each.launches,
          each.total_ns, each.saved_ns, int(frame["id"][each.example])] for each in serial],
        "Runs of one kernel and grid, fewer blocks than the GPU has SMs, less than 200 µs apart. Whether they depend on each "
        "other a "
        "trace does not say. An upper bound.")
