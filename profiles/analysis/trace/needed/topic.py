"""The topic "needed": a step beside its least time, what it does besides by kind, and what each change would win."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.result import Finding, Result, cut_to_fit
from profiles.analysis.core.sentences import si_text, time_text
from profiles.analysis.trace.layer.calls import calls_of
from profiles.analysis.trace.layer.parts import ORDER, parts_of
from profiles.analysis.trace.layer.spans import complete_parts
from profiles.analysis.trace.needed.facts import MOST_LAUNCHES
from profiles.analysis.trace.needed.needs import IDLE, NEEDED, NOT_KNOWN, PARTS, SLOWER, Claim, GpuNeeds, Needs, is_known
from profiles.analysis.trace.needed.slow import slow_kernels, slow_table
from profiles.analysis.trace.needed.table import BY_NAME, KINDS
from profiles.analysis.trace.operators.grouping import owned_work
from profiles.analysis.trace.operators.tables import sum_below
from profiles.analysis.trace.operators.topic import module_tree
from profiles.analysis.trace.operators.tree import readable
from profiles.ingest.arrays import Ints, stable_order, sums_by
from profiles.ingest.trace import Category, CellRows, SummaryTable, summary_columns

# Where the least time lies: of each module or range around the launches, and of each part of a layer.
#
# The own times of ranges, those outside of any among them, add up to what the steps take and need; so do the parts of layers.

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
        return {"has_least": self.has_least, "range_kind": self.what, "ranges": [asdict(entry) for entry in self.ranges],
                "layers": self.layers, "layer_parts": [asdict(part) for part in self.parts]}


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
    columns = (_by_row(needs, column)[facts.every.rows] for column in (needs.took_ns, needs.least_ns, needs.unknown_ns))
    sums = [sums_by(label, column, 2 * len(parts.names)) for column in (np.ones(label.size), *columns)]
    layer_parts = [LayerPart(_part(parts.names[code // 2], bool(code % 2)), *(int(total[code]) for total in sums))
                   for code in np.flatnonzero(sums[1]).tolist()]
    order = {name: position for position, name in enumerate(ORDER)}

    def place(part: LayerPart) -> tuple[int, int, int]:
        base = part.part.removesuffix(", backward")
        return (0 if base in order else 1 if base else 2, order.get(base, 0) + len(order) * (base != part.part), -part.takes_ns)
    return Places(what, ranges, layers, sorted(layer_parts, key=place), has_least)


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
    takes, least, unknown = (_by_row(needs, column)[owned.rows] for column in (needs.took_ns, needs.least_ns, needs.unknown_ns))
    is_inside = (takes > 0).astype(np.int64)
    below = sum_below(tree, takes)
    nodes = np.sort(stable_order(-below)[:MOST_RANGES])
    nodes = nodes[below[nodes] > 0]
    number = np.full(tree.name.size + 1, -1, np.int64)      # of the kept range that each node lies in; the last: outside of any
    number[nodes] = np.arange(nodes.size)
    for node in range(tree.name.size):                      # parents come before their children
        if number[node] < 0 and tree.parent[node] >= 0:
            number[node] = number[tree.parent[node]]
    own = number[tree.leaf]
    own_takes, own_least = (sums_by(own + 1, column, nodes.size + 1) for column in (takes, least))
    counts, least_below, unknown_below = (sum_below(tree, column) for column in (is_inside, least, unknown))
    names = [readable(frame.names[int(tree.name[node])]).removeprefix(MODULE)[:NAME_CHARS] for node in nodes.tolist()]
    out: list[Range] = []
    for index, node in enumerate(nodes.tolist()):
        parent = int(number[tree.parent[node]]) if tree.parent[node] >= 0 else -1
        within = "" if parent < 0 else f"{out[parent].within} / {names[parent]}".removeprefix(" / ")
        out.append(Range(names[index], within[-NAME_CHARS:], parent, int(counts[node]), int(below[node]), int(least_below[node]),
                         int(unknown_below[node]), int(own_takes[index + 1]), int(own_least[index + 1])))
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
    rows: CellRows = [
        [entry.name or f"(outside any {places.what})", entry.within or None, entry.launches, entry.takes_ns, *_least(places, entry),
         entry.own_takes_ns, entry.own_least_ns if _least(places, entry)[1] is not None else None] for entry in ranges]
    return SummaryTable(f"What each {places.what or 'range'} takes and needs",
        summary_columns(f"{places.what or 'range'}: text | within: text | launches: count | takes: ns | least: ns | "
                        "needed of it: pct | its own takes: ns | its own least: ns"), rows,
        "GPU time within the steps, inner ones included; the columns of their own add up to the steps'. Unknown where "
        "kernels whose work is not known take more than a tenth.")


def _part_table(places: Places) -> SummaryTable:
    rows: CellRows = [
        [part.part or "(no part of a layer)", part.launches, part.takes_ns, *_least(places, part),
         part.takes_ns / places.layers if part.part else None,
         part.least_ns / places.layers if part.part and _least(places, part)[1] is not None else None] for part in places.parts]
    return SummaryTable(f"What the parts of a layer take and need, × {places.layers:,}",
        summary_columns("part: text | launches: count | takes: ns | least: ns | needed of it: pct | takes per layer: ns | "
                        "least per layer: ns"), rows,
        "Kernel time within the steps, of all layers and per layer passed forward; the rows add up to the steps'.")


VERSION = 12                         # of what the topic's document holds
HIGH_PCT, MEDIUM_PCT, LEAST_PCT = 20.0, 5.0, 1.0        # of the time, of GPU time that goes: severities, and the least that is said
GENERIC = "passes"                  # found in nearly every run that is not compiled: said behind kinds with one cause
MOST_SAID = 4
LEAST_TAIL = 0.01                   # of a step, that what runs behind the last one is said
MOST_PLACES = 50
GRAPH_LAUNCH = "GraphLaunch"        # cudaGraphLaunch, cuGraphLaunch, hipGraphLaunch
MOST_DETAILS = 1_000                # of operators' arguments that are looked through for shapes


def needed_result(frame: Frame, needs: Needs) -> Result:
    """Return what the steps need at least, and what they do besides. `numbers`: docs/needed.md says each field."""
    gpus = [gpu for gpu in needs.gpus if gpu.launches]
    if not gpus or needs.facts is None:
        kernels = int((frame["category"][frame.kernels] == Category.COMPUTE).sum())
        many = f"{kernels:,} launches are more than the {MOST_LAUNCHES:,} that are looked at one by one: record fewer steps."
        none = "No compute kernel in this trace: nothing was needed of a GPU."
        return Result(many if kernels > MOST_LAUNCHES else none, applies=False)
    claims, slow, places = shown_claims(needs), slow_kernels(needs), places_of(needs)
    numbers = {
        "gpus": [_gpu_json(gpu) for gpu in gpus],
        "needed_pct": needed_pct(gpus),
        "has_shapes": needs.has_shapes,
        "kinds": [claim_json(needs, claim) for claim in claims],
        "slow": [kernel.as_json() for kernel in slow],
        **places.numbers(),
        "ceilings": {name: each.label or ("data sheet" if each.sheet else "") for name, each in needs.facts.ceilings.items()},
    }
    tables = [_parts_table(gpus), _kinds_table(needs, claims), slow_table(slow), *places_tables(places)]
    return Result(_answer(needs, gpus, claims), numbers, [cut_to_fit(table) for table in tables if table.rows],
                  [finding_of(needs, claim) for claim in claims])


def shown_claims(needs: Needs) -> list[Claim]:
    """Return the kinds that are worth a word, those with one cause before the generic one, the most GPU time first."""
    wall = max(1, sum(gpu.wall_ns for gpu in needs.gpus))
    worth = [claim for claim in needs.claims if 100 * max(claim.gone_ns, claim.gain_ns[0]) >= LEAST_PCT * wall]
    return sorted(worth, key=lambda claim: claim.kind.name == GENERIC)


def per_step(needs: Needs, ns: float) -> float:
    """Return a time of the whole trace as one of a step of one GPU; of a GPU's whole run where no steps are known."""
    return ns / max(1, sum(max(1, gpu.steps) for gpu in needs.gpus))


