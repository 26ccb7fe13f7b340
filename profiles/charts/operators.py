"""The pictures of the operators' page as numbers for HTML: bars split by tensor cores, and boxes of GPU time by stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.analysis.core.sentences import pct_of

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
    for at, node in enumerate(nodes):
        below.setdefault(node["parent"], []).append(at)
    made: list[Box] = []
    # (nodes side by side, left edge of the first in ns, row)
    waiting = [(below.get(-1, []), 0, 0)]
    while waiting:
        beside, left_ns, row = waiting.pop()
        for at in sorted(beside, key=lambda each: -nodes[each]["total_ns"]):
            inner, chain = _chain(nodes, below, at) if row >= chained_from else (at, [_bare(nodes[at]["name"])])
            node = nodes[inner]
            if pct_of(node["total_ns"], gpu_ns) >= LEAST_PCT and row < ROWS:
                made.append(Box(_bare(node["name"]), " › ".join(chain), row, node["total_ns"], node["own_ns"], node["count"],
                                pct_of(node["total_ns"], gpu_ns), f"{pct_of(left_ns, gpu_ns):.4f}",
                                f"{pct_of(node['total_ns'], gpu_ns):.4f}", sum(node["name"].encode()) % 6, node["name"]))
                waiting.append((below.get(inner, []), left_ns, row + 1))
            left_ns += nodes[at]["total_ns"]
    return sorted(made, key=lambda box: (box.row, float(box.left)))


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
