"""Numbers of the portability pages, from measured trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from tuner.cache.buckets import BUCKETS, STEPS, Buckets, bucket_edges
from tuner.cache.entries.selectors import bucket_policy, exact_dims, measured_spaces
from tuner.cache.portability import (
    Cell,
    Matrix,
    MeasuredSpace,
    ShapeStep,
    between_gpus,
    between_toolkits,
    cells_by_distance,
    shape_steps,
    shared_bucket_cell,
)
from tuner.cache.rules import Rule
from tuner.models import CachedConfig
from tuner.texts import in_order
from tuner.tuning import operators


def operator_names() -> list[str]:
    """Return operators that have trials or entries."""
    cached = CachedConfig.objects.values_list("operator", flat=True).distinct()
    return sorted({one.operator for one in measured_spaces()} | set(cached))


def matrices(operator: str = "") -> dict[str, Any]:
    """Return {"gpu": …, "toolkit": …}: names, rows of cells, and the transfers behind them."""
    spaces = list(measured_spaces(operator))
    return {"gpu": _matrix_json(between_gpus(spaces)), "toolkit": _matrix_json(between_toolkits(spaces)),
            "places": len({(one.gpu, one.toolkit) for one in spaces}), "searches": len(spaces)}


def _matrix_json(matrix: Matrix) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [
        {"source": source, "cells": [_cell_json(source, target, matrix.cells.get((source, target))) for target in matrix.names]}
        for source in matrix.names]
    known = [cell for row in rows for cell in row["cells"] if cell["efficiency"] is not None]
    return {"names": list(matrix.names), "rows": rows, "known": len(known),
            "pairs": sum(cell["shapes"] > 0 for row in rows for cell in row["cells"]),
            "worst": min(known, key=lambda cell: cell["efficiency"], default=None),
            "transfers": [_transfer_json(one) for cell in matrix.cells.values() for one in cell.transfers]}


def _cell_json(source: str, target: str, cell: Cell | None) -> dict[str, Any]:
    told: dict[str, Any] = {"source": source, "target": target, "same": source == target, "shapes": 0, "known": 0,
                            **_shares(Cell())}
    if cell is None:
        return told
    return {**told, "shapes": len(cell.transfers), "known": len(cell.tried), **_shares(cell)}


def _shares(cell: Cell) -> dict[str, Any]:
    """Return shares of the best speed as numbers, in percent, and their shade."""
    shares = {"efficiency": cell.efficiency, "worst": cell.worst, "loss": cell.loss}
    return {**shares, **{f"{name}_pct": None if share is None else 100 * share for name, share in shares.items()},
            "level": _shade(cell.efficiency)}


def _shade(efficiency: float | None) -> str:
    """Return one of four shades, with a word for those who see none."""
    if efficiency is None:
        return ""
    return "good" if efficiency >= 0.97 else "fair" if efficiency >= 0.9 else "poor" if efficiency >= 0.7 else "bad"


def _transfer_json(one: Any) -> dict[str, Any]:
    source = one.source
    return {
        "operator": source.operator, "dtype": source.dtype, "shape": in_order(source.operator, source.shape), "config": one.config,
        "source": _place_json(source), "target": _place_json(one.target),
        "efficiency": one.efficiency, "efficiency_pct": None if one.efficiency is None else 100 * one.efficiency,
        "failed": one.failed, "tried": one.efficiency is not None}


def _place_json(one: MeasuredSpace) -> dict[str, Any]:
    return {"gpu": one.gpu, "toolkit": one.toolkit, "label": one.label, "from": one.source, "best_ms": one.best_ms,
            "trials": len(one.times)}


# ---- buckets ----

def bucket_report(operator: str) -> dict[str, Any]:
    """Return an operator's bucket policy, the measured cost of every policy, and shapes to tune."""
    spaces = measured_spaces(operator)
    pairs, policy = shape_steps(spaces), bucket_policy(operator)
    choices = [Buckets(policy.exact_up_to, step, policy.max_distance) for step in STEPS]
    return {
        "operator": operator, "policy": policy.as_json(), "text": policy.text, "edited": policy != BUCKETS,
        "exact": list(exact_dims(operator)), "buckets": _count_buckets(operator),
        "choices": [{"steps": one.steps_per_doubling, "word": STEPS[one.steps_per_doubling], "now": one == policy,
                     **_cost(shared_bucket_cell(pairs, one))} for one in choices],
        "bands": _bands(pairs, policy), "pairs": len(pairs), "recorded": any(one.label for one in spaces),
        "tune_next": _tune_next(operator, policy, spaces)}


def _count_buckets(operator: str) -> int:
    return CachedConfig.objects.filter(operator=operator).values("shape_bucket").distinct().count()


def _cost(cell: Cell) -> dict[str, Any]:
    return {"pairs": len(cell.transfers), "known": len(cell.tried), **_shares(cell)}


def _bands(pairs: Sequence[ShapeStep], policy: Buckets) -> list[dict[str, Any]]:
    before, rows = 0.0, []
    for limit, cell in cells_by_distance(pairs):
        rows.append({"from": before, "to": limit, "served": before < policy.max_distance, **_cost(cell)})
        before = limit
    return rows


def _tune_next(operator: str, policy: Buckets, spaces: Sequence[MeasuredSpace]) -> list[dict[str, Any]]:
    """Return shapes at the edge of a bucket in use, each with a query that fills the form."""
    definition = operators.find(operator)
    if definition is None or not policy.steps_per_doubling:
        return []
    tuned = {one.what[2] for one in spaces}
    rows = []
    for entry in CachedConfig.objects.filter(operator=operator).order_by("-updated")[:50]:
        for name in [dim.name for dim in definition.dims if not dim.exact and dim.name in entry.shape]:
            shape = {**entry.shape, name: bucket_edges(entry.shape[name], policy)[1]}
            if shape == entry.shape or tuple(sorted(shape.items())) in tuned or definition.problems(shape, entry.dtype):
                continue
            tuned.add(tuple(sorted(shape.items())))
            query = urlencode({"operator": operator, "dtype": entry.dtype, **shape})
            rows.append({"shape": in_order(operator, shape), "shares": in_order(operator, entry.shape), "query": query})
            break
        if len(rows) == 3:
            break
    return rows


def expected_loss_text(answer: Mapping[str, Any]) -> str:
    """Return the expected loss of a served answer in words."""
    loss = answer.get("expected_loss")
    if answer.get("rule") == Rule.EXACT:
        return "none: it was measured at this very shape"
    inside = "; it was measured at another shape of the bucket" if answer.get("rule") == Rule.BUCKET else ""
    known = "not known: no trial tells" if loss is None else f"{100 * loss:.1f} % slower than the best known there"
    return known + inside
