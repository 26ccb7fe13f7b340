"""The kernels of a gate: page by page, worst first, and what is said of all of them at once, counted by the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Count, F, FloatField, Max, Min, QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Abs, Cast

from profiles.analysis.gate.rule import ORDER
from tuner.gates.page_selectors import rule_of
from tuner.models import Build, Gate, GateKernel
from tuner.trial import storable

PAGE_ROWS = 100                 # of a gate's table: a suite may have thousands of kernels
FILTERS = ("only", "kernel")    # a verdict, and a part of the kernel's name


def kernels(gate: Gate) -> QuerySet[GateKernel]:
    """Worst first."""
    found = gate.kernels.select_related("kernel", "regression__build")
    return found.order_by("place", F("ratio_p50").desc(nulls_last=True), "pk")


def page(gate: Gate, wanted: Mapping[str, str], number: str | None) -> Page[GateKernel]:
    """The kernels of one page that `wanted` (FILTERS) leaves."""
    found = kernels(gate)
    if wanted.get("only"):
        found = found.filter(verdict=wanted["only"]) if storable(wanted["only"]) else found.none()
    if wanted.get("kernel"):
        found = found.filter(kernel__key__icontains=wanted["kernel"]) if storable(wanted["kernel"]) else found.none()
    return Paginator(found, PAGE_ROWS).get_page(number)


@dataclass(frozen=True)
class Line:
    """A kernel of the page's table with what was judged beside its time."""

    row: GateKernel

    @property
    def judged(self) -> list[str]:
        return [str(each.get("metric")) for each in self.row.facts.get("metrics") or [] if isinstance(each, dict)]

    @property
    def worse(self) -> list[dict[str, Any]]:
        return self._said("SLOWER")

    @property
    def unknown(self) -> list[dict[str, Any]]:
        return self._said("NO DATA")

    def _said(self, verdict: str) -> list[dict[str, Any]]:
        return [each for each in self.row.facts.get("metrics") or [] if isinstance(each, dict) and each.get("verdict") == verdict]


def tally(gate: Gate) -> dict[str, int]:
    """Verdict → kernels, in the order of severity, only those that there are."""
    counted = dict(gate.kernels.order_by().values_list("verdict").annotate(kernels=Count("pk")))
    return {str(each): counted[str(each)] for each in ORDER if str(each) in counted}


def largest(gate: Gate) -> GateKernel | None:
    """The kernel that changed most, either way."""
    changed = gate.kernels.filter(ratio_p50__gt=0).select_related("kernel")
    return changed.order_by(Abs(F("ratio_p50") - 1.0).desc(), "place", "pk").first()


@dataclass(frozen=True)
class Worth:
    """How far a gate's words can be trusted: what is known of the error rates of this very comparison."""

    alpha: float | None                    # of a false SLOWER in the whole suite
    detectable_low: float | None           # smallest slowdown that would have shown: best and worst kernel
    detectable_high: float | None
    worst_key: str                         # of the kernel that shows least
    false_alarms: float | None             # highest rate among the kernels' own A/A histories
    plan: str


def worth(gate: Gate) -> Worth:
    found = gate.kernels.order_by().aggregate(low=Min("detectable"), high=Max("detectable"), alarms=_largest_fact("false_alarms"))
    worst = gate.kernels.filter(detectable=found["high"]).values_list("kernel__key", flat=True).first() if found["high"] else None
    alpha, plan = gate.report.get("alpha"), gate.report.get("plan")
    return Worth(alpha if isinstance(alpha, int | float) else rule_of(gate).alpha, found["low"], found["high"], worst or "",
                 found["alarms"], str(plan.get("says", "")) if isinstance(plan, dict) else "")


def more_runs(gate: Gate, of: Iterable[GateKernel] | None = None) -> int:
    """How many fresh runs of each build to offer: what should decide (`of` these kernels, None: all), at least the suite's."""
    plan = gate.report.get("plan")
    needed = plan.get("needed_each") if isinstance(plan, dict) else None
    asked = [gate.kernels.order_by().aggregate(most=_largest_fact("more_runs"))["most"]] if of is None else \
        [row.facts.get("more_runs") for row in of]
    known = (each for each in (needed, *asked) if isinstance(each, int | float) and not isinstance(each, bool))
    return max([gate.suite.runs, *(int(each) for each in known)])


def _largest_fact(name: str) -> Any:
    return Max(Cast(KT(f"facts__{name}"), FloatField()))


def baseline_builds(gate: Gate) -> list[str]:
    """Builds whose runs the kernels were compared with, newest first."""
    lists = gate.kernels.order_by().values_list("facts__baseline__builds", flat=True).distinct()
    names = {str(name) for each in lists if isinstance(each, list) for name in each}
    return list(Build.objects.filter(name__in=names).order_by("-at", "-id").values_list("name", flat=True))
