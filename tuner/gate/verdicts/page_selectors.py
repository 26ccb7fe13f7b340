"""Rows of the gates' pages: the list with its filters, and one gate with its rounds, kernels (worst first) and error rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Count, F, FloatField, Max, Min, Q, QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Abs, Cast
from django.urls import reverse
from django.utils.http import urlencode

from profiles.models import Profile
from tuner.gate.stats.rule import ORDER, SIGN, Rule, Verdict, finite_number, rule_of
from tuner.gate.suites.selectors import LIVE, wanted_runs
from tuner.models import Build, Gate, GateKernel, KernelRun, Regression, Suite, SuiteJob, SuiteKernel
from tuner.tuning.operators import all_operators
from tuner.tuning.trial import storable

# What the home page takes from the guard: what got slower by verdict of gates and series, and what is being measured.


@dataclass(frozen=True)
class WatchedRegression:
    """One regression that nobody has closed, and where to go from it."""

    row: Regression
    kernel: str                    # key of its worst kernel
    evidence: str                  # url of the gate's evidence, "" where a series found it
    url: str
    compare: str
    tune: str

    @property
    def more(self) -> int:
        return max(0, len(self.row.kernels) - 1)


def watched_regressions(limit: int) -> tuple[list[WatchedRegression], int]:
    """(newest first, how many there are): open before acknowledged. Five queries, however many."""
    regressions = Regression.objects.filter(state__in=Regression.WATCHED)
    rows = list(regressions.select_related("suite", "build", "good").order_by(F("state").desc(), "-created", "-id")[:limit])
    told = {row.regression_id: row for row in GateKernel.objects.filter(regression__in=rows)
            .order_by("regression_id", "-gate_id", "place").distinct("regression_id")}
    kernels = {(kernel.suite_id, kernel.key): kernel for kernel in SuiteKernel.objects.filter(
        suite__in=[row.suite_id for row in rows], key__in=[row.kernels[0] for row in rows if row.kernels])}
    names = {build.name for row in rows for build in (row.good, row.build) if build}
    ready = set(Profile.objects.filter(build__in=names, status=Profile.Status.READY).values_list("build", flat=True))
    return [_watched_regression(row, told.get(row.pk), kernels.get((row.suite_id, row.kernels[0])) if row.kernels else None, ready)
            for row in rows], regressions.count()


def _watched_regression(row: Regression, told: GateKernel | None, kernel: SuiteKernel | None, ready: set[str]) -> WatchedRegression:
    """`ready`: builds with a profile, so that there is something to compare."""
    evidence = reverse("gate-kernel", args=[told.gate_id, told.pk]) if told else ""
    compare = ""
    if row.good and {row.good.name, row.build.name} <= ready:
        compare = f"{reverse('compare')}?{urlencode({'build_a': row.good.name, 'build_b': row.build.name})}"
    tune = ""
    if kernel and kernel.op in all_operators():
        tune = f"{reverse('tune-new')}?{urlencode({'operator': kernel.op, 'dtype': kernel.dtype, **kernel.shape})}"
    return WatchedRegression(row, row.kernels[0] if row.kernels else row.family, evidence, reverse("regression", args=[row.pk]),
                             compare, tune)


@dataclass(frozen=True)
class Measurement:
    """A gate, or a suite's job that no gate asked for, and how far it is."""

    row: Gate | SuiteJob
    job: int | None
    done: int
    wanted: int


def gates_under_way(limit: int) -> list[Measurement]:
    """Oldest first. What was wanted and done are runs of its newest job."""
    gates = list(Gate.objects.filter(status__in=Gate.UNDER_WAY).select_related("suite", "build").annotate(
        newest=Max("jobs")).order_by("created")[:limit])
    jobs = _runs_by_job([gate.newest for gate in gates if gate.newest])
    return [Measurement(gate, gate.newest, *jobs.get(gate.newest or 0, (0, 0))) for gate in gates]


