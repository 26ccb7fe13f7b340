"""What the builds page shows of a suite: the choice in its address, each kernel's series, the heat map, and the bisect plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models.functions import Left
from django.urls import reverse
from django.utils.http import urlencode

from tuner.gate.baselines.selectors import Env, load_baselines
from tuner.gate.builds.models import quantity_of
from tuner.gate.builds.selectors import ENVIRONMENT, position
from tuner.gate.environments.bisect_services import Bisect, plan_bisect
from tuner.gate.history.series_selectors import Point, Series, Step, load_series, measured_environments, measured_lines
from tuner.gate.suites.selectors import build_totals
from tuner.models import BaselineChange, Build, GateKernel, KernelRun, Regression, Suite, SuiteKernel
from tuner.texts import in_order
from tuner.tuning.operators import all_operators

FIELDS = ("suite", "on", "gpu", "toolkit", "driver", "branch", "kernel")
MOST_CHARS = 400


@dataclass(frozen=True)
class Choice:
    suite: Suite
    where: dict[str, Any]               # one of `environments`
    branch: str = ""
    kernel: str = ""                    # key; "": the page chooses
    places: tuple[dict[str, Any], ...] = ()         # all environments that could be chosen
    branches: tuple[str, ...] = ()
    missed: str = ""                    # what was asked for and is not there

    def query(self, **changes: str) -> str:
        """The address' question, with what replaces its parts."""
        fields = {"suite": self.suite.name, "on": self.where["text"], "branch": self.branch, "kernel": self.kernel, **changes}
        return urlencode({name: value for name, value in fields.items() if value})

    def with_kernel(self, key: str) -> Choice:
        return replace(self, kernel=key)


def suite_choices() -> list[Suite]:
    """Return suites to look at: the one with the newest run first, then those without runs."""
    suites = list(Suite.objects.order_by("name")[:200])
    newest = newest_suite_id()
    return sorted(suites, key=lambda suite: suite.pk != newest)


def newest_suite_id() -> int | None:
    """Return the id of the suite with the newest run, the cache's own left out; None without runs."""
    runs = KernelRun.objects.filter(rejected="").exclude(kernel__suite__kind=Suite.Kind.WINNERS)
    newest: int | None = runs.order_by("-pk").values_list("kernel__suite", flat=True).first()
    return newest


def read_choice(query: Mapping[str, str]) -> Choice | None:
    """Return what the address names, else the newest; None where no suite has a run yet."""
    fields = {name: query.get(name, "")[:MOST_CHARS] for name in FIELDS}
    suite = Suite.objects.filter(name=fields["suite"]).first() if fields["suite"] and "\0" not in fields["suite"] else None
    missed = f"There is no suite {fields['suite']}." if fields["suite"] and suite is None else ""
    suite = suite or Suite.objects.filter(pk=newest_suite_id() or 0).first()
    totals = build_totals(suite) if suite else []
    places = measured_environments(suite, totals) if suite else []
    if suite is None or not places:
        return None
    where = next((place for place in places if _fits(place, fields)), None)
    if where is None:
        where, missed = places[0], missed or f"{suite.name} has no run on {fields['on'] or fields['gpu'] or 'that environment'}."
    branches = measured_lines(suite, {build for *_, build, _, _ in totals})
    branch = fields["branch"] if fields["branch"] in branches else branches[0]
    return Choice(suite, where, branch, fields["kernel"], tuple(places), tuple(branches), missed)


