"""What the pages of gates say, from rows: the list with its filters, one gate with its rounds, and its answer in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.urls import NoReverseMatch, reverse
from django.utils.http import urlencode

from profiles.analysis.gate.rule import EXIT_CODE, ORDER, Rule, Verdict
from profiles.models import Profile
from tuner.models import Gate, GateKernel, KernelRun, Suite, SuiteJob

PAGE_ROWS = 50
FILTERS = ("suite", "build", "gpu", "verdict", "status")
SIGNS = {Verdict.SLOWER: "▲", Verdict.AMBIGUOUS: "?", Verdict.NO_DATA: "∅", Verdict.FASTER: "▼", Verdict.PASS: "✓"}
UNDER_WAY = (Gate.Status.WAITING, Gate.Status.MEASURING)


@dataclass(frozen=True)
class Row:
    """One gate of the list and the kernel that decided it."""

    gate: Gate
    worst: GateKernel | None
    kernels: int
    judged: dict[str, int]                 # verdict -> kernels

    @property
    def signs(self) -> list[tuple[str, str, int]]:
        """(sign, verdict, kernels) of what there is, worst first."""
        return [(SIGNS[name], str(name), self.judged[str(name)]) for name in ORDER if self.judged.get(str(name))]


def gates(wanted: Mapping[str, str]) -> QuerySet[Gate]:
    """Newest first. `verdict` "none" are those without one yet; what no gate has finds nothing."""
    found = Gate.objects.select_related("suite", "build", "against", "owner")
    if any("\0" in value for value in wanted.values()):
        return found.none()
    for name, field in (("suite", "suite__name"), ("gpu", "gpu"), ("status", "status")):
        if wanted.get(name):
            found = found.filter(**{field: wanted[name]})
    if wanted.get("build"):
        found = found.filter(build__name__icontains=wanted["build"])
    if wanted.get("verdict"):
        found = found.filter(verdict="" if wanted["verdict"] == "none" else wanted["verdict"])
    return found


def gate_rows(found: Iterable[Gate]) -> list[Row]:
    """Three queries, however many gates."""
    shown = list(found)
    counts = {row["gate"]: row for row in GateKernel.objects.filter(gate__in=shown).order_by().values("gate").annotate(
        kernels=Count("pk"), **{name.name: Count("pk", filter=Q(verdict=name.value)) for name in Verdict})}
    worst = {row.gate_id: row for row in GateKernel.objects.filter(gate__in=shown).select_related("kernel")
             .order_by("gate_id", "place", "id").distinct("gate_id")}
    return [Row(gate, worst.get(gate.pk), counts.get(gate.pk, {}).get("kernels", 0),
                {name.value: counts.get(gate.pk, {}).get(name.name, 0) for name in Verdict}) for gate in shown]


def choices() -> dict[str, list[str]]:
    """What the filters can be set to."""
    return {"suites": list(Suite.objects.filter(gates__isnull=False).distinct().values_list("name", flat=True)[:200]),
            "gpus": list(Gate.objects.exclude(gpu="").order_by("gpu").values_list("gpu", flat=True).distinct()[:50]),
            "verdicts": [str(each) for each in Verdict], "statuses": [str(each) for each in Gate.Status]}


def totals() -> dict[str, int]:
    return Gate.objects.aggregate(
        gates=Count("pk"), under_way=Count("pk", filter=Q(status__in=UNDER_WAY)),
        slower=Count("pk", filter=Q(verdict="SLOWER")), decided=Count("pk", filter=~Q(verdict="")))


@dataclass(frozen=True)
class Round:
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


def rounds(gate: Gate) -> list[Round]:
    """Its jobs in order; a run counts once for each kernel."""
    jobs = list(gate.jobs.annotate(done=Count("results")).order_by("created", "id"))
    enabled = gate.suite.kernels.filter(enabled=True).count() if jobs else 0
    out = []
    for number, job in enumerate(jobs, 1):
        kernels = len(job.kernels) if job.kernels is not None else enabled
        builds = [str(each.get("build", "")) for each in job.builds]
        turns = ", interleaved with the baseline's build" if len(builds) > 1 else ""
        why = f"first runs{turns}" if number == 1 else f"more fresh runs{turns}"
        out.append(Round(number, job, why, kernels, builds, job.done, job.runs * len(builds) * kernels))
    return out


def rule_of(gate: Gate) -> Rule:
    """The rule that it was decided by, before that the suite's; what is not said is the default. `kernel_rule`: of one kernel."""
    return _rule(_told(gate, "rule") or gate.suite.rule)


def kernel_rule(row: GateKernel) -> Rule:
    """As it was when the kernel was judged, whatever the suite has come to say since."""
    own = _told(row.gate, "rules")
    base = _told(row.gate, "rule") or row.kernel.suite.rule
    return _rule({**base, **(row.kernel.rule if own is None else own.get(row.kernel.key, {}))})


def _told(gate: Gate, name: str) -> dict[str, Any] | None:
    told = gate.report.get(name)
    return told if isinstance(told, dict) else None


def _rule(said: Mapping[str, Any]) -> Rule:
    known = {name: float(value) for name, value in said.items()
             if name in Rule.__dataclass_fields__ and isinstance(value, int | float) and not isinstance(value, bool)}
    return Rule(**known)


def exit_code(gate: Gate) -> int | None:
    """What a pipeline gets: None while it is not known. 3 where the gate failed, 2 where it was stopped."""
    if gate.status == Gate.Status.FAILED:
        return 3
    if gate.status == Gate.Status.STOPPED:
        return 2
    return EXIT_CODE[Verdict(gate.verdict)] if gate.verdict in set(Verdict) else None


def known_url(name: str, *arguments: Any) -> str:
    """Of a page that may not be there: "" then."""
    try:
        return reverse(name, args=arguments)
    except NoReverseMatch:
        return ""


def build_url(name: str) -> str:
    """Of the build's own page, its place among all builds where it has none."""
    return known_url("build", name) or f"{reverse('build-list')}?{urlencode({'build': name})}"


def comparable(old: str, new: str) -> bool:
    """Whether both builds have a ready profile, so that the compare page has something to compare."""
    there = Profile.objects.filter(build__in=[old, new], status=Profile.Status.READY).values_list("build", flat=True).distinct()
    return old != new and set(there) >= {old, new}


def gates_between(old: str, new: str, limit: int = 5) -> list[Gate]:
    """Decided gates of `new` that were asked to compare with `old`, or whose baseline held runs of it; newest first."""
    found = list(Gate.objects.filter(build__name=new).exclude(verdict="").select_related("suite", "build", "against")
                 .prefetch_related("kernels")[:20])
    ids = {pk: gate.pk for gate in found if gate.against is None for row in gate.kernels.all() for pk in row.baseline_runs}
    held = {ids[pk] for pk in KernelRun.objects.filter(pk__in=ids, build__name=old).values_list("pk", flat=True)}
    return [gate for gate in found if gate.pk in held or (gate.against and gate.against.name == old)][:limit]
