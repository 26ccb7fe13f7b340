"""What the pages of suites show: the list, one suite in one environment, one kernel's runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, stdev
from typing import Any, TypedDict

from django.core.paginator import Page, Paginator
from django.db.models import Count, Max, OuterRef, Q, QuerySet, Subquery
from django.urls import reverse

from profiles.base.answers import Facts, Scalar, make_answer, plain
from profiles.models import CaptureTarget
from tuner.clocks.wish import is_asked, told_text
from tuner.gate.builds.selectors import ENVIRONMENT
from tuner.gate.stats.plan import Plan, plan_runs
from tuner.gate.stats.rule import Rule, finite_number, rule_of
from tuner.gate.suite_pages.charts import Dot, Row
from tuner.gate.suites.selectors import LIVE, jobs_of, jobs_progress, suite_environments, suite_list, where_of
from tuner.models import Build, Gate, KernelRun, Suite, SuiteJob, SuiteKernel
from tuner.texts import config_in_order, in_order
from tuner.tuning.trial import storable

MOST_DOTS, MOST_DOTS_IN_ALL = 60, 3_000        # runs in the picture of a suite: the newest of each kernel
MOST_DRAWN = 100             # kernels in that picture
MOST_ROWS = 200              # runs of a kernel in its table
MOST_READ = 40_000           # newest runs of the kernels that are read at once …
READ_AT_ONCE = 200           # … so many of them
PAGE_ROWS = 100              # kernels in a suite's table
MOST_BUILDS = 30             # in the picture of a kernel
FEW_FOR_SPREAD = 3
FACTS_FIRST = ("registers", "spills", "smem_bytes")


# ---- the list ----

def suites_counted() -> QuerySet[Suite]:
    """Return every suite by name with its size, newest run and newest gate."""
    gate = Gate.objects.filter(suite=OuterRef("pk")).exclude(verdict="").order_by("-created")
    newest = KernelRun.objects.filter(kernel__suite=OuterRef("pk")).order_by("-pk")
    suites = suite_list().annotate(
        kernel_count=Count("kernels", filter=Q(kernels__enabled=True)), gate_pk=Subquery(gate.values("pk")[:1]),
        verdict=Subquery(gate.values("verdict")[:1]), newest_run=Subquery(newest.values("created")[:1]),
        newest_build=Subquery(newest.values("build__name")[:1]), recorded=Subquery(newest.values("recorded")[:1]))
    return suites.order_by("name")


def suite_rows(suites: Iterable[Suite]) -> list[dict[str, Any]]:
    """Return suites with what is under way; a running job rather than one that waits."""
    suites = list(suites)
    under_way = SuiteJob.objects.filter(status__in=LIVE, suite__in=suites).order_by("status", "-pk")
    live: dict[int, SuiteJob] = {job.suite_id: job for job in under_way}
    return [{"suite": suite, "job": live.get(suite.pk)} for suite in suites]


# ---- one suite ----

@dataclass(frozen=True)
class KernelLine:
    """A kernel of a suite in one environment."""

    kernel: SuiteKernel
    runs: int = 0
    rejected: int = 0
    why_rejected: str = ""
    newest_build: str = ""
    p50_us: float | None = None             # median of the newest build's run medians
    p95_us: float | None = None
    spread: float | None = None             # standard deviation of that build's run medians over their mean; None: too few runs
    dots: Sequence[Dot] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    measured_with: Mapping[str, Any] = field(default_factory=dict)       # configuration of the newest build

    @property
    def config(self) -> Mapping[str, Any]:
        return self.measured_with or config_in_order(self.kernel.config or {})

    @property
    def config_differs(self) -> bool:
        """The build was measured with another configuration than the suite gives."""
        return bool(self.measured_with and self.kernel.config and dict(self.measured_with) != self.kernel.config)

    @property
    def compiled(self) -> list[Any]:
        return [self.facts.get(name) for name in FACTS_FIRST]


def plan_of(suite: Suite, kernels: int | None = None) -> Plan:
    """Return whether a suite's runs are enough for so many kernels: said before anything is run."""
    if kernels is None:
        kernels = suite.kernels.filter(enabled=True).count()
    return plan_runs(kernels, suite.baseline_runs, suite.runs, rule_of(suite.rule))


