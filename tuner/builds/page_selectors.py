"""What the builds page says of a suite: each kernel's series with its changes and verdicts, builds side by side, the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from tuner.baselines.selectors import Env, baselines_of
from tuner.builds.choice_selectors import Choice
from tuner.builds.order_selectors import position
from tuner.builds.series_selectors import ENVIRONMENT, Point, Series, Step, series
from tuner.models import BaselineChange, Build, GateKernel, Regression, SuiteKernel
from tuner.operators import all_operators
from tuner.texts import in_order

HEAT_BUILDS, HEAT_KERNELS = 8, 40
KERNEL_ROWS = 100
MOST_REGRESSIONS = 1_000
WATCHED = (Regression.State.OPEN, Regression.State.ACKNOWLEDGED)
SURE = ("SLOWER", "FASTER")


@dataclass(frozen=True)
class Verdict:
    """What the newest gate of a build said of a kernel."""

    verdict: str
    ratio: float | None
    gate: int
    line: int                   # GateKernel


@dataclass(frozen=True)
class Cell:
    """One kernel in one build. `sure`: a gate or a change point says so, not two medians that differ."""

    us: float | None = None
    runs: int = 0
    ratio: float | None = None  # to the build before that was measured
    verdict: Verdict | None = None
    step: Step | None = None

    @property
    def sure(self) -> str:
        """"slower", "faster" or ""."""
        if self.step:
            return "slower" if self.step.slower else "faster"
        return self.verdict.verdict.lower() if self.verdict and self.verdict.verdict in SURE else ""

    @property
    def css(self) -> str:
        change = max(abs((self.step.ratio if self.step else self.ratio or 1.0) - 1), 0.0)
        return f"{self.sure}-{1 + (change >= 0.05) + (change >= 0.2)}" if self.sure else ""


@dataclass(frozen=True)
class KernelRow:
    """One kernel of the table: its newest build, the one before, its last change."""

    series: Series
    newest: Cell
    build: Build
    step: Step | None
    regression: Regression | None
    since: int                  # builds at the present speed
    behind: bool                # the newest build of the table has no run of it

    @property
    def kernel(self) -> SuiteKernel:
        return self.series.kernel


@dataclass(frozen=True)
class StepRow:
    step: Step
    regression: Regression | None
    compare: str                # addresses, "" where there is nothing to go to
    tune: str


@dataclass(frozen=True)
class Page:
    choice: Choice
    found: Sequence[Series]
    rows: Sequence[KernelRow]
    chosen: Series
    verdicts: Mapping[str, str]             # of the chosen kernel: build -> what its gate said
    marks: Mapping[str, str]
    baseline_us: float | None
    baseline_says: str
    steps: Sequence[StepRow]
    heat_builds: Sequence[Build]
    heat: Sequence[tuple[SuiteKernel, Sequence[Cell]]]
    regressions: Sequence[Regression]
    builds: int


def page(choice: Choice) -> Page | None:
    """None where nothing was measured on this line of builds in this environment."""
    found = series(choice.suite, choice.where, choice.branch)
    if not found:
        return None
    env = {name: choice.where[name] for name in ENVIRONMENT}
    builds = list({point.build.pk: point.build for one in found for point in one.points}.values())
    builds.sort(key=lambda build: (build.at, build.pk))
    told = Regression.objects.filter(suite=choice.suite, **env).select_related("build", "good", "suite")
    watched = list(told.filter(state__in=WATCHED)[:MOST_REGRESSIONS])
    heat_builds = builds[-HEAT_BUILDS:]
    said = verdicts(choice, {build.pk for build in (*heat_builds, *(one.points[-1].build for one in found))})
    rows = sorted((_row(one, said, watched, builds[-1]) for one in found), key=_worst_first)
    chosen = next((one for one in found if one.kernel.key == choice.kernel), rows[0].series)
    baseline = baselines_of([chosen.kernel], Env(**env), samples=False)[chosen.kernel.pk]
    medians = sorted(run.p50_us for run in baseline.runs if run.p50_us)
    of_chosen = list(told.filter(kernels__contains=[chosen.kernel.key])[:MOST_REGRESSIONS]) if chosen.steps else []
    return Page(
        choice.with_kernel(chosen.kernel.key), found, rows[:KERNEL_ROWS], chosen,
        {build: verdict.verdict for (_, build), verdict in
         verdicts(choice, [build.pk for build in builds], kernel=chosen.kernel).items()},
        marks(chosen.kernel, env["gpu"]), medians[len(medians) // 2] if medians else None, baseline.says,
        [_step_row(chosen.kernel, step, of_chosen) for step in reversed(chosen.steps)], heat_builds,
        [(row.kernel, cells(row.series, heat_builds, said)) for row in rows[:HEAT_KERNELS]],
        watched, len(builds))


def verdicts(choice: Choice, builds: Iterable[int], **of: Any) -> dict[tuple[int, str], Verdict]:
    """(kernel id, build name) -> the newest gate's word, in this environment; `of`: of which kernel, else of all."""
    env = {f"gate__{name}": choice.where[name] for name in ENVIRONMENT}
    found = (GateKernel.objects.filter(gate__suite=choice.suite, gate__build__in=builds, **env, **of).order_by("gate_id")
             .values_list("kernel_id", "gate__build__name", "verdict", "ratio_p50", "gate_id", "pk"))
    return {(kernel, build): Verdict(*rest) for kernel, build, *rest in found}


