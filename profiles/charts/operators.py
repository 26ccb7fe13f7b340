"""The pictures of the operators' page as numbers for HTML: bars split by tensor cores, and boxes of GPU time by stack.

One function of a tree of boxes between its callers, above, and its callees, below: sums over every place that it stands at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from profiles.analysis.core.sentences import pct_of
from profiles.analysis.trace import flame
from profiles.analysis.trace.flame import ROOT, Tree

ROWS = 16                               # of boxes, outermost on top
LEAST_PCT = 0.4                         # of the width: narrower boxes are left out
# key of a bar's part, its words, its colour and pattern
PARTS = (("yes", "on tensor cores", "use-yes"), ("no", "on CUDA cores", "use-no"), ("unknown", "name does not say", "use-unknown"),
         ("beside", "beside a product: copies, reductions", "use-beside"), ("other", "no matrix product", "use-other"))


@dataclass(frozen=True)
class Part:
    label: str
    css: str
    ns: int
    pct: float

    @property
    def width(self) -> str:
        return f"{self.pct:.3f}"


@dataclass(frozen=True)
class Bar:
    name: str
    total_ns: int
    share_pct: float
    parts: list[Part]               # widths in percent of the largest bar


@dataclass(frozen=True)
class Box:
    """One node of the tree; left and width in percent of the picture."""

    name: str                       # of the innermost of a chain of nodes with nothing between them
    path: str                       # the whole chain, outermost first
    row: int
    total_ns: int
    own_ns: int
    count: int
    share_pct: float
    left: str
    width: str
    hue: int                        # 0 to 5
    full_name: str                  # of its node, as the tree has it


def bars(rows: Sequence[Mapping[str, Any]], gpu_ns: int) -> list[Bar]:
    largest = max((bar["total_ns"] for bar in rows), default=0)
    return [Bar(bar["name"], bar["total_ns"], pct_of(bar["total_ns"], gpu_ns), [
        Part(label, css, bar[f"{key}_ns"], pct_of(bar[f"{key}_ns"], largest)) for key, label, css in PARTS if bar[f"{key}_ns"]])
        for bar in rows]


def legend(rows: Sequence[Mapping[str, Any]]) -> list[Part]:
    """The parts that occur, with their sums."""
    sums = [(label, css, sum(bar[f"{key}_ns"] for bar in rows)) for key, label, css in PARTS]
    total = sum(ns for _, _, ns in sums)
    return [Part(label, css, ns, pct_of(ns, total)) for label, css, ns in sums if ns]


def boxes(nodes: Sequence[Mapping[str, Any]], gpu_ns: int, *, chained_from: int = 0) -> list[Box]:
    """Return boxes side by side in order of time, a node's children below it.

    A chain without time of its own is one box where it begins in row `chained_from` or below.
    """
    below: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        below.setdefault(node["parent"], []).append(index)
    rectangles: list[Box] = []
    # (nodes side by side, left edge of the first in ns, row)
    waiting = [(below.get(-1, []), 0, 0)]
    while waiting:
        beside, left_ns, row = waiting.pop()
        for index in sorted(beside, key=lambda each: -nodes[each]["total_ns"]):
            inner, chain = _chain(nodes, below, index) if row >= chained_from else (index, [_bare(nodes[index]["name"])])
            node = nodes[inner]
            if pct_of(node["total_ns"], gpu_ns) >= LEAST_PCT and row < ROWS:
                rectangles.append(Box(_bare(node["name"]), " › ".join(chain), row, node["total_ns"], node["own_ns"], node["count"],
                                      pct_of(node["total_ns"], gpu_ns), f"{pct_of(left_ns, gpu_ns):.4f}",
                                      f"{pct_of(node['total_ns'], gpu_ns):.4f}", sum(node["name"].encode()) % 6, node["name"]))
                waiting.append((below.get(inner, []), left_ns, row + 1))
            left_ns += nodes[index]["total_ns"]
    return sorted(rectangles, key=lambda box: (box.row, float(box.left)))


def _chain(nodes: Sequence[Mapping[str, Any]], below: Mapping[int, list[int]], at: int) -> tuple[int, list[str]]:
    """The innermost node that a node's whole time goes on to, and the names on the way."""
    chain = [_bare(nodes[at]["name"])]
    while len(inner := below.get(at, [])) == 1 and nodes[inner[0]]["total_ns"] == nodes[at]["total_ns"] and len(chain) < 200:
        at = inner[0]
        chain.append(_bare(nodes[at]["name"]))
    return at, chain


def _bare(name: str) -> str:
    """A module by its own name."""
    return name.removeprefix("nn.Module: ")


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


