"""Nested slices summed by call path: the tree of a flame graph, and who calls and is called by one name (sandwich).

A node is a path; its label is a name id, or one of the negative ones: TRACK - n is track n, the others have words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from profiles.ingest.arrays import Array, Ints, stable_order

ROOT, UNLINKED, REST = -1, -2, -3       # labels: everything; work whose launch is not known; paths beyond NODES
TRACK = -10
NODES = 300_000
SENT = 20_000
HOT = 300


def parents(track: Array, depth: Array, start_ns: Ints, end_ns: Ints) -> Ints:
    """Return, for each slice, the position of the one it is nested in, else -1.

    Depths are lanes: a slice lies in the nearest lane above that has a slice around it.
    """
    out = np.full(track.size, -1, np.int64)
    if not track.size:
        return out
    order = np.lexsort((start_ns, track, depth))
    by_depth = np.searchsorted(depth[order], np.arange(int(depth.max()) + 2))
    lanes = [order[by_depth[d]:by_depth[d + 1]] for d in range(int(depth.max()) + 1)]
    span = int(end_ns.max()) + 1
    keys = [track[lane].astype(np.int64) * span + start_ns[lane] for lane in lanes]
    for d in range(1, len(lanes)):
        open_ = lanes[d]
        for above in range(d - 1, -1, -1):
            if not open_.size or not lanes[above].size:
                continue
            position = np.searchsorted(keys[above], track[open_].astype(np.int64) * span + start_ns[open_], side="right") - 1
            candidate = lanes[above][np.maximum(position, 0)]
            inside = (position >= 0) & (track[candidate] == track[open_]) & (end_ns[open_] <= end_ns[candidate])
            out[open_[inside]] = candidate[inside]
            open_ = open_[~inside]
    return out


@dataclass
class Tree:
    """Parents come before their children. Times in ns; `total` is inclusive once `summed`."""

    label: list[int] = field(default_factory=lambda: [ROOT])
    parent: list[int] = field(default_factory=lambda: [-1])
    total: list[int] = field(default_factory=lambda: [0])
    count: list[int] = field(default_factory=lambda: [0])
    first: list[int] = field(default_factory=lambda: [2**62])
    known: dict[tuple[int, int], int] = field(default_factory=dict)
    lumped: int = 0                     # paths that did not get a node of their own

    def child(self, parent: int, label: int) -> int:
        node = self.known.get((parent, label))
        if node is not None:
            return node
        if len(self.label) >= NODES:
            self.lumped += 1
            if label == REST:
                return parent
            label = REST
            if (parent, REST) in self.known or self.label[parent] == REST:
                return self.known.get((parent, REST), parent)
        self.known[parent, label] = number = len(self.label)
        for column, value in ((self.label, label), (self.parent, parent), (self.total, 0), (self.count, 0), (self.first, 2**62)):
            column.append(value)
        return number

    def children(self, parent: Ints, label: Ints) -> Ints:
        """The node of each (parent node, label)."""
        if not parent.size:
            return np.empty(0, np.int64)
        base = int(label.min())
        pairs, place = np.unique(parent * (int(label.max()) - base + 1) + (label - base), return_inverse=True)
        width = int(label.max()) - base + 1
        nodes = np.array([self.child(int(pair) // width, int(pair) % width + base) for pair in pairs.tolist()], np.int64)
        return nodes[place]

    def add(self, node: Ints, time_ns: Ints, count: Array, first_ns: Ints) -> None:
        """Add time and calls of slices to their nodes."""
        used, place = np.unique(node, return_inverse=True)
        time, calls = np.zeros(used.size, np.int64), np.zeros(used.size, np.int64)
        first = np.full(used.size, 2**62)
        np.add.at(time, place, time_ns)
        np.add.at(calls, place, count)
        np.minimum.at(first, place, first_ns)
        for index, ns, n, begin in zip(used.tolist(), time.tolist(), calls.tolist(), first.tolist(), strict=True):
            self.total[index] += ns
            self.count[index] += n
            self.first[index] = min(self.first[index], begin)

    def nest_slices(self, parent: Ints, label: Array, depth: Array, roots: Ints) -> Ints:
        """Return the nodes of nested slices.

        They follow the path of names from the root that `roots` gives for the outermost.
        """
        node = np.zeros(parent.size, np.int64)
        for d in range(int(depth.max(initial=-1)) + 1):
            rows = np.flatnonzero(depth == d)
            above = np.where(parent[rows] >= 0, node[parent[rows]], roots[rows])
            node[rows] = self.children(above, label[rows].astype(np.int64))
        return node

    def sum_up(self, leaves: bool) -> Tree:
        """Make the totals inclusive.

        `leaves`: only leaves hold time so far; else every node but the roots without slices does.
        """
        own = {node for node in range(len(self.label)) if self.label[node] <= ROOT} if not leaves else None
        for node in range(len(self.label) - 1, 0, -1):
            up = self.parent[node]
            self.first[up] = min(self.first[up], self.first[node])
            if own is None or up in own:
                self.total[up] += self.total[node]
        return self

    def self_ns(self) -> list[int]:
        """Return the time of each node that none of its children has."""
        own = list(self.total)
        for node in range(1, len(self.label)):
            own[self.parent[node]] -= self.total[node]
        return [max(node_ns, 0) for node_ns in own]


def tree_columns(tree: Tree) -> dict[str, Any]:
    """Return the nodes of most time as columns.

    What the others add up to stands under each kept parent (label REST).
    """
    own = tree.self_ns()
    total = np.array(tree.total, np.int64)
    nodes = np.sort(stable_order(-total)[:SENT])
    place = np.full(total.size, -1, np.int64)
    place[nodes] = np.arange(nodes.size)
    columns: dict[str, list[int]] = {
        "label": [tree.label[node] for node in nodes], "total": total[nodes].tolist(), "self": [own[node] for node in nodes],
        "parent": [int(place[tree.parent[node]]) if node else -1 for node in nodes.tolist()],
        "count": [tree.count[node] for node in nodes], "first": [tree.first[node] for node in nodes]}
    rest: dict[int, list[int]] = {}
    for node in np.flatnonzero(place < 0).tolist():
        up = int(place[tree.parent[node]])
        if up >= 0:
            entry = rest.setdefault(up, [0, 0, 2**62])
            entry[0] += tree.total[node]
            entry[1] += tree.count[node]
            entry[2] = min(entry[2], tree.first[node])
    for up, (ns, count, first) in rest.items():
        for name, value in (("label", REST), ("total", ns), ("self", ns), ("parent", up), ("count", count), ("first", first)):
            columns[name].append(value)
    return {**columns, "nodes": len(tree.label), "lumped": tree.lumped}


def _outermost(tree: Tree) -> list[bool]:
    """Is no node above of the same label? What a recursive function takes is not counted twice."""
    below: list[list[int]] = [[] for _ in tree.label]
    for node in range(1, len(tree.label)):
        below[tree.parent[node]].append(node)
    out, open_ = [False] * len(tree.label), dict[int, int]()
    stack: list[tuple[int, bool]] = [(0, False)]
    while stack:
        node, leaving = stack.pop()
        label = tree.label[node]
        if leaving:
            open_[label] -= 1
            continue
        out[node] = not open_.get(label)
        open_[label] = open_.get(label, 0) + 1
        stack.append((node, True))
        stack += [(child, False) for child in below[node]]
    return out


def hot(tree: Tree) -> list[dict[str, int]]:
    """Return names by their own time.

    With inclusive time, own time and calls over all paths.
    """
    outermost, own = _outermost(tree), tree.self_ns()
    sums: dict[int, list[int]] = {}
    for node in range(1, len(tree.label)):
        entry = sums.setdefault(tree.label[node], [0, 0, 0])
        entry[0] += tree.total[node] if outermost[node] else 0
        entry[1] += own[node]
        entry[2] += tree.count[node]
    ranked = sorted(((label, *entry) for label, entry in sums.items() if label > ROOT), key=lambda row: (-row[2], -row[1]))
    return [dict(zip(("label", "total", "self", "count"), row, strict=True)) for row in ranked[:HOT]]


def sandwich(tree: Tree, label: int) -> tuple[Tree, Tree]:
    """Return (callers, callees) of a name.

    The paths to its outermost calls turned around, and everything below them merged.
    """
    outermost = _outermost(tree)
    callers, callees = Tree(label=[label]), Tree(label=[label])
    merged: dict[int, int] = {}
    for index in range(1, len(tree.label)):
        time = (tree.total[index], tree.count[index], tree.first[index])
        if tree.label[index] == label and outermost[index]:
            merged[index] = 0
            _take(callees, 0, time)
            _take(callers, 0, time)
            node, up = 0, tree.parent[index]
            while up > 0:
                node = callers.child(node, tree.label[up])
                _take(callers, node, time)
                up = tree.parent[up]
        elif tree.parent[index] in merged:
            merged[index] = callees.child(merged[tree.parent[index]], tree.label[index])
            _take(callees, merged[index], time)
    return callers, callees


def _take(tree: Tree, node: int, time: tuple[int, int, int]) -> None:
    tree.total[node] += time[0]
    tree.count[node] += time[1]
    tree.first[node] = min(tree.first[node], time[2])
