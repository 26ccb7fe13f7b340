"""Counters of a profile: every metric of every launch in one columnar object, what pages read as rows.

counters.parquet: one row per launch and metric, ordered by launch, then name: launch (int32), metric and unit
(dictionary strings), value (float64, null where the metric is a word), text (the word). zstd; a launch's metrics are a
few row groups, whatever the report's size.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from django.core.files.storage import default_storage

from profiles.analysis.kernel import counters
from profiles.ingest.trace import Report
from profiles.models import LaunchCounters
from profiles.rows import json_safe, text
from profiles.store.objects import replace_object

_word = pa.dictionary(pa.int32(), pa.string())
METRICS = pa.schema(
    [("launch", pa.int32()), ("metric", _word), ("unit", _word), ("value", pa.float64()), ("text", _word)]
)
ROW_GROUP = 1 << 15
BATCH = 500


def key(profile_id: int) -> str:
    return f"profiles/{profile_id}/counters.parquet"


def write_report(profile_id: int, report: Report) -> int:
    """Store every metric of every launch; returns the stored bytes."""
    out = io.BytesIO()
    with pq.ParquetWriter(out, METRICS, compression="zstd", store_schema=False) as writer:
        for start in range(0, len(report.launches), BATCH):
            writer.write_table(_table(report, start), row_group_size=ROW_GROUP)
    return replace_object(key(profile_id), out.getvalue())


def _table(report: Report, start: int) -> pa.Table:
    rows = [(launch.index, name, value) for launch in report.launches[start:start + BATCH]
            for name, value in sorted(launch.metrics.items())]
    return pa.table({
        "launch": [index for index, _, _ in rows],
        "metric": [text(name) for _, name, _ in rows],
        "unit": [report.units.get(name, "") for _, name, _ in rows],
        "value": [None if isinstance(value, str) else float(value) for _, _, value in rows],
        "text": [text(value) if isinstance(value, str) else None for _, _, value in rows],
    }).cast(METRICS)


def metrics_of(profile_id: int, launch: int) -> list[dict[str, Any]]:
    """Return all metrics of one launch: {"metric", "unit", "value" (number or word)}.

    By name; empty where none is stored.
    """
    try:
        with default_storage.open(key(profile_id), "rb") as file:
            table = pq.read_table(file, filters=pc.field("launch") == launch)
    except FileNotFoundError:
        return []
    columns = (table[name].to_pylist() for name in ("metric", "unit", "value", "text"))
    return [{"metric": metric, "unit": unit, "value": word if value is None else value}
            for metric, unit, value, word in zip(*columns, strict=True)]


def metrics_by_name(profile_id: int, names: Sequence[str], launches: Sequence[int]) -> dict[int, dict[str, float]]:
    """Return launch -> metric -> value, of the numbers among `names`.

    Empty where nothing is stored.
    """
    chosen = pc.field("metric").isin(list(names)) & pc.field("launch").isin(list(launches))
    try:
        if not launches:
            return {}
        with default_storage.open(key(profile_id), "rb") as file:
            table = pq.read_table(file, columns=["launch", "metric", "value"], filters=chosen)
    except FileNotFoundError:
        return {}
    values: dict[int, dict[str, float]] = {}
    for launch, metric, value in zip(*(table[name].to_pylist() for name in ("launch", "metric", "value")), strict=True):
        if value is not None:
            values.setdefault(launch, {})[metric] = value
    return values


def words_of(profile_id: int, name: str) -> dict[int, str]:
    """Return launch -> the word that it says under this name; launches without one are left out."""
    try:
        with default_storage.open(key(profile_id), "rb") as file:
            table = pq.read_table(file, columns=["launch", "text"], filters=pc.field("metric") == name)
    except FileNotFoundError:
        return {}
    pairs = zip(table["launch"].to_pylist(), table["text"].to_pylist(), strict=True)
    return {launch: text for launch, text in sorted(pairs) if text}


def launch_rows(report: Report) -> Iterator[dict[str, Any]]:
    """Yield the fields of a LaunchCounters row per launch.

    With its kernel's full name in place of the key.
    """
    for launch in report.launches:
        facts = counters.launch_facts(launch)
        yield {
            "kernel_name": text(launch.kernel), "index": launch.index, "duration_ns": json_safe(facts.duration_ns),
            "grid": _dim3(launch.grid), "block": _dim3(launch.block), "facts": json_safe(facts.as_json()),
            "rules": json_safe([asdict(rule) for rule in launch.rules]), "incomplete": text(launch.incomplete or ""),
        }


def write_rows(profile_id: int, kernel_ids: dict[str, int], report: Report) -> None:
    """Write LaunchCounters of a report."""
    rows = []
    for fields in launch_rows(report):
        kernel_id = kernel_ids.get(fields.pop("kernel_name"))
        if kernel_id is not None:
            rows.append(LaunchCounters(profile_id=profile_id, kernel_id=kernel_id, **fields))
    LaunchCounters.objects.bulk_create(rows, batch_size=BATCH)


def _dim3(size: tuple[int, int, int] | None) -> str:
    """(256, 1, 1) -> "256 × 1 × 1"."""
    return " × ".join(str(side) for side in size)[:60] if size else ""
