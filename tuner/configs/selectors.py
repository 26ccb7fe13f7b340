"""What pages, API and launches read of the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet

from tuner import cache
from tuner.models import CachedConfig, TuneJob
from tuner.operators import OPERATORS, limits
from tuner.texts import triton_config


def config_list() -> QuerySet[CachedConfig]:
    return CachedConfig.objects.select_related("job")


def bucket(operator: str, shape: Mapping[str, int]) -> str:
    known = OPERATORS.get(operator)
    return cache.bucket(shape, [dim.name for dim in known.dims if dim.exact] if known else ())


def config_best(operator: str, dtype: str, gpu: str, shape: Mapping[str, int], toolkit: str = "") -> dict[str, Any]:
    """The configuration that a launch gets, which rule served it, and why. The operator must know the shape."""
    known = OPERATORS[operator]
    device = limits(gpu)
    wanted = cache.Key(operator, dtype, bucket(operator, shape), gpu, device.compute_capability, toolkit)
    rows = {row.pk: row for row in config_list().filter(operator=operator, dtype=dtype)}
    entries = [_entry(row) for row in rows.values()]
    served = cache.lookup(entries, wanted)
    answer: dict[str, Any] = {
        "operator": operator, "dtype": dtype, "gpu": gpu, "shape": dict(shape), "bucket": wanted.bucket}
    if served is None:
        rule, config = cache.Rule.DEFAULT, dict(known.default_config(shape, dtype, device))
        return {**answer, "rule": rule, "why": cache.WHY[rule], "config": config, "entry": None}
    return {**answer, "rule": served.rule, "why": served.why, "config": dict(served.entry.config),
            "entry": config_json(rows[served.entry.id])}


def _entry(row: CachedConfig) -> cache.Entry:
    key = cache.Key(row.operator, row.dtype, row.shape_bucket, row.gpu, row.compute_capability, row.toolkit,
                    row.source_hash)
    return cache.Entry(row.pk, key, row.config, bool(row.recorded))


def config_json(row: CachedConfig) -> dict[str, Any]:
    names = ("id", "operator", "dtype", "shape_bucket", "gpu", "compute_capability", "toolkit", "source_hash", "config",
             "median_ms", "default_ms", "library_ms", "evidence", "recorded", "state")
    return {**{name: getattr(row, name) for name in names}, "job": row.job_id, "updated": row.updated.isoformat(),
            "triton": triton_config(row.config)}


def key_jobs(row: CachedConfig) -> Sequence[TuneJob]:
    """Finished jobs for the same operator, dtype, GPU and bucket, newest first: the history of a key."""
    done = TuneJob.objects.filter(operator=row.operator, dtype=row.dtype, gpu=row.gpu, recorded=row.recorded,
                                  status=TuneJob.Status.DONE)[:200]
    return [job for job in done if bucket(job.operator, job.shape) == row.shape_bucket]
