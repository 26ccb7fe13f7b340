"""Reads of advice: a kernel's ranked list with what was decided about each, and all decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet

from profiles.analysis.kernel import counters, rules
from profiles.analysis.kernel.advising.advice import Advice, advise
from profiles.analysis.kernel.advising.gains import Headroom, Ours, headroom
from profiles.analysis.kernel.findings_source import most_pct
from profiles.base.answers import make_answer
from profiles.models import AdviceDecision, Finding, KernelStat, Profile
from workers.scope import account_name

MOST_PEOPLE = 200
OPEN = Q(outcome__in=[AdviceDecision.Outcome.OPEN, AdviceDecision.Outcome.UNDECIDED])
FILTERS = {"open": OPEN, "verified": Q(outcome=AdviceDecision.Outcome.VERIFIED),
           "refuted": Q(outcome=AdviceDecision.Outcome.REFUTED), "dismissed": Q(state=AdviceDecision.State.DISMISSED)}


@dataclass(frozen=True)
class AdviceLine:
    """`decision`: the open one, else the last that a profile closed."""

    advice: Advice
    decision: AdviceDecision | None

    @property
    def dismissed(self) -> bool:
        return self.decision is not None and self.decision.state == AdviceDecision.State.DISMISSED


def advice_of(kernel: KernelStat) -> list[Advice]:
    """Return the advice about a kernel, the best first.

    From the kernel's counters, our findings about it and NVIDIA's rules.
    """
    rows = list(kernel.counter_launches.filter(incomplete=""))
    facts = [counters.from_json(row.facts) for row in rows]
    # a finding at a line may carry NVIDIA's estimate: it is counted as theirs, with their rule
    ours = [Ours(finding.rule, finding.title, finding.advice,
                 None if "nvidia_estimate_pct" in finding.numbers else finding.worth_ns, most_pct(finding.rule, finding.numbers))
            for finding in kernel.findings.all()]
    listed = rules.merge_launch_rules([(row.duration_ns, row.rules) for row in rows])
    return advise(counters.combine_launches(facts) if facts else None, float(kernel.total_ns or 0), ours, listed, facts)


def headroom_of(kernel: KernelStat) -> Headroom | None:
    """Return how far a kernel is from its own roof, over its launches that were counted."""
    facts = [counters.from_json(row.facts) for row in kernel.counter_launches.filter(incomplete="")]
    return headroom(counters.combine_launches(facts) if facts else None, float(kernel.total_ns or 0))


def advice_lines(kernel: KernelStat) -> list[AdviceLine]:
    """Dismissed ones last."""
    decided: dict[str, AdviceDecision] = {}
    if kernel.family_id:
        decision_rows = AdviceDecision.objects.filter(of_family(kernel.family_id), gpu=kernel.profile.gpu).select_related(
            "assignee", "author", "base_profile", "later_profile")
        for decision in sorted(decision_rows, key=lambda each: (each.outcome in ("", "undecided"), each.changed)):
            decided[decision.cause] = decision
    lines = [AdviceLine(advice, decided.get(advice.cause)) for advice in advice_of(kernel)]
    return sorted(lines, key=lambda line: line.dismissed)


def of_family(family_id: int) -> Q:
    """Return the condition for decisions about a family as it is now.

    A merge or split takes those along that were made about its kernels.
    """
    return Q(base_kernel__family=family_id) | Q(base_kernel=None, family=family_id)


class DecisionJson(TypedDict):
    """What was decided of a cause; `expected_`: its gain then, `gain_` and `outcome`: what a later profile shows."""

    id: int
    family: int | None
    model: str
    gpu: str
    cause: str
    title: str
    state: str
    assignee: str | None
    note: str
    author: str | None
    base_profile: int | None
    base_kernel: int | None
    expected_ns: float | None
    expected_pct: float | None
    outcome: str
    gain_pct: float | None
    gain_low_pct: float | None
    gain_high_pct: float | None
    why: str
    still_there: bool | None
    later_profile: int | None
    later_kernel: int | None
    created: datetime
    changed: datetime


class AdviceLineJson(TypedDict):
    """`Advice` of a kernel, and what was decided of it."""

    cause: str
    title: str
    evidence: list[str]
    fix: str
    confidence: str
    gain_ns: float | None
    gain_most_ns: float | None
    gain_pct: float | None
    gain_source: str
    said_by: list[str]
    kind: str
    no_gain: str
    decision: DecisionJson | None


class AdviceJson(TypedDict):
    """Ranked advice about a kernel; `headroom`: what its ceiling leaves."""

    profile: int
    kernel: int
    name: str
    headroom: Headroom | None
    advice: list[AdviceLineJson]


def advice_json(kernel: KernelStat) -> AdviceJson:
    room = headroom_of(kernel)
    return make_answer(AdviceJson, kernel, profile=kernel.profile_id, kernel=kernel.pk, headroom=room, advice=[
        make_answer(AdviceLineJson, line.advice, decision=decision_json(line.decision) if line.decision else None)
        for line in advice_lines(kernel)])


def run_decisions(profile: Profile) -> dict[str, AdviceDecision]:
    """Open decisions about findings of runs like this one: rule -> decision."""
    rows = AdviceDecision.objects.filter(OPEN, family=None, model=profile.model, gpu=profile.gpu).select_related("assignee")
    return {row.cause: row for row in rows}


def run_finding(profile: Profile, rule: str) -> Finding | None:
    return profile.findings.filter(kernel=None, rule=rule).order_by("-worth_ns").first()


def decisions(params: Mapping[str, str]) -> QuerySet[AdviceDecision]:
    """Return the decisions that `?show=open|verified|refuted|dismissed` asks for, else all."""
    rows = AdviceDecision.objects.select_related("family", "assignee", "author", "base_profile", "later_profile", "base_kernel",
                                                  "later_kernel")
    show = params.get("show", "")
    return rows.filter(FILTERS[show]) if show in FILTERS else rows


def people() -> list[str]:
    """Whom advice can be assigned to."""
    users = get_user_model().objects.filter(is_active=True).order_by("username")
    return list(users.values_list("username", flat=True)[:MOST_PEOPLE])


def decision_json(each: AdviceDecision) -> DecisionJson:
    return {
        "id": each.pk, "family": each.family_id, "model": each.model, "gpu": each.gpu, "cause": each.cause, "title": each.title,
        "state": each.state, "assignee": account_name(each.assignee), "note": each.note,
        "author": account_name(each.author), "base_profile": each.base_profile_id,
        "base_kernel": each.base_kernel_id, "expected_ns": each.expected_ns, "expected_pct": each.expected_pct,
        "outcome": each.outcome, "gain_pct": each.gain_pct, "gain_low_pct": each.gain_low_pct, "gain_high_pct": each.gain_high_pct,
        "why": each.why, "still_there": each.still_there, "later_profile": each.later_profile_id,
        "later_kernel": each.later_kernel_id, "created": each.created, "changed": each.changed,
    }
