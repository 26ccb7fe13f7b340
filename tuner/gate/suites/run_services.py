"""Fresh runs as rows: one by the worker that measured it, many by COPY (ten times as fast as an INSERT with its parameters)."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from django.contrib.postgres.fields import ArrayField
from django.db import IntegrityError, connection, models, transaction
from django.utils import timezone

from tuner.cache.entries.services import notice_environment
from tuner.gate.builds.services import ensure_build, queue_series
from tuner.gate.stats.rule import finite_number
from tuner.gate.suites.job_services import REVALIDATE
from tuner.gate.suites.records import samples_problem
from tuner.models import Build, KernelRun, Suite, SuiteJob, SuiteKernel
from workers import jobs
from workers.leases import Superseded

_COLUMNS = [field for field in KernelRun._meta.concrete_fields if not field.primary_key]


def copy_runs(rows: Sequence[KernelRun]) -> list[int]:
    """Store new rows; return their ids, in the same order, which the rows then have too."""
    table, now = KernelRun._meta.db_table, timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)", [table, len(rows)])
        ids = [row[0] for row in cursor.fetchall()]
        with cursor.copy(f"COPY {table} (id, {', '.join(str(field.column) for field in _COLUMNS)}) FROM STDIN") as copy:
            for pk, row in zip(ids, rows, strict=True):
                row.pk, row.created = pk, now
                copy.write_row([pk, *(_copy_value(field, getattr(row, field.attname)) for field in _COLUMNS)])
    return ids


def _copy_value(field: models.Field[Any, Any], value: Any) -> Any:
    if isinstance(field, ArrayField):
        return f"{{{','.join(map(repr, value))}}}"              # as PostgreSQL writes an array of numbers
    return json.dumps(value) if isinstance(field, models.JSONField) and value is not None else value


def run_percentiles(samples: Iterable[Sequence[float]]) -> list[dict[str, float | None]]:
    """Return median and 95th percentile of each run, µs (linear, as NumPy's default).

    All runs of one length are computed in one go.
    """
    by_length: dict[int, list[tuple[int, Sequence[float]]]] = defaultdict(list)
    percentiles: list[dict[str, float | None]] = []
    for index, us in enumerate(samples):
        by_length[len(us)].append((index, us))
        percentiles.append({"p50_us": None, "p95_us": None})
    for length, group in by_length.items():
        if length:
            p50, p95 = np.percentile(np.array([us for _, us in group], dtype=np.float64), [50, 95], axis=1).tolist()
            for (index, _), middle, high in zip(group, p50, p95, strict=True):
                percentiles[index] = {"p50_us": middle, "p95_us": high}
    return percentiles


def run_record(job: SuiteJob | None, kernel: SuiteKernel, build: Build | str, *, number: int, run: str,
               us: Sequence[float] = (), rejected: str = "", sm_clock_mhz: float | None = None,
               facts: Mapping[str, Any] | None = None, config: Mapping[str, Any] | None = None, source_hash: str = "",
               gpu: str = "", gpu_uuid: str = "", toolkit: str = "", driver: str = "",
               environment: Mapping[str, Any] | None = None, recorded: str = "", profile: Any = None,
               worker: str = "") -> KernelRun:
    """Store one kernel of one fresh process; samples in µs. The row that stands is returned where it is there already.

    Samples that are no times are kept out: the row says why it is rejected. Superseded when `worker` lost the job.
    """
    if worker and job is not None and not SuiteJob.leases.is_held(job.pk, worker):
        raise Superseded
    row_build = ensure_build(build, side=job is not None and job.reason == REVALIDATE) if isinstance(build, str) else build
    if job is not None:
        standing = KernelRun.objects.filter(job=job, kernel=kernel, build=row_build, number=number).first()
        if standing is not None:
            return standing
    rejected = (rejected or samples_problem([_python(value) for value in us]) or "")[:300]
    samples = [] if rejected else [float(value) for value in us]
    row = KernelRun(
        kernel=kernel, build=row_build, job=job, run=run[:80], number=number, us=samples, rejected=rejected, n=len(samples),
        **run_percentiles([samples])[0], sm_clock_mhz=_positive(sm_clock_mhz), facts=plain_facts(facts or {}),
        config=None if config is None else dict(config), source_hash=source_hash[:64], gpu=gpu[:120], gpu_uuid=gpu_uuid[:80],
        toolkit=toolkit[:80], driver=driver[:40], environment=plain_facts(environment or {}), recorded=recorded[:120],
        profile=profile)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:                     # kernelrun_once: another delivery of the same run was faster
        return KernelRun.objects.get(kernel=kernel, build=row_build, run=row.run)
    if job is not None:
        if gpu and toolkit and not recorded and not row.rejected:
            _note_environment(job.pk, row.gpu, row.toolkit, row.driver)
        suite, payload = kernel.suite_id, {"job": job.pk, "build": row_build.name, "number": number, "kernel": kernel.pk,
                                           "p50_us": row.p50_us, "rejected": row.rejected}
        transaction.on_commit(lambda: jobs.publish(f"suite.{suite}", "run", payload), robust=True)
    return row


@lru_cache(maxsize=64)
def _note_environment(job: int, gpu: str, toolkit: str, driver: str) -> None:
    """Once a job: cached winners of an older toolkit or driver are unverified from now on. Only what our own workers ran counts."""
    notice_environment(gpu, toolkit, driver)


def runs_publish(suite: Suite) -> None:
    """Tell pages that runs of a suite were stored, and have what rests on its series worked out again."""
    jobs.publish(f"suite.{suite.pk}", "runs", {"suite": suite.pk})
    queue_series(suite.pk)


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _positive(value: Any) -> float | None:
    number = finite_number(value)
    return number if number is not None and 0 < number < 1e6 else None


def plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what JSON columns hold: no NaN, no NUL, no half of a surrogate pair; Python's numbers."""
    return {_text(str(name))[:80]: value for name, fact in list(facts.items())[:200] if (value := _plain(fact)) is not None}


def _plain(value: Any, depth: int = 0) -> Any:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value) if abs(int(value)) < 2**63 else None
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return _text(value)[:2000]
    if isinstance(value, Mapping) and depth < 4:
        return {_text(str(name))[:80]: _plain(element, depth + 1) for name, element in list(value.items())[:200]}
    if isinstance(value, list | tuple) and depth < 4:
        return [_plain(element, depth + 1) for element in value[:1000]]
    return None


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode().replace("\0", "")
