"""Kernels that the baseline has and a build has not: gone, or named otherwise. They are no reason to pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner.gate.baselines.selectors import Baseline, Env
from tuner.gate.builds.selectors import Position, branch_line, position
from tuner.models import BaselineChange, Build, Gate, GateKernel, KernelRun, Suite, SuiteKernel

MOST_GATES = 20             # earlier gates of the suite that are looked through for the last one before the build


def gone_kernels(gate: Gate, env: Env, present: Sequence[SuiteKernel], baselines: Iterable[Baseline]) -> list[SuiteKernel]:
    """Return seen kernels without a run of the build that builds have which its other kernels are compared with, or that the gate
    before called gone, where nobody accepted that. Declared kernels are compared in any case. Where no kernel has a baseline, what
    the build before had.
    """
    if gate.suite.kind == Suite.Kind.OPERATORS:
        return []
    builds = {build.pk: build for one in baselines for build in one.builds} or _build_before(gate, env)
    had: dict[int, Position | None] = {}
    rows = KernelRun.objects.filter(kernel__suite=gate.suite, kernel__enabled=True, kernel__declared=False, build__in=builds,
                                    rejected="", **env.where()).exclude(kernel__in=present)
    for kernel, build in rows.order_by().values_list("kernel", "build").distinct():
        had[kernel] = max(filter(None, (had.get(kernel), position(builds[build]))))
    for kernel in _said_before(gate, env):
        had.setdefault(kernel, None)
    for one in present:
        had.pop(one.pk, None)
    accepted = _accepted(gate, had)
    left = [kernel for kernel, newest in had.items()
            if kernel not in accepted or (newest is not None and accepted[kernel] < newest)]
    return list(SuiteKernel.objects.filter(pk__in=left, enabled=True).select_related("suite"))


def _build_before(gate: Gate, env: Env) -> dict[int, Build]:
    """The newest build before of the gate's line or the main one: where none of a build's kernels is known, all were renamed."""
    lines = {"", branch_line(gate.build)}
    ran = KernelRun.objects.filter(kernel__suite=gate.suite, rejected="", build__at__lt=gate.build.at, **env.where())
    newest = Build.objects.filter(pk__in=ran.order_by().values("build")).exclude(pk=gate.build_id).order_by("-at", "-pk")
    return {build.pk: build for build in [one for one in newest[:MOST_GATES] if branch_line(one) in lines][:1]}


def _said_before(gate: Gate, env: Env) -> list[int]:
    """Kernels that the last gate before the build called gone; of its own line or the main one."""
    lines = {"", branch_line(gate.build)}
    earlier = Gate.objects.filter(suite=gate.suite, status=Gate.Status.DONE, build__at__lt=gate.build.at, **env.where())
    earlier = earlier.exclude(pk=gate.pk).exclude(allow_gone=True).select_related("build")
    for last in earlier.order_by("-build__at", "-build_id", "-pk")[:MOST_GATES]:
        if branch_line(last.build) in lines:
            rows = GateKernel.objects.filter(gate=last, facts__gone=True).order_by()
            return list(rows.values_list("kernel", flat=True))
    return []


def _accepted(gate: Gate, kernels: Iterable[int]) -> dict[int, Position]:
    """Kernel -> the newest build, up to this one, from which on somebody accepted that it is gone."""
    found: dict[int, Position] = {}
    changes = BaselineChange.objects.filter(suite=gate.suite, action=BaselineChange.Action.GONE, kernel__in=list(kernels))
    for change in changes.select_related("build"):
        build: Build | None = change.build
        if build is not None and change.kernel_id is not None and position(build) <= position(gate.build):
            found[change.kernel_id] = max(found.get(change.kernel_id, position(build)), position(build))
    return found
