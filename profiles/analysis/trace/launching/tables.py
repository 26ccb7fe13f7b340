"""The tables of the topic "launches"."""

from __future__ import annotations

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.result import cut_to_fit
from profiles.analysis.core.sentences import pct_of, share_pct
from profiles.analysis.trace.launching.calls import Calls, Graph, ShortKernels
from profiles.analysis.trace.launching.order import FULL, LIMIT, Order, Queue, group_values
from profiles.analysis.trace.launching.overlap import Copies, Run
from profiles.ingest.arrays import Bools, Ints, stable_order, sums_by
from profiles.ingest.trace import Category, CellRows, SummaryTable, summary_columns

MOST = 200


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
        return sums_by(place, values[leads], groups.code.size)

    parts = [sum_by_group(phase_ns) for phase_ns in (order.in_call_ns, order.queued_ns, order.ready_ns, order.late_ns)]
    rows = [[order.frame.names[groups.code[i]], int(groups.count[i]), float(groups.p50[i]), float(groups.p95[i]),
             int(groups.largest[i]),
             *(float(part[i] / groups.count[i]) for part in parts[:3]), int(parts[3][i])]
            for i in np.lexsort((-groups.total, -parts[3]))[:MOST].tolist()]
    return SummaryTable("Launch delay by kernel",
        summary_columns("kernel: kernel | launches: count | median delay: ns | p95: ns | longest: ns | mean in the call: ns | "
                        "mean queued: ns | mean ready: ns | GPU waited for it: ns"), rows,
        "From the begin of the call to the start of the kernel. In the call: the driver. Queued: the stream was busy. Ready: the "
        "stream "
        "was free and the call had returned. Graph launches count once, by their first node.")


def stream_table(order: Order, queues: list[Queue]) -> SummaryTable:
    rows: CellRows = [[order.track_text(queue.track), queue.launches, round(queue.mean, 2), queue.most, queue.blocked_ns,
             pct_of(queue.blocked_ns, queue.window_ns),
             pct_of(queue.empty_ns, queue.window_ns)] for queue in queues[:MOST]]
    return SummaryTable("Queues", summary_columns("stream: text | launches: count | mean depth | deepest: count | "
                                                  "at the limit: ns | share at the limit: pct | share empty: pct"), rows,
        f"Launches asked for and not started. A stream takes about {LIMIT:,}; then calls block (from {FULL:,} on it counts as "
        f"full). Empty: nothing waited to start.")


def short_table(order: Order, short: ShortKernels) -> SummaryTable:
    rows = np.flatnonzero(short.is_short | (short.won_ns > 0))
    groups = group_values(order.name[rows], order.dur_ns[rows])
    place = np.searchsorted(groups.code, order.name[rows])

    def sum_by_group(values: Ints | Bools) -> Ints:
        return sums_by(place, values[rows], groups.code.size)

    below, idle, won = sum_by_group(short.is_short), sum_by_group(order.gap_ns), sum_by_group(short.won_ns)
    return SummaryTable("Short kernels and gaps before launches",
        summary_columns("kernel: kernel | launches: count | under 10 µs: count | GPU time: ns | median: ns | "
                        "GPU idle before: ns | a graph wins back: ns"),
        [[order.frame.names[groups.code[i]], int(groups.count[i]), int(below[i]), int(groups.total[i]), float(groups.p50[i]),
          int(idle[i]),
          int(won[i])] for i in np.lexsort((-groups.total, -won))[:MOST].tolist()],
        "A graph wins back the idle time before a kernel in which its launch call had not returned, less the gap that queued "
        "kernels "
        "keep in this trace; gaps over 200 µs and gaps with a synchronisation in them are left out. An upper bound.")


def call_table(frame: Frame, calls: Calls) -> SummaryTable:
    groups = calls.groups
    late = np.bincount(np.searchsorted(groups.code, frame["name"][calls.outliers]), minlength=groups.code.size)
    return SummaryTable("Runtime calls", summary_columns("call: text | calls: count | total: ns | median: ns | p95: ns | "
                                                         "longest: ns | outliers: count | waits on purpose: text"),
        [[frame.names[groups.code[i]], int(groups.count[i]), int(groups.total[i]), float(groups.p50[i]), float(groups.p95[i]),
          int(groups.largest[i]), int(late[i]), "yes" if calls.waits[i] else ""]
         for i in stable_order(-groups.total)[:MOST].tolist() if groups.code[i] >= 0])