def interval_text(least: float, most: float) -> str:
    """"10.2 to 10.4 ms", "up to 4.3 ms", "3.1 ms"."""
    a, b = time_text(least), time_text(most)
    if a == b:
        return a
    if least < 0.02 * most:
        return f"up to {b}"
    return f"{a.split(' ')[0]} to {b}" if a.split(" ")[1] == b.split(" ")[1] else f"{a} to {b}"


def claim_text(needs: Needs, claim: Claim) -> str:
    """Return one kind as a sentence: what is done, how long it takes, what goes without it, and on which condition."""
    first = max(claim.found, key=lambda one: one.numbers.get("launches", len(one.positions)))
    what = first.what[:1].upper() + first.what[1:]
    many = f", {len(claim.found):,} such places" if len(claim.found) > 1 else ""
    steps = any(gpu.steps for gpu in needs.gpus)
    gain = interval_text(per_step(needs, claim.gain_ns[0]), per_step(needs, claim.gain_ns[1]))
    text = f"{what}{many}: {time_text(per_step(needs, claim.takes_ns))} of the GPU's time{' a step' if steps else ''}"
    text += f", {gain}{' a step' if steps else ''} to win" if claim.gain_ns[1] else ", nothing to win while the host is slower"
    condition = first.condition
    return f"{text}{f', if {condition}' if condition else ''}{'' if claim.certain else ' (it looks so)'}"