def plan_json(suite: Suite) -> Any:
    return plain(plan_of(suite))


def plan_answer(kernels: int, runs: int, baseline_runs: int, alpha: float | None = None) -> Any:
    return plain(plan_runs(kernels, baseline_runs, runs, Rule() if alpha is None else Rule(alpha=alpha)))


def chosen_environment(suite: Suite, query: Mapping[str, str]) -> tuple[list[dict[str, str]], dict[str, str] | None]:
    """Return where this suite was measured, and the environment that the query names, else the newest."""
    environments = suite_environments(suite)
    fields = {name: query[name] for name in ENVIRONMENT if name in query}
    fits = [environment for environment in environments if all(environment[name] == value for name, value in fields.items())]
    return environments, next(iter(fits or environments), None)


def kernels_page(suite: Suite, text: str, number: str | None) -> Page[SuiteKernel]:
    """Return kernels that are measured, in the suite's order; `text` is part of the key."""
    kernels = suite.kernels.filter(enabled=True)
    if text:
        kernels = kernels.filter(key__icontains=text) if storable(text) else kernels.none()
    return Paginator(kernels, PAGE_ROWS).get_page(number)


def kernel_lines(kernels: Iterable[SuiteKernel], environment: Mapping[str, str] | None) -> list[KernelLine]:
    """Return the lines of kernels of one suite in one environment."""
    suite_kernels = list(kernels)
    return [line for first in range(0, len(suite_kernels), READ_AT_ONCE)
            for line in _read_lines(suite_kernels[first:first + READ_AT_ONCE], environment)]


def _read_lines(kernels: Sequence[SuiteKernel], environment: Mapping[str, str] | None) -> list[KernelLine]:
    if environment is None:
        return [KernelLine(kernel) for kernel in kernels]
    rows = KernelRun.objects.filter(kernel__in=kernels, **where_of(environment)).order_by("-pk").values(
        "pk", "kernel_id", "build__name", "run", "p50_us", "p95_us", "sm_clock_mhz", "rejected")[:MOST_READ]
    grouped: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        grouped[row["kernel_id"]].append(row)
    newest = [good["pk"] for group in grouped.values() if (good := next((row for row in group if not row["rejected"]), None))]
    more = KernelRun.objects.filter(pk__in=newest).defer("us").in_bulk()
    carried = {row.kernel_id: (row.facts, config_in_order(row.config or {})) for row in more.values()}
    return [_make_line(kernel, grouped[kernel.pk], *carried.get(kernel.pk, ({}, {}))) for kernel in kernels]


def _make_line(kernel: SuiteKernel, found: Sequence[Mapping[str, Any]], facts: Mapping[str, Any],
          config: Mapping[str, Any]) -> KernelLine:
    """`facts` and `config`: what its newest run carries."""
    good = [row for row in found if not row["rejected"]]
    bad = [row for row in found if row["rejected"]]
    if not good:
        return KernelLine(kernel, rejected=len(bad), why_rejected=bad[0]["rejected"] if bad else "")
    newest = good[0]["build__name"]
    mine = [row for row in good if row["build__name"] == newest]
    medians = [row["p50_us"] for row in mine]
    return KernelLine(
        kernel, len(good), len(bad), bad[0]["rejected"] if bad else "", newest, median(medians),
        median(row["p95_us"] for row in mine),
        stdev(medians) / (sum(medians) / len(medians)) if len(medians) >= FEW_FOR_SPREAD else None,
        [_make_dot(row, newest) for row in reversed(good[:MOST_DOTS])], facts, config)


def _make_dot(row: Mapping[str, Any], newest: str) -> Dot:
    clock = f", {row['sm_clock_mhz']:,.0f} MHz" if row["sm_clock_mhz"] else ""
    return Dot(row["p50_us"], f"{row['build__name']}, {row['run']}: {row['p50_us']:.2f} µs{clock}",
               "newest" if row["build__name"] == newest else "")


