"""Counters of both builds of a verdict: what is stored, and captures asked for by a person or by a gate that ended SLOWER."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profiles.base.refused import Refused
from tuner.gate.stats.rule import Verdict
from tuner.gate.suites.counters import (
    AFTER_A_GATE,
    MOST_KERNELS,
    Counters,
    kernel_counters,
    request_counters,
    request_counters_of_slower,
)
from tuner.models import Gate, GateKernel, KernelRun, Regression, Suite, SuiteJob, SuiteKernel


def compared_build(row: GateKernel) -> str:
    """Return the name of the build that the verdict compares with, "" without runs."""
    if row.gate.against is not None:
        return row.gate.against.name
    newest = KernelRun.objects.filter(pk__in=row.baseline_runs, rejected="").order_by("-build__at", "-build_id")
    return newest.values_list("build__name", flat=True).first() or ""


def verdict_counters(row: GateKernel, old: str) -> Counters:
    """Return the counters of both builds of a verdict."""
    return kernel_counters(row.kernel, old, row.gate.build.name)


def regression_counters(row: Regression, kernel: SuiteKernel | None) -> Counters | None:
    """Return counters of the first of its kernels; None where the suite lost it or no good build is known."""
    return kernel_counters(kernel, row.good.name, row.build.name) if kernel is not None and row.good is not None else None


def capture_kernel_counters(row: GateKernel, *, owner: Any = None) -> SuiteJob:
    """Queue a capture of both builds of one kernel's verdict. Raises Refused."""
    old = compared_build(row)
    if not old:
        raise Refused({"build": "no run of a baseline is stored for this kernel, so there is nothing to put beside it"}, status=409)
    return _request_or_conflict(row.gate.suite, [row.kernel.key], [old, row.gate.build.name], owner)


def capture_regression_counters(row: Regression, *, owner: Any = None) -> SuiteJob:
    """Queue a capture of a regression's kernels in the last good build and the slower one. Raises Refused."""
    if row.good is None:
        raise Refused({"build": "no build is known that was not slower yet, so there is nothing to put beside it"}, status=409)
    known = set(row.suite.kernels.filter(enabled=True).values_list("key", flat=True))
    keys = [key for key in row.kernels if key in known][:MOST_KERNELS]
    return _request_or_conflict(row.suite, keys, [row.good.name, row.build.name], owner)


def capture_slower_kernels(gate: Gate) -> SuiteJob | None:
    """Queue counters of the slowest kernels after a gate, where its suite asks for them."""
    if gate.verdict != Verdict.SLOWER or not gate.suite.capture_slower:
        return None
    rows = list(gate.kernels.filter(verdict=Verdict.SLOWER).exclude(facts__has_key="stays")
                .select_related("gate__suite", "gate__against", "kernel").order_by("place", "id")[:AFTER_A_GATE])
    old = compared_build(rows[0]) if rows else ""
    return request_counters_of_slower(gate.suite, [row.kernel.key for row in rows], old, gate.build.name, owner=gate.owner)


def _request_or_conflict(suite: Suite, kernels: Sequence[str], builds: Sequence[str], owner: Any) -> SuiteJob:
    try:
        return request_counters(suite, kernels, builds, owner=owner)
    except Refused as refused:
        raise Refused(refused.fields, status=409) from refused