def jobs_under_way(limit: int) -> list[Measurement]:
    """Suite jobs that were not asked for by a gate."""
    jobs = list(SuiteJob.objects.filter(status__in=LIVE, gate=None).select_related("suite").order_by("created")[:limit])
    runs_by_job = _runs_by_job([job.pk for job in jobs])
    return [Measurement(job, job.pk, *runs_by_job.get(job.pk, (0, 0))) for job in jobs]


def _runs_by_job(ids: list[int]) -> dict[int, tuple[int, int]]:
    """Job → (runs there are, runs wanted), counted by kernel."""
    jobs = SuiteJob.objects.filter(pk__in=ids).annotate(done=Count("results"))
    enabled = dict(SuiteKernel.objects.filter(suite__jobs__in=ids, enabled=True).order_by().values_list("suite").annotate(
        kernels=Count("pk", distinct=True)))
    return {job.pk: (job.done, wanted_runs(job, enabled.get(job.suite_id, 0))) for job in jobs}


PAGE_ROWS = 50
FILTERS = ("suite", "build", "gpu", "verdict", "status")


@dataclass(frozen=True)
class GateRow:
    """One gate of the list and the kernel that decided it."""

    gate: Gate
    worst: GateKernel | None
    kernels: int
    judged: dict[str, int]                 # verdict -> kernels

    @property
    def signs(self) -> list[tuple[str, str, int]]:
        """(sign, verdict, kernels) of what there is, worst first."""
        return [(SIGN[name], str(name), self.judged[str(name)]) for name in ORDER if self.judged.get(str(name))]


def filtered_gates(query: Mapping[str, str]) -> QuerySet[Gate]:
    """Return gates newest first; `verdict` "none" are those without one yet, and an impossible value finds nothing."""
    gates = Gate.objects.select_related("suite", "build", "against", "owner")
    if any("\0" in value for value in query.values()):
        return gates.none()
    for name, field in (("suite", "suite__name"), ("gpu", "gpu"), ("status", "status")):
        if query.get(name):
            gates = gates.filter(**{field: query[name]})
    if query.get("build"):
        gates = gates.filter(build__name__icontains=query["build"])
    if query.get("verdict"):
        gates = gates.filter(verdict="" if query["verdict"] == "none" else query["verdict"])
    return gates


def gate_rows(gates: Iterable[Gate]) -> list[GateRow]:
    """Return each gate with its worst kernel and counts; three queries, however many gates."""
    shown = list(gates)
    by_gate = GateKernel.objects.filter(gate__in=shown).order_by().values("gate")
    counts: dict[int, Mapping[str, Any]] = {row["gate"]: row for row in by_gate.annotate(
        kernels=Count("pk"), **{name.name: Count("pk", filter=Q(verdict=name.value)) for name in Verdict})}
    worst = {row.gate_id: row for row in GateKernel.objects.filter(gate__in=shown).select_related("kernel")
             .order_by("gate_id", "place", "id").distinct("gate_id")}
    return [GateRow(gate, worst.get(gate.pk), counts.get(gate.pk, {}).get("kernels", 0),
                {name.value: counts.get(gate.pk, {}).get(name.name, 0) for name in Verdict}) for gate in shown]


def filter_choices() -> dict[str, list[str]]:
    """Return what the filters can be set to."""
    return {"suites": list(Suite.objects.filter(gates__isnull=False).distinct().values_list("name", flat=True)[:200]),
            "gpus": list(Gate.objects.exclude(gpu="").order_by("gpu").values_list("gpu", flat=True).distinct()[:50]),
            "verdicts": [str(verdict) for verdict in Verdict], "statuses": [str(status) for status in Gate.Status]}


