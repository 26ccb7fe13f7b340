"""What a suite's own history says of its gates: identical runs against each other, kernel by kernel (A/A)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NotRequired, TypedDict

from django.db.models import Count, F, Window
from django.db.models.functions import RowNumber

from profiles.base.answers import Scalar, make_answer, plain
from tuner.gate.stats.calibration import Calibration, calibrate
from tuner.gate.stats.rule import rule_of
from tuner.gate.suites.selectors import kernel_runs_of, where_of
from tuner.models import KernelRun, Suite, SuiteKernel

MOST_KERNELS = 100              # calibrated for one answer: about 20 ms each
MOST_RUNS = 40                  # of one build: the newest
DRAWS = 1000


@dataclass(frozen=True)
class CalibratedKernel:
    kernel: SuiteKernel
    build: str                      # whose runs are compared with each other: the build with most of them; "": none
    found: Calibration | None


@dataclass(frozen=True)
class SuiteCalibration:
    kernels: list[CalibratedKernel]
    left_out: int                   # kernels beyond MOST_KERNELS
    slower: float | None            # largest share of A/A comparisons that one kernel ends SLOWER
    false_alarms: float | None      # of a suite: 1 − the product over its kernels, as if they were independent
    detectable: float | None        # of the kernel that shows least: every kernel's slowdown of so much would be seen
    says: str


def calibrate_suite(suite: Suite, environment: Mapping[str, str] | None) -> SuiteCalibration:
    """Compare runs of one build in one environment with each other: the same code, so what differs is noise."""
    if environment is None:
        return SuiteCalibration([], 0, None, None, None, "No run was measured yet: nothing is known of this suite's noise.")
    kernels = list(suite.kernels.filter(enabled=True))
    where = where_of(environment)
    builds = _builds(suite, where)
    first_kernels = kernels[:MOST_KERNELS]
    alpha = rule_of(suite.rule).alpha
    results, runs = [], _runs(first_kernels, builds, where)
    for kernel in first_kernels:
        _, name = builds.get(kernel.pk, (0, ""))
        rows, rule = runs[kernel.pk], replace(rule_of(suite.rule, kernel.rule), alpha=alpha)
        one = calibrate([kernel_runs_of(kernel, rows)], rule, kernels=max(1, len(kernels)), baseline_runs=suite.baseline_runs,
                        candidate_runs=suite.runs, draws=DRAWS)[0] if rows else None
        results.append(CalibratedKernel(kernel, name, one))
    return _sum_up(suite, results, len(kernels) - len(first_kernels))


def _builds(suite: Suite, where: Mapping[str, str]) -> dict[int, tuple[int, str]]:
    """Kernel -> the build with most runs of it there; of several, the newest."""
    counted = KernelRun.objects.filter(kernel__suite=suite, rejected="", **where).values(
        "kernel_id", "build_id", "build__name").annotate(runs=Count("pk")).order_by("runs", "build_id")[:100_000]
    return {row["kernel_id"]: (row["build_id"], row["build__name"]) for row in counted}


def _runs(kernels: list[SuiteKernel], builds: Mapping[int, tuple[int, str]],
          where: Mapping[str, str]) -> dict[int, list[KernelRun]]:
    """Kernel -> the newest MOST_RUNS of its build."""
    turn = Window(RowNumber(), partition_by=[F("kernel_id"), F("build_id")], order_by=F("pk").desc())
    rows = KernelRun.objects.filter(kernel__in=kernels, build__in={pk for pk, _ in builds.values()}, rejected="", **where)
    runs_by_kernel: dict[int, list[KernelRun]] = defaultdict(list)
    for row in rows.annotate(nth=turn).filter(nth__lte=MOST_RUNS).order_by("-pk"):
        if row.build_id == builds.get(row.kernel_id, (0, ""))[0]:
            runs_by_kernel[row.kernel_id].append(row)
    return runs_by_kernel


def _sum_up(suite: Suite, found: list[CalibratedKernel], left_out: int) -> SuiteCalibration:
    known = [kernel.found for kernel in found if kernel.found is not None and kernel.found.slower is not None]
    if not known:
        return SuiteCalibration(found, left_out, None, None, None,
                                "No build has 5 runs of a kernel here: nothing is known of this suite's noise yet.")
    passes = 1.0
    for calibration in known:
        passes *= 1.0 - (calibration.slower or 0.0)
    slower = max(calibration.slower or 0.0 for calibration in known)
    blind = [calibration for calibration in known if calibration.detectable is None]
    detectable = None if blind else max(calibration.detectable or 0.0 for calibration in known)
    says = (f"{suite.runs} against {suite.baseline_runs} runs of the same code: {100 * (1 - passes):.2g} % of suites would end "
            f"SLOWER, over {len(known)} kernel{'s' * (len(known) != 1)} and {known[0].draws:,} comparisons each; ")
    says += (f"{len(blind)} of them cannot be called SLOWER by so few runs." if detectable is None else
             f"a slowdown of {100 * detectable:.2g} % or more in any of them is called SLOWER in 95 % of comparisons"
             f"{_extremes_text(known) if len(known) > 1 else ''}.")
    return SuiteCalibration(found, left_out, slower, 1 - passes, detectable, says)


def _extremes_text(known: list[Calibration]) -> str:
    """Most kernels show less than the one that shows least: said, so that one noisy kernel does not stand for all."""
    best = min(known, key=lambda one: one.detectable or 0.0)
    worst = max(known, key=lambda one: one.detectable or 0.0)
    return f"; least is seen in {worst.key}, most in {best.key} ({100 * (best.detectable or 0.0):.2g} %)"


class KernelCalibrationJson(TypedDict):
    """`Calibration` of a kernel in one build; without runs it says so alone."""

    kernel: str
    build: str
    says: str
    key: NotRequired[str]
    op: NotRequired[str]
    shape: NotRequired[dict[str, int]]
    config: NotRequired[dict[str, Scalar] | None]
    runs: NotRequired[int]
    cv: NotRequired[float | None]
    cv_p95: NotRequired[float | None]
    slower: NotRequired[float | None]
    ambiguous: NotRequired[float | None]
    detectable: NotRequired[float | None]
    draws: NotRequired[int]


class CalibrationJson(TypedDict):
    """Identical runs against each other: shares of false alarms, and the smallest slowdown that is seen."""

    says: str
    false_alarms: float | None
    slower: float | None
    detectable: float | None
    left_out: int
    kernels: list[KernelCalibrationJson]


def calibration_json(calibration: SuiteCalibration) -> CalibrationJson:
    return make_answer(CalibrationJson, calibration, kernels=[
        {"kernel": kernel.kernel.key, "build": kernel.build, **(plain(kernel.found) if kernel.found else {"says": "no runs"})}
        for kernel in calibration.kernels])