def _fits(place: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    if query["on"]:
        return bool(place["text"] == query["on"])
    return all(query[name] in ("", place[name]) for name in ("gpu", "toolkit", "driver"))


HEAT_BUILDS, HEAT_KERNELS = 8, 40
KERNEL_ROWS = 100
MOST_REGRESSIONS = 1_000
SURE = ("SLOWER", "FASTER")


@dataclass(frozen=True)
class Verdict:
    """What the newest gate of a build said of a kernel."""

    verdict: str
    ratio: float | None         # of the quantity that decided
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


def load_page(choice: Choice) -> Page | None:
    """Return what the page shows, None where nothing was measured on this line of builds in this environment."""
    series = load_series(choice.suite, choice.where, choice.branch)
    if not series:
        return None
    env = {name: choice.where[name] for name in ENVIRONMENT}
    builds = list({point.build.pk: point.build for curve in series for point in curve.points}.values())
    builds.sort(key=lambda build: (build.at, build.pk))
    regressions = Regression.objects.filter(suite=choice.suite, **env).select_related("build", "good", "suite")
    watched = list(regressions.filter(state__in=Regression.WATCHED)[:MOST_REGRESSIONS])
    heat_builds = builds[-HEAT_BUILDS:]
    verdicts = newest_verdicts(choice, {build.pk for build in (*heat_builds, *(curve.points[-1].build for curve in series))})
    rows = sorted((_kernel_row(curve, verdicts, watched, builds[-1]) for curve in series), key=_worst_first)
    chosen = next((curve for curve in series if curve.kernel.key == choice.kernel), rows[0].series)
    baseline = load_baselines([chosen.kernel], Env(**env), samples=False)[chosen.kernel.pk]
    medians = sorted(run.p50_us for run in baseline.runs if run.p50_us)
    of_chosen = list(regressions.filter(kernels__contains=[chosen.kernel.key])[:MOST_REGRESSIONS]) if chosen.steps else []
    return Page(
        choice.with_kernel(chosen.kernel.key), series, rows[:KERNEL_ROWS], chosen,
        {build: verdict.verdict for (_, build), verdict in
         newest_verdicts(choice, [build.pk for build in builds], kernel=chosen.kernel).items()},
        baseline_marks(chosen.kernel, env["gpu"]), medians[len(medians) // 2] if medians else None, baseline.says,
        [_step_row(chosen.kernel, step, of_chosen) for step in reversed(chosen.steps)], heat_builds,
        [(row.kernel, heat_cells(row.series, heat_builds, verdicts)) for row in rows[:HEAT_KERNELS]],
        watched, len(builds))


REASON_START = 160                # characters, among which the quantity is that decided


def newest_verdicts(choice: Choice, builds: Iterable[int], **of: Any) -> dict[tuple[int, str], Verdict]:
    """Return (kernel id, build name) -> the newest gate's verdict here; `of`: of which kernel, else of all."""
    env = {f"gate__{name}": choice.where[name] for name in ENVIRONMENT}
    rows = (GateKernel.objects.filter(gate__suite=choice.suite, gate__build__in=builds, **env, **of).order_by("gate_id")
            .values_list("kernel_id", "gate__build__name", "verdict", "gate_id", "pk", Left("reason", REASON_START), "ratio_p50",
                         "facts__p95__ratio", "facts__mean__ratio"))
    return {(kernel, build): Verdict(verdict, {"p95": p95, "mean": mean}.get(quantity_of(reason)) or p50, gate, line)
            for kernel, build, verdict, gate, line, reason, p50, p95, mean in rows}


def baseline_marks(kernel: SuiteKernel, gpu: str) -> dict[str, str]:
    """Return build -> "intended" or "pinned", as said of this kernel or of the whole suite."""
    changes = BaselineChange.objects.filter(suite=kernel.suite_id, gpu__in=["", gpu]).exclude(build=None).select_related("build")
    words: dict[str, str] = {BaselineChange.Action.INTENDED: "intended", BaselineChange.Action.PIN: "pinned"}
    return {change.build.name: words[change.action] for change in changes.order_by("pk")
            if change.build is not None and change.kernel_id in (None, kernel.pk) and change.action in words}


def heat_cells(series: Series, builds: Sequence[Build], said: Mapping[tuple[int, str], Verdict]) -> list[Cell]:
    """Return the kernel's cell in each of these builds."""
    near: dict[int, tuple[Point, float | None]] = {}            # the newest of them first: mostly all that is asked
    oldest = min(map(position, builds))
    for index in range(len(series.points) - 1, -1, -1):
        point = series.points[index]
        if position(point.build) < oldest:
            break
        near[point.build.pk] = point, series.points[index - 1].median_us if index else None
    steps = {step.build: step for step in series.steps}
    return [_heat_cell(near.get(build.pk), said.get((series.kernel.pk, build.name)), steps.get(build.name))
            for build in builds]


def _heat_cell(found: tuple[Point, float | None] | None, verdict: Verdict | None, step: Step | None) -> Cell:
    point, before_us = found or (None, None)
    if point is None or point.median_us is None:
        return Cell(verdict=verdict)
    return Cell(point.median_us, len(point.us), point.median_us / before_us if before_us else None, verdict, step)


def _kernel_row(series: Series, said: Mapping[tuple[int, str], Verdict], watched: Sequence[Regression], newest: Build) -> KernelRow:
    build = series.points[-1].build
    cell = heat_cells(series, [build], said)[0]
    step = series.steps[-1] if series.steps else None
    regression = next((row for row in watched if series.kernel.key in row.kernels), None)
    return KernelRow(series, cell, build, step, regression, len(series.since), build.pk != newest.pk)


def _worst_first(row: KernelRow) -> tuple[bool, float, int]:
    worst = row.regression.ratio or 1.0 if row.regression else row.step.ratio if row.step else 1.0
    return row.regression is None, -worst, row.kernel.place


def _step_row(kernel: SuiteKernel, step: Step, watched: Sequence[Regression]) -> StepRow:
    regression = next((row for row in watched if kernel.key in row.kernels and row.build.name in (step.build, step.bad)), None)
    compare = f"{reverse('compare')}?{urlencode({'build_a': step.good, 'build_b': step.bad})}"
    return StepRow(step, regression, compare, tune_url(kernel))


def tune_url(kernel: SuiteKernel) -> str:
    """Return the address of a filled-in tune form, "" where the kernel is no operator of the tuner."""
    if kernel.op not in all_operators():
        return ""
    return f"{reverse('tune-new')}?{urlencode({'operator': kernel.op, 'dtype': kernel.dtype, **in_order(kernel.op, kernel.shape)})}"


WORDS = {"good": ("✓", "at the old speed"), "bad": ("▲", "at the new speed"), "unclear": ("?", "at neither speed"),
         "skip": ("✕", "could not be measured"), "next": ("▸", "to measure next"), "": ("·", "not measured")}
MOST_SHOWN = 60


@dataclass(frozen=True)
class PlannedBuild:
    name: str
    css: str
    sign: str
    title: str


@dataclass(frozen=True)
class ShownBisect:
    found: Bisect
    builds: list[PlannedBuild]         # from the last good one to the first slow one
    left_out: int               # in the middle, where there are too many to show


def page_bisect(page: Page) -> ShownBisect | None:
    """Return the plan for the chosen kernel's slowdown, None without one, or where its build is known."""
    good, bad = _bisect_ends(page)
    if not good:
        return None
    try:
        bisect = plan_bisect(page.choice.suite, page.chosen.kernel.key, gpu=page.choice.where["gpu"], good=good, bad=bad)
    except LookupError:
        return None
    planned = (bisect.environment.toolkit, bisect.environment.driver, bisect.recorded)
    if planned != tuple(page.choice.where[name] for name in ("toolkit", "driver", "recorded")):
        return None         # the newest runs are of another environment, and the plan is of that one
    names = [good, *bisect.plan.between, bad]
    half = MOST_SHOWN // 2
    shown = names if len(names) <= MOST_SHOWN else [*names[:half], *names[-half:]]
    return ShownBisect(bisect, [_planned_build(name, bisect) for name in shown], len(names) - len(shown))


def _bisect_ends(page: Page) -> tuple[str, str]:
    """(last good build, first slow build) of the regression nobody answered, else of the newest step; "" where neither is."""
    key = page.chosen.kernel.key
    row = next((row for row in page.regressions if key in row.kernels and row.good is not None), None)
    if row is not None and row.good is not None:
        return row.good.name, row.build.name
    step = page.chosen.steps[-1] if page.chosen.steps else None
    return (step.good, step.bad) if step is not None and step.slower else ("", "")


def _planned_build(name: str, bisect: Bisect) -> PlannedBuild:
    side = "next" if name in bisect.plan.measure else bisect.sides.get(name, "")
    sign, title = WORDS.get(side, WORDS[""])
    return PlannedBuild(name, f"is-{side}" if side else "", sign, title)
