"""CUDA (HIP) graphs: launches of whole graphs, and their nodes attributed to the kernels that ran for them.

A graph launch is one runtime call that owns several pieces of GPU work (same correlation id). Launches of the same names in
the same order are replays of one graph; a node is a place in that order. Node numbers of the file (`graph node id` of
Kineto, `graphNodeId` of Nsight Systems) are shown where it has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiles.analysis.core import intervals
from profiles.analysis.trace.launching.order import Order
from profiles.ingest.arrays import Bools, Int32, Ints, stable_order

LAUNCH = re.compile(r"GraphLaunch")
MOST_GRAPHS, MOST_NODES = 40, 600
_NODE_ID = ("graph node id", "graph node", "original graph node")


def in_graph(order: Order) -> Bools:
    """Return, for each piece of GPU work, whether a graph launch owns it."""
    frame, known = order.frame, np.flatnonzero(order.has_call)
    codes = frame["name"][order.call[known]]
    graph = [code for code in np.unique(codes).tolist() if code >= 0 and LAUNCH.search(frame.names[code])]
    mask = np.zeros(order.rows.size, np.bool_)
    mask[known[np.isin(codes, graph)]] = True
    return mask


@dataclass(frozen=True)
class Node:
    """One place in a graph: what ran for it in all replays."""

    name: int                           # code of its name
    node_id: str                        # as the file numbers it, "" where it does not
    count: int
    total_ns: int
    example: int                        # row of the frame


@dataclass(frozen=True)
class Graph:
    """Replays of one graph."""

    label: str                          # "A", "B", …, the most time first
    nodes: list[Node]
    node_count: int
    replays: int
    wall_ns: int                        # from first start to last end, summed over replays
    busy_ns: int                        # of that: some node ran
    work_ns: int                        # summed durations: more than busy where branches run side by side
    call_ns: int                        # time of the launch calls
    example: int                        # row of the first launch call


def graphs(order: Order) -> list[Graph]:
    """Return the graphs that were launched, most time first."""
    rows = np.flatnonzero(in_graph(order))
    if not rows.size:
        return []
    rows = rows[stable_order(order.call[rows])]
    calls, first, count = np.unique(order.call[rows], return_index=True, return_counts=True)
    # nodes of parallel branches start in changing order: which names ran, and how often, tells the graph
    signature = np.stack((np.add.reduceat(_mix_codes(order.name[rows]), first).view(np.int64), count))
    _, which = np.unique(signature, axis=1, return_inverse=True)
    which = which.reshape(-1)
    of_row = np.repeat(which, count)
    wall = np.maximum.reduceat(order.end_ns[rows], first) - np.minimum.reduceat(order.start_ns[rows], first)
    walls = np.bincount(which, weights=wall)
    return [_graph(order, _label(number), rows[of_row == each], calls[which == each], int(wall[which == each].sum()))
            for number, each in enumerate(stable_order(-walls)[:MOST_GRAPHS].tolist())]


def _mix_codes(codes: Int32) -> npt.NDArray[np.uint64]:
    """A 64-bit mix of each code (splitmix64): sums of them tell multisets of names apart."""
    with np.errstate(over="ignore"):
        x = (codes.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
        return mixed


def _label(number: int) -> str:
    return chr(65 + number) if number < 26 else f"{chr(64 + number // 26)}{chr(65 + number % 26)}"


def _graph(order: Order, label: str, rows: Ints, calls: Ints, wall_ns: int) -> Graph:
    """`rows`: positions of all work of all replays; `calls`: rows of the launch calls."""
    replays = calls.size
    # replays as a table, a row each: nodes by name, then by start; the n-th launch of a name is one node in all of them
    table = rows[np.lexsort((order.start_ns[rows], order.name[rows], order.call[rows]))].reshape(replays, -1)
    sums = order.dur_ns[table].sum(0)
    place = stable_order(order.start_ns[table[0]])[:MOST_NODES]
    nodes = [Node(int(order.name[table[0, at]]), _node_id(order, int(table[0, at])), replays, int(sums[at]),
                  int(order.rows[table[0, at]])) for at in place.tolist()]
    busy = intervals.union(order.start_ns[rows], order.end_ns[rows]).length_ns
    return Graph(label, nodes, table.shape[1], replays, wall_ns, busy, int(sums.sum()),
                 int(order.frame["dur_ns"][calls].sum()), int(calls[0]))


def _node_id(order: Order, position: int) -> str:
    said = order.frame.arguments(int(order.rows[position]))
    return next((str(said[key])[:40] for key in _NODE_ID if key in said), "")