def finding_of(needs: Needs, claim: Claim) -> Finding:
    wall = max(1, sum(gpu.wall_ns for gpu in needs.gpus))
    share = 100 * claim.worth_ns / wall
    severity = "high" if share >= HIGH_PCT else "medium" if share >= MEDIUM_PCT else "info"
    advice = claim.kind.change + (f" Not worth it: {claim.kind.not_worth[:1].lower()}{claim.kind.not_worth[1:]}"
                                  if claim.kind.not_worth else "")
    return Finding(claim.kind.name, severity, claim_text(needs, claim), advice,
                   {key: value for key, value in claim_json(needs, claim).items() if key not in ("places", "change", "not_worth")},
                   worth_ns=claim.gain_ns[1] / max(1, len(needs.gpus)))


def claim_json(needs: Needs, claim: Claim) -> dict[str, Any]:
    return {"kind": claim.kind.name, "title": claim.kind.title, "launches": claim.launches, "takes_ns": claim.takes_ns,
            "stays_least_ns": claim.stays_ns[0], "stays_most_ns": claim.stays_ns[1], "gone_ns": claim.gone_ns,
            "gain_least_ns": claim.gain_ns[0], "gain_most_ns": claim.gain_ns[1],
            "gain_step_least_ns": per_step(needs, claim.gain_ns[0]), "gain_step_most_ns": per_step(needs, claim.gain_ns[1]),
            "certain": claim.certain, "change": claim.kind.change, "not_worth": claim.kind.not_worth, "source": claim.kind.source,
            "text": claim_text(needs, claim),
            "places": [{"what": one.what, "if": one.condition, **one.numbers} for one in claim.found[:MOST_PLACES]]}


def _gpu_json(gpu: GpuNeeds) -> dict[str, Any]:
    return {"gpu": gpu.gpu, "label": gpu.label, "model": gpu.model, "wall_ns": gpu.wall_ns, "steps": gpu.steps,
            "tail_ns": gpu.tail_ns,
            "parts": {name: ns for name, ns in gpu.parts.items() if ns}, "flop": gpu.flop, "step_ns": list(gpu.step_ns),
            "needed_pct": 100 * gpu.parts[NEEDED] / gpu.wall_ns if _is_known(gpu) else None}


def _is_known(gpu: GpuNeeds) -> bool:
    return is_known(gpu.parts[NEEDED], gpu.parts[NOT_KNOWN], gpu.wall_ns)


def needed_pct(gpus: Sequence[GpuNeeds]) -> float | None:
    """Return the share that the least time has of all GPUs' steps: a profile's grade; None where one of them does not say."""
    wall = sum(gpu.wall_ns for gpu in gpus)
    return 100 * sum(gpu.parts[NEEDED] for gpu in gpus) / wall if wall and all(map(_is_known, gpus)) else None


def part_title(name: str) -> str:
    return PARTS.get(name) or BY_NAME[name].title.lower()