def suite_strip_rows(lines: Sequence[KernelLine]) -> list[Row]:
    """Return the first kernels, each with its newest runs: a picture that a browser draws at once."""
    drawn = lines[:MOST_DRAWN]
    most = max(10, min(MOST_DOTS, MOST_DOTS_IN_ALL // max(1, len(drawn))))
    return [Row(line.kernel.key, line.dots[-most:], median(dot.us for dot in line.dots[-most:]),
                reverse("suite-kernel", args=[line.kernel.suite_id, line.kernel.pk]), line.kernel.key)
            for line in drawn if line.dots]


# ---- one kernel ----

def kernel_runs(kernel: SuiteKernel, environment: Mapping[str, str] | None) -> list[KernelRun]:
    """Return a kernel's newest runs, rejected ones too; newest first, without samples."""
    runs = kernel.runs.filter(**where_of(environment or {})).select_related("build", "job", "profile")
    return list(runs.defer("us").order_by("-pk")[:MOST_ROWS])


def kernel_strip_rows(runs: Sequence[KernelRun]) -> list[Row]:
    """Return one row a build, the newest build first."""
    grouped: dict[str, list[KernelRun]] = {}
    for run in runs:
        if not run.rejected:
            grouped.setdefault(run.build.name, []).append(run)
    rows: list[Row] = []
    for build, mine in list(grouped.items())[:MOST_BUILDS]:
        dots = [Dot(run.p50_us, f"{run.run}: {run.p50_us:.2f} µs over {run.n} samples" +
                    (f", {run.sm_clock_mhz:,.0f} MHz" if run.sm_clock_mhz else ""), "newest" if not rows else "", f"#run-{run.pk}")
                for run in reversed(mine) if run.p50_us]
        rows.append(Row(build, dots, median(dot.us for dot in dots), reverse("build", args=[build]), build))
    return rows


# ---- around it ----

def job_rows(suite: Suite) -> list[dict[str, Any]]:
    jobs = list(jobs_of(suite)[:20])
    progress = jobs_progress(jobs)
    return [{"job": job, "builds": [each["build"] for each in job.builds], "progress": progress[job.pk], "live": job.status in LIVE,
             "clocks": told_text(lock) if is_asked(lock := job.environment.get("clock_lock")) else ""}
            for job in jobs]


def builds_known() -> list[str]:
    return list(Build.objects.values_list("name", flat=True)[:50])


def targets_known() -> list[str]:
    return list(CaptureTarget.objects.filter(enabled=True).order_by("name").values_list("name", flat=True)[:200])


def newest_measured(suite: Suite) -> dict[str, Any]:
    return KernelRun.objects.filter(kernel__suite=suite).aggregate(newest=Max("created"), runs=Count("pk"))


def fact_names(runs: Sequence[KernelRun]) -> list[str]:
    """Return names of numbers that runs carry beside time, the compiler's first; a table's columns."""
    names = dict.fromkeys(name for run in runs for name, value in run.facts.items() if finite_number(value) is not None)
    return [*(name for name in FACTS_FIRST if name in names), *(name for name in names if name not in FACTS_FIRST)][:8]


class KernelLineJson(TypedDict):
    """A kernel of a suite with its newest build's runs in one environment; `spread`: standard deviation of run medians ÷ mean."""

    id: int
    key: str
    op: str
    shape: dict[str, int]
    dtype: str
    family: str
    config_from: str
    config: dict[str, Scalar]
    declared: bool
    runs: int
    rejected: int
    why_rejected: str
    newest_build: str
    p50_us: float | None
    p95_us: float | None
    spread: float | None
    facts: Facts


def line_json(line: KernelLine) -> KernelLineJson:
    kernel = line.kernel
    return make_answer(
        KernelLineJson, line, id=kernel.pk, key=kernel.key, op=kernel.op, shape=in_order(kernel.op, kernel.shape),
        dtype=kernel.dtype, family=kernel.family, config_from=kernel.config_from, config=dict(line.config),
        declared=kernel.declared)
