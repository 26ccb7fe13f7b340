"""Numbers of the portability pages, from measured trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict
from urllib.parse import urlencode

from profiles.base.answers import make_answer
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
    return sorted({space.operator for space in measured_spaces()} | set(cached))


class SharesJson(TypedDict):
    """Shares of the best speed, 0-1 and in percent; `level`: good, fair, poor, bad or unknown ("")."""

    efficiency: float | None
    worst: float | None
    loss: float | None
    efficiency_pct: float | None
    worst_pct: float | None
    loss_pct: float | None
    level: str


class CellJson(SharesJson):
    source: str
    target: str
    same: bool
    shapes: int
    known: int


class MatrixRowJson(TypedDict):
    source: str
    cells: list[CellJson]


TunedPlaceJson = TypedDict("TunedPlaceJson", {
    "gpu": str, "toolkit": str, "label": str, "from": str, "best_ms": float | None, "trials": int})


class TransferJson(TypedDict):
    """A winner of one place, in another."""

    operator: str
    dtype: str
    shape: dict[str, int]
    config: str                     # canonical text
    source: TunedPlaceJson
    target: TunedPlaceJson
    efficiency: float | None
    efficiency_pct: float | None
    failed: bool
    tried: bool


class MatrixJson(TypedDict):
    """What winners of each place reach in the others, and the transfers behind each cell."""

    names: list[str]
    rows: list[MatrixRowJson]
    known: int
    pairs: int
    worst: CellJson | None
    transfers: list[TransferJson]


class MatricesJson(TypedDict):
    gpu: MatrixJson
    toolkit: MatrixJson
    places: int
    searches: int


def matrices(operator: str = "") -> MatricesJson:
    """Return what winners reach elsewhere, GPU × GPU and toolkit × toolkit."""
    spaces = list(measured_spaces(operator))
    return {"gpu": _matrix_json(between_gpus(spaces)), "toolkit": _matrix_json(between_toolkits(spaces)),
            "places": len({(space.gpu, space.toolkit) for space in spaces}), "searches": len(spaces)}


def _matrix_json(matrix: Matrix) -> MatrixJson:
    rows: list[MatrixRowJson] = [
        {"source": source, "cells": [_cell_json(source, target, matrix.cells.get((source, target))) for target in matrix.names]}
        for source in matrix.names]
    cells = [cell for row in rows for cell in row["cells"] if cell["efficiency"] is not None]
    return {"names": list(matrix.names), "rows": rows, "known": len(cells),
            "pairs": sum(cell["shapes"] > 0 for row in rows for cell in row["cells"]),
            "worst": min(cells, key=lambda cell: cell["efficiency"] or 0.0, default=None),
            "transfers": [_transfer_json(transfer) for cell in matrix.cells.values() for transfer in cell.transfers]}


def _cell_json(source: str, target: str, cell: Cell | None) -> CellJson:
    base: CellJson = {"source": source, "target": target, "same": source == target, "shapes": 0, "known": 0,
                            **_shares(Cell())}
    if cell is None:
        return base
    return {**base, "shapes": len(cell.transfers), "known": len(cell.tried), **_shares(cell)}


def _shares(cell: Cell) -> SharesJson:
    """Return shares of the best speed as numbers, in percent, and their shade."""
    shares = {"efficiency": cell.efficiency, "worst": cell.worst, "loss": cell.loss}
    percents = {f"{name}_pct": None if share is None else 100 * share for name, share in shares.items()}
    return make_answer(SharesJson, cell, **percents, level=_shade(cell.efficiency))


def _shade(efficiency: float | None) -> str:
    """Return one of four shades, with a word for those who see none."""
    if efficiency is None:
        return ""
    return "good" if efficiency >= 0.97 else "fair" if efficiency >= 0.9 else "poor" if efficiency >= 0.7 else "bad"


def _transfer_json(one: Any) -> TransferJson:
    source = one.source
    return {
        "operator": source.operator, "dtype": source.dtype, "shape": in_order(source.operator, source.shape), "config": one.config,
        "source": _place_json(source), "target": _place_json(one.target),
        "efficiency": one.efficiency, "efficiency_pct": None if one.efficiency is None else 100 * one.efficiency,
        "failed": one.failed, "tried": one.efficiency is not None}


def _place_json(one: MeasuredSpace) -> TunedPlaceJson:
    return {"gpu": one.gpu, "toolkit": one.toolkit, "label": one.label, "from": one.source, "best_ms": one.best_ms,
            "trials": len(one.times)}


# ---- buckets ----

class CostJson(SharesJson):
    pairs: int
    known: int


class StepsJson(CostJson):
    """What another number of steps would cost."""

    steps: float
    word: str
    now: bool


_Band = TypedDict("_Band", {"from": float, "to": float, "served": bool})


class BandJson(_Band, CostJson):
    """Costs of buckets that are so far apart, in doublings."""


class TuneNextJson(TypedDict):
    """A shape at the edge of a bucket in use; `query` fills in the form of a job."""

    shape: dict[str, int]
    shares: dict[str, int]
    query: str


class BucketsJson(TypedDict):
    """An operator's bucket policy, the measured cost of every policy, and shapes to tune."""

    operator: str
    policy: dict[str, float]        # `Buckets`
    text: str
    edited: bool
    exact: list[str]
    buckets: int
    choices: list[StepsJson]
    bands: list[BandJson]
    pairs: int
    recorded: bool
    tune_next: list[TuneNextJson]


def bucket_report(operator: str) -> BucketsJson:
    """Return what is known of an operator's buckets."""
    spaces = measured_spaces(operator)
    pairs, policy = shape_steps(spaces), bucket_policy(operator)
    choices = [Buckets(policy.exact_up_to, step, policy.max_distance) for step in STEPS]
    return {
        "operator": operator, "policy": policy.as_json(), "text": policy.text, "edited": policy != BUCKETS,
        "exact": list(exact_dims(operator)), "buckets": _count_buckets(operator),
        "choices": [{"steps": choice.steps_per_doubling, "word": STEPS[choice.steps_per_doubling], "now": choice == policy,
                     **_cost(shared_bucket_cell(pairs, choice))} for choice in choices],
        "bands": _bands(pairs, policy), "pairs": len(pairs), "recorded": any(space.label for space in spaces),
        "tune_next": _tune_next(operator, policy, spaces)}


def _count_buckets(operator: str) -> int:
    return CachedConfig.objects.filter(operator=operator).values("shape_bucket").distinct().count()


def _cost(cell: Cell) -> CostJson:
    return {"pairs": len(cell.transfers), "known": len(cell.tried), **_shares(cell)}


def _bands(pairs: Sequence[ShapeStep], policy: Buckets) -> list[BandJson]:
    before, rows = 0.0, list[BandJson]()
    for limit, cell in cells_by_distance(pairs):
        rows.append({"from": before, "to": limit, "served": before < policy.max_distance, **_cost(cell)})
        before = limit
    return rows


def _tune_next(operator: str, policy: Buckets, spaces: Sequence[MeasuredSpace]) -> list[TuneNextJson]:
    """Return shapes at the edge of a bucket in use, each with a query that fills the form."""
    definition = operators.find(operator)
    if definition is None or not policy.steps_per_doubling:
        return []
    tuned = {space.what[2] for space in spaces}
    rows = list[TuneNextJson]()
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
    loss_text = "not known: no trial tells" if loss is None else f"{100 * loss:.1f} % slower than the best known there"
    return loss_text + inside