def outlier_table(frame: Frame, calls: Calls) -> SummaryTable:
    chosen = calls.outliers[:50]
    busy = intervals.union(frame["start_ns"][frame.work], frame.end_ns[frame.work])
    idle = frame["dur_ns"][chosen] - intervals.overlap_ns(busy, frame["start_ns"][chosen], frame.end_ns[chosen])
    around = frame.enclosing(chosen, Category.CPU_OP)
    return SummaryTable("Slow calls", summary_columns("call: text | took: ns | longer than its median by: ns | "
                                                      "GPU idle meanwhile: ns | operator around it: text | thread: text | "
                                                      "where: slice"),
        [[frame.text(row), int(frame["dur_ns"][row]), int(calls.excess_ns[i]), int(idle[i]),
          frame.text(int(around[i])) if around[i] >= 0 else None, frame.tracks[int(frame["track"][row])].name,
          int(frame["id"][row])]
         for i, row in enumerate(chosen.tolist())],
        "Longer than 50 µs and than 10 times the median of its name; calls that wait for the GPU on purpose are left out. The 50 "
        "longest.")


def graph_table(frame: Frame, graphs: list[Graph]) -> SummaryTable:
    return SummaryTable("CUDA graphs", summary_columns("graph: text | replays: count | nodes: count | "
                                                       "time from first to last node: ns | per replay: ns | busy: pct | "
                                                       "summed kernel time: ns | launch calls: ns | where: slice"),
        [[graph.label, graph.replays, graph.node_count, graph.wall_ns, graph.wall_ns / graph.replays,
          share_pct(graph.busy_ns, graph.wall_ns), graph.work_ns, graph.call_ns,
          int(frame["id"][graph.example])]
         for graph in graphs],
        "Launches of the same nodes are replays of one graph. Summed kernel time above the time from first to last node: branches "
        "ran "
        "side by side.")


def node_table(frame: Frame, graphs: list[Graph]) -> SummaryTable:
    rows = [[graph.label, place, frame.names[node.name], node.node_id or None, node.count, node.total_ns,
             node.total_ns / node.count,
             share_pct(node.total_ns, graph.work_ns), int(frame["id"][node.example])]
            for graph in graphs for place, node in enumerate(graph.nodes, 1)]
    return SummaryTable("Nodes of the graphs",
        summary_columns("graph: text | place: count | kernel: kernel | node in the file: text | runs: count | total: ns | "
                        "mean: ns | of its graph: pct | where: slice"), [list(row) for row in rows[:2 * MOST]],
        "Each node by its place in the first replay, summed over all replays.")


def copy_table(order: Order, copies: list[Copies]) -> SummaryTable:
    names = order.frame.names
    return SummaryTable("Copies beside kernels",
        summary_columns("copy: text | stream: text | copies: count | moved: bytes | total: ns | hidden behind kernels: ns | "
                        "exposed: ns | why: text"),
        [[names[copy.name], order.track_text(copy.track), copy.count, copy.moved_bytes, copy.total_ns,
          copy.total_ns - copy.exposed_ns,
          copy.exposed_ns, copy.why or None] for copy in copies],
        "Exposed: no kernel ran on the GPU at that time.")


def serial_table(order: Order, serial: list[Run]) -> SummaryTable:
    frame = order.frame
    return SummaryTable("Small kernels one after the other",
        summary_columns("kernel: kernel | stream: text | blocks: count | SMs: count | runs: count | launches: count | "
                        "total: ns | saved side by side: ns | where: slice"),
        [[frame.names[run.name], order.track_text(run.track), run.blocks, run.sm_count, run.runs, run.launches,
          run.total_ns, run.saved_ns, int(frame["id"][run.example])] for run in serial],
        "Runs of one kernel and grid, fewer blocks than the GPU has SMs, less than 200 µs apart. Whether they depend on each "
        "other a "
        "trace does not say. An upper bound.")
