"""Fresh runs as rows: recorded by the worker that measured them. The unit of every comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from django.db import IntegrityError, transaction

from tuner.builds.series_services import series_wake
from tuner.builds.services import build_seen
from tuner.environments.services import environment_noticed
from tuner.models import Build, KernelRun, Suite, SuiteJob, SuiteKernel
from tuner.suites.errors import Superseded
from tuner.suites.job_services import REVALIDATE, job_held
from tuner.suites.records import samples_problem
from workers import jobs


def run_record(job: SuiteJob | None, kernel: SuiteKernel, build: Build | str, *, number: int, run: str,
               us: Sequence[float] = (), rejected: str = "", sm_clock_mhz: float | None = None,
               facts: Mapping[str, Any] | None = None, config: Mapping[str, Any] | None = None, source_hash: str = "",
               gpu: str = "", gpu_uuid: str = "", toolkit: str = "", driver: str = "",
               environment: Mapping[str, Any] | None = None, recorded: str = "", profile: Any = None,
               worker: str = "") -> KernelRun:
    """Store one kernel of one fresh process; samples in µs. The row that stands is returned where it is there already.

    Samples that are no times are kept out: the row says why it is rejected. Superseded when `worker` lost the job.
    """
    if worker and job is not None and not job_held(job, worker):
        raise Superseded
    row_build = build_seen(build, side=job is not None and job.reason == REVALIDATE) if isinstance(build, str) else build
    if job is not None:
        standing = KernelRun.objects.filter(job=job, kernel=kernel, build=row_build, number=number).first()
        if standing is not None:
            return standing
    rejected = (rejected or samples_problem([_python(value) for value in us]) or "")[:300]
    samples = [] if rejected else [float(value) for value in us]
    row = KernelRun(
        kernel=kernel, build=row_build, job=job, run=run[:80], number=number, us=samples, rejected=rejected, n=len(samples),
        **percentiles(samples), sm_clock_mhz=_positive(sm_clock_mhz), facts=plain(facts or {}),
        config=None if config is None else dict(config), source_hash=source_hash[:64], gpu=gpu[:120], gpu_uuid=gpu_uuid[:80],
        toolkit=toolkit[:80], driver=driver[:40], environment=plain(environment or {}), recorded=recorded[:120], profile=profile)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:                     # kernelrun_once: another delivery of the same run was faster
        return KernelRun.objects.get(kernel=kernel, build=row_build, run=row.run)
    if job is not None:
        if gpu and toolkit and not recorded and not row.rejected:
            _environment_noticed(job.pk, row.gpu, row.toolkit, row.driver)
        suite, told = kernel.suite_id, {"job": job.pk, "build": row_build.name, "number": number, "kernel": kernel.pk,
                                        "p50_us": row.p50_us, "rejected": row.rejected}
        transaction.on_commit(lambda: jobs.publish(f"suite.{suite}", "run", told))
    return row


@lru_cache(maxsize=64)
def _environment_noticed(job: int, gpu: str, toolkit: str, driver: str) -> None:
    """Once a job: cached winners of an older toolkit or driver are unverified from now on. Only what our own workers ran counts."""
    environment_noticed(gpu, toolkit, driver)


def percentiles(samples: Sequence[float]) -> dict[str, float | None]:
    """Median and 95th percentile of one run's samples, µs (linear between order statistics, as NumPy's default)."""
    if not samples:
        return {"p50_us": None, "p95_us": None}
    p50, p95 = np.percentile(np.asarray(samples, dtype=np.float64), [50, 95])
    return {"p50_us": float(p50), "p95_us": float(p95)}


def runs_told(suite: Suite) -> None:
    """Once after runs of a suite were stored: pages are told, and what rests on its series is worked out again."""
    jobs.publish(f"suite.{suite.pk}", "runs", {"suite": suite.pk})
    series_wake(suite.pk)


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _positive(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6
    return float(value) if good else None


def plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON columns hold: no NaN, no NUL, no half of a surrogate pair; numpy's numbers as Python's."""
    return {_text(str(name))[:80]: value for name, each in list(facts.items())[:200] if (value := _plain(each)) is not None}


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
        return {_text(str(name))[:80]: _plain(each, depth + 1) for name, each in list(value.items())[:200]}
    if isinstance(value, list | tuple) and depth < 4:
        return [_plain(each, depth + 1) for each in value[:1000]]
    return None


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode().replace("\0", "")
