"""GPU time by what launched it, as a tree: stacks, modules or ranges on the CPU, with the time of the GPU work below each.

A node is a name below the same names: the slices of a function that is called a thousand times from one place are one node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profiles.analysis.core.columns import rows_by_value
from profiles.analysis.core.frame import Frame
from profiles.ingest.arrays import Bools, Ints, stable_order
from profiles.ingest.trace import Category

NONE = -1
STEP = "ProfilerStep"
_DIFFERING = re.compile(r" (object )?at 0x[0-9a-fA-F]+|, (seq|op_id) = \d+")      # the latter of torch.autograd.profiler.emit_nvtx
FORWARD_TO_BACKWARD = "fwdbwd"              # libkineto's flow from an operator to the one that computes its gradient


@dataclass(frozen=True)
class Tree:
    """Nodes as columns, parents before their children. `leaf` is the node of each given row, -1 where it has none."""

    name: Ints                              # numbers into the frame's names
    parent: Ints
    depth: Ints
    total_ns: Ints                          # of the node and everything below it
    own_ns: Ints
    count: Ints                             # GPU work of the node and below
    leaf: Ints

    def path(self, node: int) -> list[int]:
        """Return the nodes from the root to one."""
        out = []
        while node >= 0:
            out.append(node)
            node = int(self.parent[node])
        return out[::-1]


def ancestors(frame: Frame, rows: Ints) -> Ints:
    """Return `rows` and everything around them, in order.

    What contains a slice comes before it.
    """
    mask = np.zeros(frame.rows, np.bool_)
    left = np.unique(rows[rows >= 0])
    while left.size:
        mask[left] = True
        above = np.unique(frame.parent[left])
        left = above[(above >= 0) & ~mask[above]]
    return np.flatnonzero(mask)


def nearest(frame: Frame, rows: Ints, wanted: Bools) -> Ints:
    """Return, for each of `rows`, the innermost of `wanted` that is it or contains it, else -1."""
    current = np.asarray(rows, np.int64).copy()
    left = np.flatnonzero(current >= 0)
    while left.size:
        left = left[~wanted[current[left]]]
        current[left] = frame.parent[current[left]]
        left = left[current[left] >= 0]
    return current


def tree_of(frame: Frame, leaves: Ints, ns: Ints, wanted: Bools) -> Tree:
    """The tree of the `wanted` slices around `leaves` (-1: none), each of which carries `ns`."""
    inner = nearest(frame, leaves, wanted)
    around = ancestors(frame, inner)
    around = around[wanted[around]]
    above = nearest(frame, frame.parent[around], wanted)
    place = np.full(frame.rows, NONE, np.int64)
    place[around] = np.arange(around.size)
    over = np.where(above >= 0, place[above], NONE)
    depth = _depths(over)
    names = canonical(frame, frame["name"][around].astype(np.int64))
    node, node_name, node_parent, node_depth = _nodes(over, depth, names, len(frame.names))
    leaf = np.where(inner >= 0, node[place[inner]], NONE) if around.size else np.full(leaves.size, NONE, np.int64)
    own, count = (np.zeros(node_name.size, np.int64) for _ in range(2))
    has_leaf = leaf >= 0
    np.add.at(own, leaf[has_leaf], ns[has_leaf])
    np.add.at(count, leaf[has_leaf], 1)
    total = own.copy()
    for level in range(int(node_depth.max(initial=0)), 0, -1):
        here = np.flatnonzero(node_depth == level)
        np.add.at(total, node_parent[here], total[here])
        np.add.at(count, node_parent[here], count[here])
    return Tree(node_name, node_parent, node_depth, total, own, count, leaf)


def _depths(over: Ints) -> Ints:
    """How many are above each."""
    depth, up = np.zeros(over.size, np.int64), over
    left = np.flatnonzero(up >= 0)
    up = up[left]
    while left.size:
        depth[left] += 1
        up = over[up]
        left, up = left[up >= 0], up[up >= 0]
    return depth


def readable(name: str) -> str:
    """Return a name without what differs from call to call.

    A step's number, an object's address.
    """
    return STEP if name.startswith(STEP + "#") else _DIFFERING.sub("", name)


def canonical(frame: Frame, names: Ints) -> Ints:
    """Number names, those that read alike as one; -1 stays."""
    used, index = np.unique(names, return_inverse=True)
    first: dict[str, int] = {}
    same = [first.setdefault(readable(frame.names[code]), code) if code >= 0 else code for code in used.tolist()]
    return np.array(same, np.int64)[index] if used.size else names


def _nodes(over: Ints, depth: Ints, names: Ints, most: int) -> tuple[Ints, Ints, Ints, Ints]:
    """(node of each slice, name, parent and depth of each node)."""
    node = np.full(over.size, NONE, np.int64)
    parts: list[tuple[Ints, Ints, Ints]] = []
    count = 0
    order = stable_order(depth)
    ends = np.searchsorted(depth[order], np.arange(int(depth.max(initial=-1)) + 2))
    for level in range(ends.size - 1):
        rows = order[ends[level]:ends[level + 1]]
        parents = np.where(over[rows] >= 0, node[over[rows]], NONE)
        keys, index = np.unique((parents + 1) * (most + 1) + names[rows] + 1, return_inverse=True)
        node[rows] = count + index
        count += keys.size
        parts.append((keys % (most + 1) - 1, keys // (most + 1) - 1, np.full(keys.size, level, np.int64)))
    if not parts:
        empty = np.empty(0, np.int64)
        return node, empty, empty, empty
    columns: list[Ints] = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return node, columns[0], columns[1], columns[2]


def forward_of(frame: Frame) -> Ints:
    """Return, for each row, the operator whose gradient it computes, else -1.

    By the arrows that torch.profiler draws from forward to backward.
    """
    out = np.full(frame.rows, NONE, np.int64)
    flows = frame.flows
    if FORWARD_TO_BACKWARD not in flows.kinds:
        return out
    ours = flows.kind == flows.kinds.index(FORWARD_TO_BACKWARD)
    ops = frame.of(Category.CPU_OP)
    if not ops.size:
        return out
    rows = _beginning_at(frame, ops, flows.track[ours].astype(np.int64), flows.time_ns[ours])
    flow, is_end = flows.flow[ours], flows.is_end[ours]
    starts = np.flatnonzero(~is_end & (rows >= 0))
    if not starts.size:
        return out
    starts = starts[stable_order(flow[starts])]
    ends = np.flatnonzero(is_end & (rows >= 0))
    positions = np.minimum(np.searchsorted(flow[starts], flow[ends]), starts.size - 1)
    same = flow[starts[positions]] == flow[ends]
    out[rows[ends[same]]] = rows[starts[positions[same]]]
    return out


def _beginning_at(frame: Frame, ops: Ints, track: Ints, time_ns: Ints) -> Ints:
    """The outermost of `ops` that begins on the track at that moment, else the innermost that runs there then; -1: none."""
    lane, start = frame["track"][ops].astype(np.int64), frame["start_ns"][ops]
    order = np.lexsort((frame["depth"][ops], start, lane))
    lanes, first = np.unique(lane[order], return_index=True)
    out = np.full(track.size, NONE, np.int64)
    asked_on = rows_by_value(track)
    for lane_number, lo, hi in zip(lanes.tolist(), first.tolist(), np.append(first, order.size)[1:].tolist(), strict=True):
        mine = asked_on.get(lane_number)
        if mine is None:
            continue
        rows = ops[order[lo:hi]]
        starts = frame["start_ns"][rows]
        positions = np.searchsorted(starts, time_ns[mine], side="left")
        exact = (positions < rows.size) & (starts[np.minimum(positions, rows.size - 1)] == time_ns[mine])
        before = np.searchsorted(starts, time_ns[mine], side="right") - 1
        chosen = np.where(exact, np.minimum(positions, rows.size - 1), np.maximum(before, 0))
        row = rows[chosen]
        runs = exact | ((before >= 0) & (frame.end_ns[row] >= time_ns[mine]))
        out[mine[runs]] = row[runs]
    return out
