"""One function of a tree of boxes between its callers, above, and its callees, below: sums over every place that it stands at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from profiles.analysis.trace import flame
from profiles.analysis.trace.flame import ROOT, Tree
from profiles.charts.operators import ROWS, Box, boxes

OFFERED = 200                            # functions in the list, the longest first


@dataclass(frozen=True)
class Sandwich:
    """`callers`: rows from the outermost on top to the function at the bottom; `callees`: the function on top."""

    name: str
    total_ns: int
    count: int
    callers: list[Box]
    callees: list[Box]

    @property
    def caller_rows(self) -> int:
        return 1 + max((box.row for box in self.callers), default=0)

    @property
    def callee_rows(self) -> int:
        return 1 + max((box.row for box in self.callees), default=0)


def functions(nodes: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Return (name, time) of what the tree's nodes are called, the longest first; a call within itself counts once."""
    tree, names = _tree(nodes)
    ranked = sorted(((row["total"], names[row["label"]]) for row in flame.hot(tree)), reverse=True)
    return [(name, total_ns) for total_ns, name in ranked[:OFFERED] if name]


def sandwich(nodes: Sequence[Mapping[str, Any]], name: str) -> Sandwich | None:
    """Return a function's callers and callees, None where no node has its name.

    `nodes` as `boxes` takes them: parents before children, `total_ns` with everything below.
    """
    tree, names = _tree(nodes)
    if name not in names:
        return None
    callers, callees = flame.sandwich(tree, names.index(name))
    total_ns = callees.total[0]
    above = boxes(_nodes(callers, names), total_ns, chained_from=ROWS)      # the nearest callers by their own names
    last = max((box.row for box in above), default=0)
    return Sandwich(name, total_ns, callees.count[0], [replace(box, row=last - box.row) for box in above],
                    boxes(_nodes(callees, names), total_ns, chained_from=1))


def _tree(nodes: Sequence[Mapping[str, Any]]) -> tuple[Tree, list[str]]:
    """The nodes below a root, and the name of each label."""
    names = list(dict.fromkeys(str(node["name"]) for node in nodes))
    label = {name: number for number, name in enumerate(names)}
    tops = [node for node in nodes if node["parent"] < 0]
    return Tree(label=[ROOT, *(label[str(node["name"])] for node in nodes)],
                parent=[-1, *(node["parent"] + 1 for node in nodes)],
                total=[sum(node["total_ns"] for node in tops), *(node["total_ns"] for node in nodes)],
                count=[sum(node["count"] for node in tops), *(node["count"] for node in nodes)],
                first=[0] * (len(nodes) + 1)), names


def _nodes(tree: Tree, names: Sequence[str]) -> list[dict[str, Any]]:
    own = tree.self_ns()
    return [{"name": names[label], "parent": parent, "total_ns": total_ns, "own_ns": own_ns, "count": count}
            for label, parent, total_ns, own_ns, count in zip(tree.label, tree.parent, tree.total, own, tree.count, strict=True)]
