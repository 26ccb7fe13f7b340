"""The topic "layer": what the parts of a transformer layer compute, move and take, and how near each kernel is to the ceiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from profiles.analysis.core import gpus
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.result import Result, cut_to_fit
from profiles.analysis.core.sentences import pct_text, si_text, time_text
from profiles.analysis.trace.layer.calls import calls_of
from profiles.analysis.trace.layer.ceilings import Ceilings, Judged, ceilings_of
from profiles.analysis.trace.layer.collectives import collective_work
from profiles.analysis.trace.layer.folded import Row, rows_of
from profiles.analysis.trace.layer.launches import launch_work
from profiles.analysis.trace.layer.parts import parts_of
from profiles.analysis.trace.layer.records import KernelWork, records_of
from profiles.analysis.trace.layer.spans import complete_parts, gaps_within, layer_spans, others_ns
from profiles.analysis.trace.layer.tables import ROWS, Whole, collective_table, kernel_table, layer_table, passes_of, row_json
from profiles.analysis.trace.layer.typed import typed_works

DOCUMENT_RECORDS = 1_000            # of work by kernel and shape that the document holds
STEP = "ProfilerStep#"


def layer_result(frame: Frame, given: Mapping[str, Any] | None = None) -> Result:
    """Return the parts of a layer and every kernel with its work from shapes.

    `given`: what the trace does not say: {"ceilings": {model: {"label", "rates"}}, "typed": {kernel: {"operator", "dims",
    "dtype"}}}.
    `numbers`: work (rows by kernel and shape), layer (rows of the parts), layers, gpus (their ceilings), known_pct, compute_ns,
    kernels_ns (collectives too: what shares of the kernel time are of, here as on every page).
    """
    every = launch_work(frame, typed_works((given or {}).get("typed", {})))
    records = records_of(frame, every)
    if not records:
        return Result("No compute kernel in this trace: there is no work to hold against a ceiling.", applies=False)
    total, kernels = int(every.ns.sum()), int(frame["dur_ns"][frame.kernels].sum())
    known = sum(each.total_ns for each in records if each.flop is not None or each.bytes is not None or each.part_of)
    calls = calls_of(frame, every)
    parts = parts_of(calls)
    complete_parts(calls, parts)
    rows = rows_of(frame, every, calls, parts)
    named = [row for row in rows if row.is_named]
    if not known and not named:
        return Result(f"{time_text(total)} of kernels, and no operator's input shapes: record with torch.profiler and "
                      "record_shapes=True to see their FLOP, bytes and share of the ceiling.", applies=False)
    measured = {gpus.key(name): each for name, each in (given or {}).get("ceilings", {}).items()}
    ceilings = {name: ceilings_of(name, measured.get(gpus.key(name))) for name in sorted({record.gpu for record in records})}
    steps = _steps(frame)
    layers = parts.layers or parts.backward_layers
    spans = layer_spans(calls, parts) if parts.sized_layers in (0, parts.layers) else []
    gaps = gaps_within(frame, calls, spans if len(spans) == parts.layers else [])
    trace = Whole(kernels, gaps, others_ns(calls, parts, spans) if gaps else 0)
    tables = [layer_table(rows, ceilings, parts, steps, trace), kernel_table(records, ceilings)]
    moved = collective_work(frame)
    if moved:
        tables.append(collective_table(moved))
    numbers: dict[str, Any] = {
        "compute_ns": total, "kernels_ns": kernels, "known_pct": 100.0 * known / max(total, 1), "layers": layers, "steps": steps,
        "sized_layers": parts.sized_layers, "gaps": asdict(gaps) | {"idle_pct": gaps.idle_pct} if gaps else None,
        "layer": [row_json(row, ceilings[row.gpu], passes_of(row, layers, parts.sized_layers)) for row in rows[:ROWS]],
        "work": [_record_json(record, ceilings[record.gpu]) for record in records[:DOCUMENT_RECORDS]],
        "collectives": [asdict(each) | {"bus_bytes_s": each.bus_bytes_s, "algorithm_bytes_s": each.algorithm_bytes_s}
                        for each in moved],
        "gpus": {name: _ceilings_json(each) for name, each in ceilings.items()}}
    return Result(_answer(named, records, ceilings, numbers), numbers, [cut_to_fit(table) for table in tables])


def _steps(frame: Frame) -> int:
    """Return how many steps the trace marks, each name once per mark; 0 where it marks none."""
    return sum(1 for name in frame.names if name.startswith(STEP))


def _record_json(record: KernelWork, ceilings: Ceilings) -> dict[str, Any]:
    return asdict(record) | {"kernel": record.kernel[:1_500]} | asdict(record.judged(ceilings))


def _ceilings_json(ceilings: Ceilings) -> dict[str, Any]:
    return {"sheet": dict(ceilings.sheet), "measured": dict(ceilings.measured), "label": ceilings.label,
            "l2_bytes": ceilings.l2_bytes}


def _answer(named: Sequence[Row], records: Sequence[KernelWork], ceilings: Mapping[str, Ceilings],
            numbers: Mapping[str, Any]) -> str:
    """One sentence or two: the layer, the parts that take most, and the kernel farthest from its ceiling."""
    judged = [(record, record.judged(ceilings[record.gpu])) for record in records if not record.part_of]
    rated = [(record, each) for record, each in judged if each.roof_pct is not None and not each.mark and each.floor_ns is not None]
    said = ""
    layers = numbers["layers"]
    if named and layers:
        sized = numbers["sized_layers"]
        of_these = [row for row in named if row.is_sized or not sized]
        spent = sum(row.total_ns for row in of_these)
        by_part: dict[str, int] = {}
        for row in of_these:
            by_part[row.part] = by_part.get(row.part, 0) + row.total_ns
        whole = max(numbers["kernels_ns"], 1)
        shares = ", ".join(f"{part} {pct_text(100 * ns / whole)}" for part, ns in
                           sorted(by_part.items(), key=lambda pair: -pair[1])[:3])
        said = (f"The parts of a layer take {time_text(spent / (sized or layers))} (mean of {sized or layers:,}), "
                f"{pct_text(100 * spent / whole)} of all kernel time: {shares}. ")
    if rated:
        flop = sum(record.flop or 0 for record in records)
        record, each = max(rated, key=lambda pair: pair[0].total_ns - (pair[1].floor_ns or 0.0))
        said += (f"Shapes are known of {pct_text(numbers['known_pct'])} of {time_text(numbers['compute_ns'])} of kernels, "
                 f"{si_text(flop, 'FLOP')} together; farthest above its least time is `{_plain(record)}`: "
                 f"{pct_text(each.roof_pct or 0)} of {each.ceiling.split(',')[0]}, "
                 f"{time_text(record.total_ns - (each.floor_ns or 0))} (from shapes).")
    else:
        said += (f"Shapes are known of {pct_text(numbers['known_pct'])} of {time_text(numbers['compute_ns'])} of kernels; "
                 + _why_unrated(judged, ceilings))
    return said


def _why_unrated(judged: Sequence[tuple[KernelWork, Judged]], ceilings: Mapping[str, Ceilings]) -> str:
    """Say why no kernel leads: ceilings that are not known, or shares that are none."""
    if not any(each.sheet or each.measured for each in ceilings.values()):
        return "no ceilings are known of this GPU."
    if any(each.mark for _, each in judged):
        return "each share of a ceiling is above 100 % and marked."
    if not any(record.flop is not None or record.bytes is not None for record, _ in judged):
        return "no FLOP or bytes follow from them, so there is no share of a ceiling."
    return "the ceilings known of this GPU are not those of their types."


def _plain(record: KernelWork) -> str:
    return f"{record.operator.removeprefix('aten::') or record.kernel} {record.text}".replace("`", "'")[:160].strip()
