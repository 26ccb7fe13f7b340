"""The bisect plan of one kernel, and measuring the builds that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict

from profiles.base.answers import make_answer
from profiles.base.refused import Refused
from tuner.devices import GPU, is_gpu
from tuner.gate.builds.selectors import MAIN, branch_line
from tuner.gate.environments.observation_selectors import Environment
from tuner.gate.stats.changes import BAD, GOOD, SKIP, BisectPlan, bisect_plan, change_points, classify_build
from tuner.gate.suites.job_services import job_create
from tuner.models import Build, KernelRun, Regression, Suite, SuiteJob, SuiteKernel

MOST_BUILDS = 2000             # of a line, the newest
MOST_RUNS = 50_000
MOST_AT_ONCE = 8


@dataclass(frozen=True)
class Bisect:
    """A plan with what it rests on. `why` says where the good and the bad build come from."""

    kernel: SuiteKernel
    environment: Environment
    recorded: str
    plan: BisectPlan
    why: str
    sides: Mapping[str, str] = field(default_factory=dict)      # build -> good | bad | unclear | skip
    why_not: str = ""                                           # why nothing can be measured from here; "": it can


def plan_bisect(suite: Suite, kernel_key: str, *, gpu: str = "", good: str = "", bad: str = "", at_once: int = 1) -> Bisect:
    """Return the plan between `good` and `bad`; unnamed: of the newest open regression, else of the newest step.

    Everything is of one environment, that of the newest run (on `gpu`, where it is named). Raises LookupError with its words.
    """
    kernel = suite.kernels.filter(key=kernel_key).first()
    if kernel is None:
        raise LookupError(f"suite {suite.name} has no kernel {kernel_key!r}")
    rows = KernelRun.objects.filter(kernel=kernel, **({"gpu": gpu} if gpu else {}))
    newest = rows.filter(rejected="").order_by("-id").first()
    if newest is None:
        raise LookupError(f"{kernel_key} was not measured{f' on {gpu}' if gpu else ''} yet")
    where = Environment(newest.gpu, newest.toolkit, newest.driver)
    rows = rows.filter(gpu=newest.gpu, toolkit=newest.toolkit, driver=newest.driver, recorded=newest.recorded)
    us, rejected = _runs(rows)
    good, bad, why = _good_and_bad(kernel, newest, us, good, bad)
    names = _line(bad or newest.build.name)
    for name in filter(None, (good, bad)):
        if name not in names:
            raise LookupError(f"build {name!r} is not on this line of builds")
    if good and bad and names.index(good) > names.index(bad):
        raise LookupError(f"build {good} is newer than {bad}: the good one comes before the bad one")
    sides = _sides(names, us, rejected, good, bad)
    between = names[names.index(good) if good else 0:names.index(bad) + 1] if bad else names
    return Bisect(kernel, where, newest.recorded, bisect_plan(between, sides, at_once=min(at_once, MOST_AT_ONCE)), why, sides,
                  _why_not(suite))


def _runs(rows: Any) -> tuple[dict[str, list[float]], set[str]]:
    """(run medians by build, builds of which every run was rejected)."""
    us: dict[str, list[float]] = {}
    builds: set[str] = set()
    for build, p50, rejected in rows.order_by("-id").values_list("build__name", "p50_us", "rejected")[:MOST_RUNS]:
        builds.add(build)
        if not rejected and p50:
            us.setdefault(build, []).append(p50)
    return us, builds - us.keys()


def _line(build: str) -> list[str]:
    """Builds of the same line as this one, oldest first."""
    row = Build.objects.filter(name=build).first()
    if row is None:
        raise LookupError(f"no build {build!r} is known")
    on = {"branch__in": MAIN} if branch_line(row) == "" else {"branch": row.branch}
    return list(Build.objects.filter(**on).order_by("-at", "-id").values_list("name", flat=True)[:MOST_BUILDS])[::-1]


def _good_and_bad(kernel: SuiteKernel, newest: KernelRun, us: Mapping[str, Sequence[float]], good: str,
                  bad: str) -> tuple[str, str, str]:
    """(good, bad, where they come from); "" where none is known."""
    if good or bad:
        return good, bad, "as it was asked for"
    open_ = Regression.objects.filter(suite_id=kernel.suite_id, family=kernel.family, gpu=newest.gpu, recorded=newest.recorded,
                                      state__in=Regression.WATCHED).select_related("build", "good").order_by("-build__at")
    for row in open_:
        if row.good is not None and kernel.key in row.kernels and us.get(row.good.name) and us.get(row.build.name):
            return row.good.name, row.build.name, f"regression {row.pk}"
    names = [name for name in _line(newest.build.name) if us.get(name)]
    slower = [step for step in change_points([us[name] for name in names]) if step.slower]
    if slower:
        step = slower[-1]
        return names[step.good], names[step.bad], f"its series: {100 * (step.ratio - 1):.1f} % slower from {names[step.index]} on"
    return "", "", "no regression is open and its series has no step"


def _sides(names: Sequence[str], us: Mapping[str, Sequence[float]], rejected: set[str], good: str, bad: str) -> dict[str, str]:
    sides = {name: SKIP for name in names if name in rejected}
    if good:
        sides[good] = GOOD
    if bad:
        sides[bad] = BAD
    if good and bad and us.get(good) and us.get(bad):
        between = names[names.index(good) + 1:names.index(bad)]
        sides |= {name: classify_build(us[name], us[good], us[bad]) for name in between if us.get(name)}
    return sides


def _why_not(suite: Suite) -> str:
    if suite.kind == Suite.Kind.UPLOADED:
        return "this suite's runs are uploaded: measure these builds in your pipeline and send their runs"
    if not suite.enabled:
        return "the suite is switched off"
    return ""


class BisectEnvironmentJson(TypedDict):
    gpu: str
    toolkit: str
    driver: str
    recorded: str


class BisectJson(TypedDict):
    """Which builds to measure next; `known`: build → good, bad, unclear or skip; `rounds`: of measuring that remain."""

    suite: str
    kernel: str
    environment: BisectEnvironmentJson
    good: str | None
    bad: str | None
    why: str
    measure: list[str]
    between: list[str]
    rounds: int
    says: str
    conflicts: list[str]
    suspects: list[str]
    known: dict[str, str]
    can_measure: bool
    why_not: str


def bisect_json(found: Bisect) -> BisectJson:
    """Return the JSON of a plan with what it rests on."""
    return make_answer(
        BisectJson, found.plan, suite=found.kernel.suite.name, kernel=found.kernel.key, why=found.why,
        environment={**asdict(found.environment), "recorded": found.recorded},
        known={name: value for name, value in found.sides.items() if value}, can_measure=not found.why_not, why_not=found.why_not)


def measure_bisect(suite: Suite, kernel_key: str, builds: Sequence[str], owner: Any = None, *, gpu: str = "",
                   runs: int | None = None) -> SuiteJob:
    """Queue fresh runs of this kernel for these builds, interleaved. Raises Refused, LookupError."""
    bisect = plan_bisect(suite, kernel_key, gpu=gpu)
    if bisect.why_not:
        raise Refused({"suite": bisect.why_not})
    device = f"{GPU}:{bisect.environment.gpu}" if is_gpu(suite.device) and bisect.environment.gpu else suite.device
    return job_create(suite, builds=list(builds), runs=runs, kernels=[kernel_key], reason="bisect", device=device, owner=owner)