def _answer(needs: Needs, gpus: Sequence[GpuNeeds], claims: Sequence[Claim]) -> str:
    steps = max(gpu.steps for gpu in gpus)
    count = max(1, sum(max(1, gpu.steps) for gpu in gpus))
    sums: dict[str, int] = {}
    for gpu in gpus:
        for name, ns in gpu.parts.items():
            sums[name] = sums.get(name, 0) + ns
    took, need = sum(gpu.wall_ns for gpu in gpus) / count, sums[NEEDED] / count
    tail = tail_text(max((gpu.tail_ns for gpu in gpus), default=0), steps, took)
    who = "A step" if steps else "The GPU's run" if len(gpus) == 1 else "Each GPU's run"
    besides = sorted(((name, ns / count) for name, ns in sums.items()
                      if name not in (NEEDED, NOT_KNOWN) and 50 * ns >= sum(sums.values())), key=lambda pair: -pair[1])[:MOST_SAID]
    said = ", ".join(f"{_said(name)} {time_text(ns)}" for name, ns in besides)
    if not sums[NEEDED]:
        why = _why_unknown(needs)
        return f"{who} takes {time_text(took)}; what it needs is not known: {why}.{f' Of it: {said}.' if said else ''}{tail}"
    flop = sum(gpu.flop for gpu in gpus) / count
    most = need + sums[NOT_KNOWN] / count
    least = time_text(need) if sums[NOT_KNOWN] * 50 < sum(sums.values()) else interval_text(need, most)
    work = f" ({si_text(flop, 'FLOP')} at the ceilings, each weight and cache read once)" if flop else ""
    return f"{who} takes {time_text(took)}; its work needs {least} at least{work}.{f' Besides: {said}.' if said else ''}{tail}"


def _why_unknown(needs: Needs) -> str:
    """Return why no least time follows: shapes, their way to kernels, ceilings or types that are missing."""
    assert needs.facts is not None
    if not needs.has_shapes:
        frame = needs.facts.frame
        calls = frame.call[needs.facts.every.rows]
        graphs = np.array([GRAPH_LAUNCH in name for name in frame.names], np.bool_)
        if 2 * int(graphs[frame["name"][calls[calls >= 0]]].sum()) > calls.size:
            return "a replayed graph holds no shapes, record a step without it and with `record_shapes=True`"
        operators = frame.of(Category.CPU_OP)
        if not operators.size:
            return "record with torch.profiler and `record_shapes=True`"
        details = np.unique(frame["detail"][operators])
        recorded = any(frame.detail_arguments(code).get("Input Dims") for code in details[details >= 0][:MOST_DETAILS].tolist())
        return "its kernels are linked to no operator with shapes" if recorded else "record with `record_shapes=True`"
    if not any(ceiling.sheet or ceiling.measured for ceiling in needs.facts.ceilings.values()):
        return "no ceilings are known of this GPU"
    return "the shapes, types or ceilings of its work are not known"


def tail_text(tail_ns: float, steps: int, step_ns: float) -> str:
    """Return a sentence that says what of the steps' time ran on behind the last one, "" where that is little (LEAST_TAIL)."""
    if not steps or tail_ns < LEAST_TAIL * step_ns:
        return ""
    last = "The last step" if steps > 1 else "The step"
    mean = f"; the mean of {steps:,} steps holds it" if steps > 1 else ""
    return f" {last} holds {time_text(tail_ns)} of the recording's tail: GPU work that ran on behind its end on the CPU{mean}."


def _said(name: str) -> str:
    return {SLOWER: "work below its ceiling", IDLE: "the GPU waits"}.get(name) or part_title(name)


def _parts_table(gpus: Sequence[GpuNeeds]) -> SummaryTable:
    names = [*PARTS, *(kind.name for kind in KINDS)]
    rows: CellRows = [
        [gpu.label, part_title(name), gpu.parts[name], 100 * gpu.parts[name] / gpu.wall_ns,
         round(gpu.parts[name] / gpu.steps) if gpu.steps else None]
        for gpu in gpus for name in names if gpu.parts.get(name)]
    return SummaryTable("What the time of each GPU was for",
        summary_columns("GPU: text | what for: text | time: ns | of the time: pct | a step: ns"), rows,
        "Every nanosecond of each GPU's steps is in one row (of its whole run where no steps are known); the last step "
        "lasts to the end of what it launched.")


def _kinds_table(needs: Needs, claims: Sequence[Claim]) -> SummaryTable:
    rows: CellRows = [
        [claim.kind.title, claim_text(needs, claim), claim.launches, claim.takes_ns, claim.stays_ns[0], claim.stays_ns[1],
         claim.gain_ns[0], claim.gain_ns[1], claim.kind.change.replace("`", ""), claim.kind.not_worth or None, claim.kind.source]
        for claim in claims]
    return SummaryTable("What need not be", summary_columns("kind: text | what: text | launches | takes: ns | "
                                                            "takes its place, least: ns | most: ns | to win, least: ns | "
                                                            "to win, most: ns | change: text | not worth it: text | "
                                                            "source: text"), rows,
        "Sums over the trace. To win, least: the recorded run played again without it, at the host's recorded speed. Most: without "
        "the host's time for it too, or all of its GPU time, since a profiler slows the host.")
