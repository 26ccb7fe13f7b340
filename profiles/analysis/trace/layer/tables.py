"""The tables of the topic "layer"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from profiles.analysis.trace.layer.ceilings import Ceilings
from profiles.analysis.trace.layer.collectives import CollectiveWork
from profiles.analysis.trace.layer.folded import Row
from profiles.analysis.trace.layer.records import KernelWork
from profiles.trace import Cell, SummaryColumn, SummaryTable

ROWS = 300
_TEXT = 300


def _text(name: str) -> SummaryColumn:
    return SummaryColumn(name, text=True)


def passes_of(row: Row, layers: int, sized: int) -> int:
    """Return how many layers a part stands in: those with sizes recorded, or those without, as its own are; 0: in none."""
    if not row.is_named or not layers:
        return 0
    return (sized or layers) if row.is_sized else (layers - sized or layers)


def row_json(row: Row, ceilings: Ceilings, passes: int) -> dict[str, Any]:
    """Return one part with its amounts per layer (None where it is of none) and how near it came to its ceiling."""
    parts = passes or 1
    return {"part": row.part[:_TEXT], "is_named": row.is_named, "operator": row.operator, "sizes": row.sizes, "dtype": row.dtype,
            "kind": row.kind, "precision": row.precision, "gpu": row.gpu, "calls": row.calls, "launches": row.launches,
            "total_ns": row.total_ns, "flop": row.flop, "bytes": row.bytes,
            "per_layer_ns": row.total_ns / parts if passes else None,
            "flop_per_layer": _over(row.flop, parts) if passes else None,
            "bytes_per_layer": _over(row.bytes, parts) if passes else None, "note": row.note,
            "kernel": row.kernel[:1_500], "longest": row.longest, **asdict(row.judged(ceilings))}


def _over(amount: float | None, parts: int) -> float | None:
    return None if amount is None else amount / parts


def layer_table(rows: Sequence[Row], ceilings: Mapping[str, Ceilings], layers: int, sized: int, steps: int,
                total_ns: int) -> SummaryTable:
    """Return the parts of a layer in their order, behind them all other work by operator and sizes."""
    whole = {kind: sum(row.total_ns for row in rows if row.is_named and row.is_sized == kind) for kind in (True, False)}
    columns = [_text("Part"), _text("Operator"), _text("Sizes"), _text("Type"), SummaryColumn("Kernel", "kernel", text=True),
               SummaryColumn("Calls per layer"),
               SummaryColumn("Time per layer", "ns"), SummaryColumn("Of the layer", "pct"), SummaryColumn("FLOP per layer", "FLOP"),
               SummaryColumn("Least bytes per layer", "bytes"), SummaryColumn("FLOP per byte"), _text("Class"),
               SummaryColumn("Rate", "FLOP/s"), SummaryColumn("Bandwidth", "B/s"), SummaryColumn("Of its ceiling", "pct"),
               _text("Ceiling"), _text("Beyond it"), SummaryColumn("Calls", "count"), SummaryColumn("Time", "ns"),
               SummaryColumn("Of all kernels", "pct"), SummaryColumn("Longest", "slice")]
    out: list[list[Cell]] = []
    for row in rows[:ROWS]:
        judged = row.judged(ceilings[row.gpu])
        per = passes_of(row, layers, sized)
        out.append([row.part[:_TEXT], row.operator or None, row.sizes or None, row.dtype or None, row.kernel[:1_500] or None,
                    _short(row.calls / per) if per else None, row.total_ns / per if per else None,
                    100.0 * row.total_ns / max(whole[row.is_sized], 1) if per else None, _over(row.flop, per) if per else row.flop,
                    _over(row.bytes, per) if per else row.bytes, _short(judged.intensity), judged.side or None, judged.flop_s,
                    judged.bytes_s, judged.roof_pct, judged.ceiling or None, _beyond(judged.mark, judged.why), row.calls,
                    row.total_ns, 100.0 * row.total_ns / max(total_ns, 1), row.longest])
    if len(rows) > ROWS:
        rest = rows[ROWS:]
        spent = sum(row.total_ns for row in rest)
        blank: list[Cell] = [None] * len(columns)
        blank[0], blank[17], blank[18] = f"(the other {len(rest):,})", sum(row.calls for row in rest), spent
        blank[19] = 100.0 * spent / max(total_ns, 1)
        out.append(blank)
    if not layers:
        return SummaryTable("Work by operator and sizes", columns, out, "No transformer layer was told in this trace. " + _NOTE)
    folded = f"{layers:,} layers passed"
    if steps > 1 and layers % steps == 0:
        folded = f"{layers // steps:,} layer{'s' if layers > steps else ''} in each of {steps:,} steps"
    return SummaryTable(f"Parts of a layer, × {layers:,}", columns, out, (
        f"Per layer is the mean of {folded} (forward passes of attention on one GPU"
        + (f", {sized:,} of them with sizes" if 0 < sized < layers else "") + "); what has no part is called by its operator and "
        f"sizes, with its amounts in all. {_NOTE}"))


_NOTE = ("From shapes: products 2·M·N·K, attention 4·queries·keys·head size per head, half of it under a causal mask; bytes are "
         "the least, each input read once and each result written once. Time holds every kernel of the operator, copies and "
         "reductions around it too.")


def kernel_table(records: Sequence[KernelWork], ceilings: Mapping[str, Ceilings]) -> SummaryTable:
    """Return one row per kernel and shape."""
    columns = [SummaryColumn("Kernel", "kernel", text=True), _text("Operator"), _text("Sizes"), _text("Shapes"), _text("Type"),
               SummaryColumn("Launches", "count"), SummaryColumn("Time", "ns"), SummaryColumn("FLOP", "FLOP"),
               SummaryColumn("Least bytes", "bytes"), SummaryColumn("FLOP per byte"), _text("Class"),
               SummaryColumn("Rate", "FLOP/s"), SummaryColumn("Bandwidth", "B/s"), SummaryColumn("Least time", "ns"),
               SummaryColumn("Of its ceiling", "pct"), _text("Ceiling"), _text("Beyond it"),
               _text("Basis"), _text("Remark"), SummaryColumn("Longest", "slice")]
    rows: list[list[Cell]] = []
    for record in records[:ROWS]:
        judged = record.judged(ceilings[record.gpu])
        basis = "part of the operator" if record.part_of else record.basis
        rows.append([record.kernel[:1_500], record.operator[:_TEXT] or None, record.text or None, record.dims or None,
                     record.dtype or None, record.launches, record.total_ns, record.flop, record.bytes, _short(judged.intensity),
                     judged.side or None, judged.flop_s, judged.bytes_s, judged.floor_ns, judged.roof_pct, judged.ceiling or None,
                     _beyond(judged.mark, judged.why), basis or "no shapes", record.note or None, record.longest])
    more = f" The first {ROWS} of {len(records):,} rows." if len(records) > ROWS else ""
    return SummaryTable("Kernels by shape", columns, rows, (
        "FLOP and bytes of all launches of a row. The least time is the longer of FLOP at the peak and bytes at DRAM bandwidth; a "
        "kernel that only helps its operator has none of its own." + more))


def collective_table(moved: Sequence[CollectiveWork]) -> SummaryTable:
    columns = [SummaryColumn("Kernel", "kernel", text=True), _text("Operation"), SummaryColumn("Ranks", "count"), _text("Type"),
               SummaryColumn("Launches", "count"), SummaryColumn("Time", "ns"), SummaryColumn("Message", "bytes"),
               SummaryColumn("On the bus", "bytes"), SummaryColumn("Algorithm bandwidth", "B/s"),
               SummaryColumn("Bus bandwidth", "B/s"), SummaryColumn("Longest", "slice")]
    rows: list[list[Cell]] = [[each.kernel[:1_500], each.operation, each.ranks, each.dtype or None, each.launches, each.total_ns,
                               each.message_bytes, each.bus_bytes, each.algorithm_bytes_s, each.bus_bytes_s, each.longest]
                              for each in moved]
    return SummaryTable("Collectives by size", columns, rows, (
        "Bus bandwidth as nccl-tests defines it, over the whole time of the kernel: waiting for other ranks included. The topic "
        "Communication parts the two."))


def _beyond(mark: str, why: str) -> str | None:
    return f"{mark}: {why}" if mark else None


def _short(value: float | None) -> float | None:
    """Three significant digits: a number without a unit shows as it is."""
    return None if value is None else float(f"{value:.3g}")