def marks(kernel: SuiteKernel, gpu: str) -> dict[str, str]:
    """Build -> "intended" or "pinned", as people said it of this kernel or of the whole suite."""
    said = BaselineChange.objects.filter(suite=kernel.suite_id, gpu__in=["", gpu]).exclude(build=None).select_related("build")
    words = {BaselineChange.Action.INTENDED: "intended", BaselineChange.Action.PIN: "pinned"}
    return {change.build.name: words[change.action] for change in said.order_by("pk")
            if change.kernel_id in (None, kernel.pk) and change.action in words}


def cells(one: Series, builds: Sequence[Build], said: Mapping[tuple[int, str], Verdict]) -> list[Cell]:
    """The kernel in each of these builds."""
    near: dict[int, tuple[Point, float | None]] = {}            # the newest of them first: mostly all that is asked
    oldest = min(map(position, builds))
    for at in range(len(one.points) - 1, -1, -1):
        point = one.points[at]
        if position(point.build) < oldest:
            break
        near[point.build.pk] = point, one.points[at - 1].median_us if at else None
    steps = {step.build: step for step in one.steps}
    return [_cell(*near.get(build.pk, (None, None)), said.get((one.kernel.pk, build.name)), steps.get(build.name))
            for build in builds]


def _cell(point: Point | None, before_us: float | None, verdict: Verdict | None, step: Step | None) -> Cell:
    if point is None or point.median_us is None:
        return Cell(verdict=verdict)
    return Cell(point.median_us, len(point.us), point.median_us / before_us if before_us else None, verdict, step)


def _row(one: Series, said: Mapping[tuple[int, str], Verdict], watched: Sequence[Regression], newest: Build) -> KernelRow:
    build = one.points[-1].build
    cell = cells(one, [build], said)[0]
    step = one.steps[-1] if one.steps else None
    regression = next((row for row in watched if one.kernel.key in row.kernels), None)
    return KernelRow(one, cell, build, step, regression, len(one.since), build.pk != newest.pk)


def _worst_first(row: KernelRow) -> tuple[bool, float, int]:
    worst = row.regression.ratio or 1.0 if row.regression else row.step.ratio if row.step else 1.0
    return row.regression is None, -worst, row.kernel.place


def _step_row(kernel: SuiteKernel, step: Step, watched: Sequence[Regression]) -> StepRow:
    regression = next((row for row in watched if kernel.key in row.kernels and row.build.name in (step.build, step.bad)), None)
    compare = f"{reverse('compare')}?{urlencode({'build_a': step.good, 'build_b': step.bad})}"
    return StepRow(step, regression, compare, tune_url(kernel))


def tune_url(kernel: SuiteKernel) -> str:
    """The filled-in form of a tune job; "" where the kernel is no operator of the tuner."""
    if kernel.op not in all_operators():
        return ""
    return f"{reverse('tune-new')}?{urlencode({'operator': kernel.op, 'dtype': kernel.dtype, **in_order(kernel.op, kernel.shape)})}"
