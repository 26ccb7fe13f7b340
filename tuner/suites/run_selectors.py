"""Rows of fresh runs as the pure judging wants them, and the questions that baselines and pages ask of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from django.db.models import Count, Max, QuerySet

from profiles.analysis.gate.runs import KernelRuns, Run
from tuner.models import KernelRun, Suite, SuiteKernel
from tuner.trial import config_key

ENVIRONMENT = ("gpu", "toolkit", "driver", "recorded")
MOST_ENVIRONMENTS = 50


def runs_of(rows: Iterable[KernelRun]) -> list[KernelRuns]:
    """By kernel, in the order in which kernels first come; rejected runs are left out. Rows come with their kernel."""
    kernels: dict[int, SuiteKernel] = {}
    grouped: dict[int, list[KernelRun]] = {}
    for row in rows:
        if row.rejected or not row.us:
            continue
        kernels.setdefault(row.kernel_id, row.kernel)
        grouped.setdefault(row.kernel_id, []).append(row)
    return [kernel_runs_of(kernels[pk], mine) for pk, mine in grouped.items()]


def kernel_runs_of(kernel: SuiteKernel, rows: Iterable[KernelRun]) -> KernelRuns:
    """One kernel with these runs; `config` is the one that all of them had, else None."""
    mine = list(rows)
    written = {repr(row.config): row.config for row in mine if row.config}         # mostly one: keys cost more
    configs = {config_key(config): config for config in written.values()}
    config = next(iter(configs.values())) if len(configs) == 1 and all(row.config for row in mine) else None
    return KernelRuns(op=kernel.op, shape=kernel.shape, config=config, key=kernel.key, runs=tuple(run_of(row) for row in mine))


def run_of(row: KernelRun) -> Run:
    return Run(run=row.run, us=np.asarray(row.us, dtype=np.float64), sm_clock_mhz=row.sm_clock_mhz, gpu=row.gpu,
               environment=run_environment(row), facts=row.facts, id=row.pk)


def run_environment(row: KernelRun) -> str:
    """"cuda 13.0, triton 3.6.0, driver 580.159": runs of another one are never mixed in. Recorded runs are a world of their own."""
    return environment_text(row.toolkit, row.driver, row.recorded)


def environment_text(toolkit: str, driver: str, recorded: str = "") -> str:
    return ", ".join(filter(None, (toolkit, f"driver {driver}" if driver else "", recorded)))


def environment_json(gpu: str, toolkit: str, driver: str, recorded: str) -> dict[str, str]:
    return {"gpu": gpu, "toolkit": toolkit, "driver": driver, "recorded": recorded}


def measured(suite: Suite | None = None, **where: Any) -> QuerySet[KernelRun]:
    """Runs with samples, with their kernel and build; `where` narrows: kernel=, build=, build__name=, gpu=, toolkit=, …"""
    rows = KernelRun.objects.filter(rejected="", **where).select_related("kernel", "build")
    return rows if suite is None else rows.filter(kernel__suite=suite)


def build_totals(suite: Suite, **where: str) -> list[tuple[Any, ...]]:
    """Of each environment and build: ENVIRONMENT's values, the build's id, its runs (of each kernel), the id of the newest one.
    Rejected runs do not count. `where`: fields that must be equal."""
    rows = KernelRun.objects.filter(kernel__suite=suite, rejected="", **where).order_by()
    return list(rows.values_list(*ENVIRONMENT, "build").annotate(runs=Count("pk"), newest=Max("pk")))


def environment_totals(suite: Suite, totals: Iterable[tuple[Any, ...]] | None = None, **where: str) -> list[dict[str, Any]]:
    """Where the suite was measured, the place of the newest run first: ENVIRONMENT's names, `runs` (of each kernel), `builds`, and
    `newest`, the id of the newest run. `totals`: what build_totals says of it, where that is known already."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for *place, _, runs, newest in build_totals(suite, **where) if totals is None else totals:
        each = found.setdefault(tuple(place), {**dict(zip(ENVIRONMENT, place, strict=True)), "runs": 0, "builds": 0, "newest": 0})
        each["runs"], each["builds"], each["newest"] = each["runs"] + runs, each["builds"] + 1, max(each["newest"], newest)
    return sorted(found.values(), key=lambda each: -each["newest"])[:MOST_ENVIRONMENTS]


def newest_environment(suite: Suite, **where: str) -> tuple[str, ...] | None:
    """ENVIRONMENT's values of the newest run, the first of environment_totals without its counts."""
    newest = KernelRun.objects.filter(kernel__suite=suite, rejected="", **where).aggregate(newest=Max("pk"))["newest"]
    return KernelRun.objects.filter(pk=newest).values_list(*ENVIRONMENT).first()


def suite_environments(suite: Suite) -> list[dict[str, str]]:
    """GPU, toolkit, driver and label alone."""
    return [environment_json(*(each[name] for name in ENVIRONMENT)) for each in environment_totals(suite)]


def where_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Fields of KernelRun for one of `suite_environments`."""
    return {name: environment[name] for name in ENVIRONMENT if name in environment}


def runs_filter(suite: Suite, query: Mapping[str, str]) -> QuerySet[KernelRun]:
    """Runs by ?kernel= (key or number), ?build=, ?gpu=, ?toolkit=, ?driver=, ?recorded=; newest first, rejected ones too."""
    rows = KernelRun.objects.filter(kernel__suite=suite).select_related("kernel", "build").order_by("-pk")
    if kernel := query.get("kernel"):
        rows = rows.filter(kernel__pk=int(kernel)) if kernel.isdecimal() and len(kernel) < 18 else rows.filter(kernel__key=kernel)
    if query.get("build"):
        rows = rows.filter(build__name=query["build"])
    return rows.filter(**{name: query[name] for name in ("gpu", "toolkit", "driver", "recorded") if name in query})


def run_json(row: KernelRun, with_samples: bool = False) -> dict[str, Any]:
    names = ("run", "number", "p50_us", "p95_us", "n", "rejected", "sm_clock_mhz", "facts", "config", "source_hash", "gpu",
             "toolkit", "driver", "recorded")
    return {"id": row.pk, "kernel": row.kernel.key, "build": row.build.name, "job": row.job_id, "profile": row.profile_id,
            "created": row.created.isoformat(), **{name: getattr(row, name) for name in names},
            **({"us": row.us} if with_samples else {})}
