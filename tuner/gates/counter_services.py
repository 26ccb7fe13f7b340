"""Counters of both builds of a verdict: asked for by a person at one kernel, or by a gate that ended SLOWER."""

from __future__ import annotations

from typing import Any

from profiles.analysis.gate.rule import Verdict
from tuner.gates.counter_selectors import baseline_build
from tuner.gates.refusal_services import GateRefused
from tuner.models import Gate, GateKernel, Regression, SuiteJob
from tuner.suites.counter_services import AFTER_A_GATE, MOST_KERNELS, counters_ask, counters_of_slower
from tuner.suites.errors import SuiteError


def counters_of_kernel(row: GateKernel, *, owner: Any = None) -> SuiteJob:
    """Queue a capture of both builds of one kernel's verdict. Raises GateRefused."""
    old = baseline_build(row)
    if not old:
        raise GateRefused({"build": "no run of a baseline is stored for this kernel, so there is nothing to put beside it"}, 409)
    return _asked(lambda: counters_ask(row.gate.suite, [row.kernel.key], [old, row.gate.build.name], owner=owner))


def counters_of_regression(row: Regression, *, owner: Any = None) -> SuiteJob:
    """The same for a slowdown's kernels, in the last good build and the one that made them slower. Raises GateRefused."""
    if row.good is None:
        raise GateRefused({"build": "no build is known that was not slower yet, so there is nothing to put beside it"}, 409)
    known = set(row.suite.kernels.filter(enabled=True).values_list("key", flat=True))
    keys = [key for key in row.kernels if key in known][:MOST_KERNELS]
    good = row.good.name
    return _asked(lambda: counters_ask(row.suite, keys, [good, row.build.name], owner=owner))


def counters_wanted(gate: Gate) -> SuiteJob | None:
    """After a gate: the slowest kernels' counters, where its suite asks for them by itself."""
    if gate.verdict != Verdict.SLOWER or not gate.suite.capture_slower:
        return None
    rows = list(gate.kernels.filter(verdict=Verdict.SLOWER).select_related("gate__suite", "gate__against", "kernel")
                .order_by("place", "id")[:AFTER_A_GATE])
    old = baseline_build(rows[0]) if rows else ""
    return counters_of_slower(gate.suite, [row.kernel.key for row in rows], old, gate.build.name, owner=gate.owner)


def _asked(ask: Any) -> SuiteJob:
    try:
        job: SuiteJob = ask()
    except SuiteError as refused:
        raise GateRefused(dict(refused.fields), 409) from refused
    return job