def gate_totals() -> dict[str, int]:
    """Return how many gates there are, under way, slower and decided."""
    return Gate.objects.aggregate(
        gates=Count("pk"), under_way=Count("pk", filter=Q(status__in=Gate.UNDER_WAY)),
        slower=Count("pk", filter=Q(verdict="SLOWER")), decided=Count("pk", filter=~Q(verdict="")))


@dataclass(frozen=True)
class RoundProgress:
    """One measuring of a gate: a suite job and how far it is."""

    number: int
    job: SuiteJob
    why: str
    kernels: int
    builds: list[str]
    done: int
    wanted: int

    @property
    def share(self) -> float:
        return min(100.0, 100 * self.done / self.wanted) if self.wanted else 0.0


def gate_rounds(gate: Gate) -> list[RoundProgress]:
    """Return the jobs of a gate in order; a run counts once for each kernel."""
    jobs = list(gate.jobs.annotate(done=Count("results")).order_by("created", "id"))
    enabled = gate.suite.kernels.filter(enabled=True).count() if jobs else 0
    out = []
    for number, job in enumerate(jobs, 1):
        kernels = len(job.kernels) if job.kernels is not None else enabled
        builds = [str(build.get("build", "")) for build in job.builds]
        turns = ", interleaved with the baseline's build" if len(builds) > 1 else ""
        why = f"first runs{turns}" if number == 1 else f"more fresh runs{turns}"
        out.append(RoundProgress(number, job, why, kernels, builds, job.done, job.runs * len(builds) * kernels))
    return out


def gate_rule(gate: Gate) -> Rule:
    """Return the rule that a gate was decided by, before that the suite's; what is not said is the default."""
    return rule_of(_stored_rule(gate, "rule") or gate.suite.rule)


def kernel_rule(row: GateKernel) -> Rule:
    """Return the rule of one kernel as it was when it was judged, whatever the suite has come to say since."""
    own = _stored_rule(row.gate, "rules")
    base = _stored_rule(row.gate, "rule") or row.kernel.suite.rule
    return rule_of(base, row.kernel.rule if own is None else own.get(row.kernel.key, {}))


def _stored_rule(gate: Gate, name: str) -> dict[str, Any] | None:
    rule = gate.report.get(name)
    return rule if isinstance(rule, dict) else None


def can_compare(old: str, new: str) -> bool:
    """Return whether both builds have a ready profile, so that the compare page has something to compare."""
    there = Profile.objects.filter(build__in=[old, new], status=Profile.Status.READY).values_list("build", flat=True).distinct()
    return old != new and set(there) >= {old, new}


def gates_between(old: str, new: str, limit: int = 5) -> list[Gate]:
    """Decided gates of `new` that were asked to compare with `old`, or whose baseline held runs of it; newest first."""
    gates = list(Gate.objects.filter(build__name=new).exclude(verdict="").select_related("suite", "build", "against")
                 .prefetch_related("kernels")[:20])
    ids = {pk: gate.pk for gate in gates if gate.against is None for row in gate.kernels.all() for pk in row.baseline_runs}
    gate_pks = {ids[pk] for pk in KernelRun.objects.filter(pk__in=ids, build__name=old).values_list("pk", flat=True)}
    return [gate for gate in gates if gate.pk in gate_pks or (gate.against and gate.against.name == old)][:limit]


KERNEL_ROWS = 100                 # of a gate's table: a suite may have thousands of kernels
KERNEL_FILTERS = ("only", "kernel")    # a verdict, and a part of the kernel's name


def kernel_rows(gate: Gate) -> QuerySet[GateKernel]:
    """Return the kernels of a gate, worst first."""
    rows = gate.kernels.select_related("kernel", "regression__build")
    return rows.order_by("place", F("ratio_p50").desc(nulls_last=True), "pk")


