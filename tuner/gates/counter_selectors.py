"""Which builds' counters belong to a verdict, and what is there of them."""

from __future__ import annotations

from tuner.models import GateKernel, KernelRun, Regression, SuiteKernel
from tuner.suites.counter_selectors import Counters, counters_of


def baseline_build(row: GateKernel) -> str:
    """The build that the verdict compares with: the one it was asked to, else the newest of its baseline; "" without runs."""
    if row.gate.against is not None:
        return row.gate.against.name
    newest = KernelRun.objects.filter(pk__in=row.baseline_runs, rejected="").order_by("-build__at", "-build_id")
    return newest.values_list("build__name", flat=True).first() or ""


def of_verdict(row: GateKernel, old: str) -> Counters:
    return counters_of(row.kernel, old, row.gate.build.name)


def of_regression(row: Regression, kernel: SuiteKernel | None) -> Counters | None:
    """Of the first of its kernels; None where the suite no longer has it or no build before is known to be good."""
    return counters_of(kernel, row.good.name, row.build.name) if kernel is not None and row.good is not None else None
