"""Where the least time lies: of each module or range around the launches, and of each part of a layer.

The own times of ranges, those outside of any among them, add up to what the steps take and need; so do the parts of layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from profiles.analysis.core.frame import Ints
from profiles.analysis.trace.layer.calls import calls_of
from profiles.analysis.trace.layer.parts import ORDER, parts_of
from profiles.analysis.trace.layer.spans import complete_parts
from profiles.analysis.trace.needed.needs import Needs
from profiles.analysis.trace.operators.owned import owned_work
from profiles.analysis.trace.operators.tables import sum_below
from profiles.analysis.trace.operators.topic import module_tree
from profiles.analysis.trace.operators.tree import readable
from profiles.ingest.trace import Cell, SummaryColumn, SummaryTable

MOST_RANGES = 300                   # those of most time; what lies in others counts as their outer one's own
NAME_CHARS = 200
MODULE = "nn.Module: "


@dataclass(frozen=True)
class Range:
    """One module or range, its calls summed. Times in ns, of all GPU work within the steps; `own`: outside of inner ranges."""

    name: str                           # "" of what no range is around
    within: str                         # names around it, outermost first
    parent: int                         # number of the range around it, -1: none
    launches: int
    takes_ns: int
    least_ns: int
    unknown_ns: int                     # of it, kernels whose work is not known: the least time is that of the others
    own_takes_ns: int
    own_least_ns: int


@dataclass(frozen=True)
class LayerPart:
    """One part of a layer, of all layers. Times in ns, of compute kernels within the steps."""

    part: str                           # "" of what is no part
    launches: int
    takes_ns: int
    least_ns: int
    unknown_ns: int


@dataclass(frozen=True)
class Places:
    what: str                           # "module", "range", "" where none is recorded
    ranges: Sequence[Range]             # outer ones before inner ones
    layers: int                         # passed forward on all GPUs together, 0: none is known
    parts: Sequence[LayerPart]          # in the order of a layer; [] without layers
    has_least: bool = False             # the least time of any work is known

    def numbers(self) -> dict[str, Any]:
        return {"has_least": self.has_least, "range_kind": self.what, "ranges": [asdict(each) for each in self.ranges],
                "layers": self.layers, "layer_parts": [asdict(each) for each in self.parts]}


def places_of(needs: Needs) -> Places:
    """Return the ranges and the parts of layers of a trace with their least times."""
    facts = needs.facts
    if facts is None:
        return Places("", [], 0, [])
    what, ranges = _ranges(needs)
    has_least = bool(needs.least_ns.any())
    calls = calls_of(facts.frame, facts.every)
    parts = parts_of(calls)
    complete_parts(calls, parts)
    layers = parts.layers or parts.backward_layers
    if not layers:
        return Places(what, ranges, 0, [], has_least)
    backward = np.array([token.is_backward for token in calls.tokens], np.bool_)[calls.token]
    label = (2 * parts.part + (backward & (parts.part > 0)))[calls.of_launch]
    columns = (_by_row(needs, each)[facts.every.rows] for each in (needs.took_ns, needs.least_ns, needs.unknown_ns))
    sums = [np.bincount(label, each, 2 * len(parts.names)).astype(np.int64) for each in (np.ones(label.size), *columns)]
    made = [LayerPart(_part(parts.names[code // 2], bool(code % 2)), *(int(each[code]) for each in sums))
            for code in np.flatnonzero(sums[1]).tolist()]
    order = {name: at for at, name in enumerate(ORDER)}

    def place(part: LayerPart) -> tuple[int, int, int]:
        base = part.part.removesuffix(", backward")
        return (0 if base in order else 1 if base else 2, order.get(base, 0) + len(order) * (base != part.part), -part.takes_ns)
    return Places(what, ranges, layers, sorted(made, key=place), has_least)


def _part(name: str, backward: bool) -> str:
    return f"{name}, backward" if backward and not name.endswith("backward") else name


def _by_row(needs: Needs, ns: Ints) -> Ints:
    """Return times by row of the frame, 0 of what is no GPU work."""
    assert needs.facts is not None
    out = np.zeros(needs.facts.frame.rows, np.int64)
    out[needs.rows] = ns
    return out


def _ranges(needs: Needs) -> tuple[str, list[Range]]:
    assert needs.facts is not None
    frame = needs.facts.frame
    owned = owned_work(frame)
    tree, what, _ = module_tree(owned) if owned is not None else (None, "", None)
    if tree is None or owned is None:
        return "", []
    takes, least, unknown = (_by_row(needs, each)[owned.rows] for each in (needs.took_ns, needs.least_ns, needs.unknown_ns))
    is_inside = (takes > 0).astype(np.int64)
    below = sum_below(tree, takes)
    kept = np.sort(np.argsort(-below, kind="stable")[:MOST_RANGES])
    kept = kept[below[kept] > 0]
    number = np.full(tree.name.size + 1, -1, np.int64)      # of the kept range that each node lies in; the last: outside of any
    number[kept] = np.arange(kept.size)
    for node in range(tree.name.size):                      # parents come before their children
        if number[node] < 0 and tree.parent[node] >= 0:
            number[node] = number[tree.parent[node]]
    own = number[tree.leaf]
    own_takes, own_least = (np.bincount(own + 1, each, kept.size + 1).astype(np.int64) for each in (takes, least))
    counts, least_below, unknown_below = (sum_below(tree, each) for each in (is_inside, least, unknown))
    names = [readable(frame.names[int(tree.name[node])]).removeprefix(MODULE)[:NAME_CHARS] for node in kept.tolist()]
    out: list[Range] = []
    for at, node in enumerate(kept.tolist()):
        parent = int(number[tree.parent[node]]) if tree.parent[node] >= 0 else -1
        within = "" if parent < 0 else f"{out[parent].within} / {names[parent]}".removeprefix(" / ")
        out.append(Range(names[at], within[-NAME_CHARS:], parent, int(counts[node]), int(below[node]), int(least_below[node]),
                         int(unknown_below[node]), int(own_takes[at + 1]), int(own_least[at + 1])))
    if own_takes[0]:
        outside = own < 0
        out.append(Range("", "", -1, int(is_inside[outside].sum()), int(own_takes[0]), int(own_least[0]),
                         int(unknown[outside].sum()), int(own_takes[0]), int(own_least[0])))
    return what, out


def _least(places: Places, place: Range | LayerPart) -> tuple[int | None, float | None]:
    """Return the least time and its share of the time taken, None where work that is not known takes more than a tenth.

    What needs no time of its own (norms, additions between products) is known to need none.
    """
    if not places.has_least or 10 * place.unknown_ns > place.takes_ns:
        return None, None
    return place.least_ns, 100 * place.least_ns / max(1, place.takes_ns)


def places_tables(places: Places) -> list[SummaryTable]:
    return [_range_table(places), _part_table(places)]


def _range_table(places: Places) -> SummaryTable:
    ranges = sorted(places.ranges, key=lambda each: -each.takes_ns)
    rows: list[list[Cell]] = [
        [each.name or f"(outside any {places.what})", each.within or None, each.launches, each.takes_ns, *_least(places, each),
         each.own_takes_ns, each.own_least_ns if _least(places, each)[1] is not None else None] for each in ranges]
    return SummaryTable(f"What each {places.what or 'range'} takes and needs", [
        SummaryColumn(places.what or "range", text=True), SummaryColumn("within", text=True), SummaryColumn("launches", "count"),
        SummaryColumn("takes", "ns"), SummaryColumn("least", "ns"), SummaryColumn("needed of it", "pct"),
        SummaryColumn("its own takes", "ns"), SummaryColumn("its own least", "ns")], rows,
        "GPU time within the steps, inner ones included; the columns of their own add up to the steps'. Unknown where "
        "kernels whose work is not known take more than a tenth.")


def _part_table(places: Places) -> SummaryTable:
    rows: list[list[Cell]] = [
        [each.part or "(no part of a layer)", each.launches, each.takes_ns, *_least(places, each),
         each.takes_ns / places.layers if each.part else None,
         each.least_ns / places.layers if each.part and _least(places, each)[1] is not None else None] for each in places.parts]
    return SummaryTable(f"What the parts of a layer take and need, × {places.layers:,}", [
        SummaryColumn("part", text=True), SummaryColumn("launches", "count"), SummaryColumn("takes", "ns"),
        SummaryColumn("least", "ns"), SummaryColumn("needed of it", "pct"), SummaryColumn("takes per layer", "ns"),
        SummaryColumn("least per layer", "ns")], rows,
        "Kernel time within the steps, of all layers and per layer passed forward; the rows add up to the steps'.")