# Trees and calls that a tool wrote as tables, as boxes: Proton's scopes, the callers and callees of cProfile's functions.

DEPTH, SCOPE, TIME, OWN, LAUNCHES = "Depth", "Scope or kernel", "Time", "Own time", "Launches"
FUNCTION, FILE, CALLS, CUMULATIVE = "Function", "File", "Calls", "Cumulative"
CALLER, CALLEE = "Caller", "Callee"


def tree_context(tables: Sequence[Mapping[str, Any]], of: str) -> dict[str, Any]:
    """Return the whole tree as `boxes` (none of cProfile, which keeps no paths), `functions` and the `sandwich` of one of them.

    `tables` as the store gives them; {} where none of them is a tree or a list of calls.
    """
    by_title = {str(table["title"]): table for table in tables}
    if nodes := _scopes(by_title.get("Scopes")):
        total_ns = sum(node["total_ns"] for node in nodes if node["parent"] < 0)
        drawn, offered = boxes(nodes, total_ns), functions(nodes)
        focus = sandwich(nodes, of) if of else None
        counted = "launches"
    elif calls := _rows(by_title.get(CALLS), (CALLER, CALLEE)):
        total_ns, drawn, counted = 0, [], "calls"
        of_all = _rows(by_title.get("Functions"), (FUNCTION, FILE))
        named = [(_named(row[FUNCTION], row[FILE]), row[CUMULATIVE] or 0) for row in of_all]
        offered = sorted(named, key=lambda each: -each[1])[:OFFERED]
        focus = _around(calls, of_all, of) if of else None
    else:
        return {}
    return {"boxes": drawn, "functions": offered, "sandwich": focus, "of": of, "counted": counted, "whole_ns": total_ns,
            "rows": 1 + max((box.row for box in drawn), default=0)}


def _rows(table: Mapping[str, Any] | None, needed: Sequence[str]) -> list[dict[str, Any]]:
    """Rows by the names of their columns; [] where one of `needed` is missing."""
    names = [str(column["name"]) for column in table["columns"]] if table else []
    return [dict(zip(names, row, strict=False)) for row in table["rows"]] if table and set(needed) <= set(names) else []


def _scopes(table: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Nodes as `boxes` takes them; parents come before their children, their depth says whose they are."""
    nodes: list[dict[str, Any]] = []
    above: dict[int, int] = {}
    for row in _rows(table, (DEPTH, SCOPE, TIME, OWN, LAUNCHES)):
        depth = int(row[DEPTH] or 0)
        nodes.append({"name": str(row[SCOPE]).strip(), "parent": above.get(depth - 1, -1) if depth else -1,
                      "total_ns": row[TIME] or 0, "own_ns": row[OWN] or 0, "count": row[LAUNCHES] or 0})
        above[depth] = len(nodes) - 1
    return nodes


def _named(name: Any, place: Any) -> str:
    """"encode (json/encoder.py:183)": a name alone may stand in several files."""
    return f"{name} ({place})" if place else str(name)


def _around(calls: Sequence[Mapping[str, Any]], of_all: Sequence[Mapping[str, Any]], name: str) -> Sandwich | None:
    """One function, those that call it and those that it calls; cProfile knows no paths beyond a pair."""
    own = next((row for row in of_all if _named(row[FUNCTION], row[FILE]) == name), None)
    if own is None:
        return None
    total_ns = int(own[CUMULATIVE] or 0)
    above = _star(name, own, calls, (CALLEE, "Callee's file"), (CALLER, "Caller's file"))
    below = _star(name, own, calls, (CALLER, "Caller's file"), (CALLEE, "Callee's file"))
    last = max((box.row for box in above), default=0)
    return Sandwich(name, total_ns, int(own[CALLS] or 0), [replace(box, row=last - box.row) for box in above], below)


def _star(name: str, own: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], mine: tuple[str, str], other: tuple[str, str]
          ) -> list[Box]:
    total_ns = int(own[CUMULATIVE] or 0)
    nodes: list[dict[str, Any]] = [{"name": name, "parent": -1, "total_ns": total_ns, "own_ns": int(own.get("Own") or 0),
                                    "count": int(own[CALLS] or 0)}]
    for row in calls:
        theirs = _named(row[other[0]], row.get(other[1]))
        if _named(row[mine[0]], row.get(mine[1])) == name and theirs != name:
            nodes.append({"name": theirs, "parent": 0, "total_ns": row[CUMULATIVE] or 0, "own_ns": row.get("Own") or 0,
                          "count": row[CALLS] or 0})
    return boxes(nodes, total_ns, chained_from=ROWS)