def kernel_page(gate: Gate, query: Mapping[str, str], number: str | None) -> Page[GateKernel]:
    """Return one page of the kernels that the filters leave."""
    rows = kernel_rows(gate)
    if query.get("only"):
        rows = rows.filter(verdict=query["only"]) if storable(query["only"]) else rows.none()
    if query.get("kernel"):
        rows = rows.filter(kernel__key__icontains=query["kernel"]) if storable(query["kernel"]) else rows.none()
    return Paginator(rows, KERNEL_ROWS).get_page(number)


@dataclass(frozen=True)
class KernelLine:
    """A kernel of the page's table with what was judged beside its time."""

    row: GateKernel

    @property
    def judged(self) -> list[str]:
        return [str(metric.get("metric")) for metric in self.row.facts.get("metrics") or [] if isinstance(metric, dict)]

    @property
    def worse(self) -> list[dict[str, Any]]:
        return self._said("SLOWER")

    @property
    def unknown(self) -> list[dict[str, Any]]:
        return self._said("NO DATA")

    def _said(self, verdict: str) -> list[dict[str, Any]]:
        return [each for each in self.row.facts.get("metrics") or [] if isinstance(each, dict) and each.get("verdict") == verdict]


def verdict_tally(gate: Gate) -> dict[str, int]:
    """Return verdict -> kernels in the order of severity, only those that there are."""
    counted = dict(gate.kernels.order_by().values_list("verdict").annotate(kernels=Count("pk")))
    return {str(verdict): counted[str(verdict)] for verdict in ORDER if str(verdict) in counted}


def largest_change(gate: Gate) -> GateKernel | None:
    """Return the kernel that changed most, either way."""
    changed = gate.kernels.filter(ratio_p50__gt=0).select_related("kernel")
    return changed.order_by(Abs(F("ratio_p50") - 1.0).desc(), "place", "pk").first()


@dataclass(frozen=True)
class ErrorRates:
    """How far a gate's words can be trusted: what is known of the error rates of this very comparison."""

    alpha: float | None                    # of a false SLOWER in the whole suite
    detectable_low: float | None           # smallest slowdown that would have shown: best and worst kernel
    detectable_high: float | None
    worst_key: str                         # of the kernel that shows least
    false_alarms: float | None             # highest rate among the kernels' own A/A histories
    plan: str


def error_rates(gate: Gate) -> ErrorRates:
    """Return what is known of the error rates of this very comparison."""
    found = gate.kernels.order_by().aggregate(low=Min("detectable"), high=Max("detectable"), alarms=_largest_fact("false_alarms"))
    worst = gate.kernels.filter(detectable=found["high"]).values_list("kernel__key", flat=True).first() if found["high"] else None
    alpha, plan = gate.report.get("alpha"), gate.report.get("plan")
    return ErrorRates(alpha if isinstance(alpha, int | float) else gate_rule(gate).alpha, found["low"], found["high"], worst or "",
                 found["alarms"], str(plan.get("says", "")) if isinstance(plan, dict) else "")


def runs_to_offer(gate: Gate, of: Iterable[GateKernel] | None = None) -> int:
    """Return how many fresh runs of each build should decide `of` these kernels (None: all), at least the suite's."""
    plan = gate.report.get("plan")
    needed = plan.get("needed_each") if isinstance(plan, dict) else None
    counts = [gate.kernels.order_by().aggregate(most=_largest_fact("more_runs"))["most"]] if of is None else \
        [row.facts.get("more_runs") for row in of]
    return max([gate.suite.runs, *(int(number) for count in (needed, *counts) if (number := finite_number(count)) is not None)])


def _largest_fact(name: str) -> Any:
    return Max(Cast(KT(f"facts__{name}"), FloatField()))


def baseline_builds(gate: Gate) -> list[str]:
    """Return the builds whose runs the kernels were compared with, newest first."""
    lists = gate.kernels.order_by().values_list("facts__baseline__builds", flat=True).distinct()
    names = {str(name) for group in lists if isinstance(group, list) for name in group}
    return list(Build.objects.filter(name__in=names).order_by("-at", "-id").values_list("name", flat=True))
