"""What may be decided about advice, and how a later profile closes it: the gain measured, verified or refuted."""

from __future__ import annotations

import logging
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Q

from profiles.advice.selectors import OPEN, advice_of, of_family, run_finding
from profiles.analysis.compare.comparison import Row
from profiles.base.refused import Refused
from profiles.compare.selectors import KernelComparison, comparison
from profiles.ingest.trace import TraceError
from profiles.models import AdviceDecision, KernelStat, Profile
from profiles.rows import text
from workers import jobs

log = logging.getLogger(__name__)
LEAST_GAIN_PCT = 2.0            # a change that was taken up and gains surely less than this did not help
NOTE_CHARS = 4_000
MOST_CHECKED = 200              # decisions that one profile may close


def decide(*, profile: Profile, kernel: KernelStat | None, cause: str, state: str, by: Any, note: str = "",
           assignee: str = "") -> AdviceDecision:
    """Keep a decision; an open one about the same cause is changed. Raises Refused."""
    if state not in AdviceDecision.State.values:
        raise Refused(f"state must be one of {', '.join(AdviceDecision.State.values)}")
    cause, assignee = text(cause), text(assignee)           # forms may hold what no row can
    person = get_user_model().objects.filter(username=assignee, is_active=True).first() if assignee else None
    if assignee and person is None:
        raise Refused(f"there is nobody called {assignee[:80]}")
    if state == AdviceDecision.State.ASSIGNED and person is None:
        raise Refused("say whom it is assigned to")
    key, fields = _subject(profile, kernel, cause)
    with transaction.atomic():
        decision, _ = AdviceDecision.objects.filter(OPEN).update_or_create(**key, cause=cause, defaults={
            **fields, "state": state, "assignee": person, "note": text(note, NOTE_CHARS), "author": by,
            "base_profile": profile, "base_kernel": kernel, "outcome": "", "gain_pct": None, "gain_low_pct": None,
            "gain_high_pct": None, "why": "", "still_there": None, "later_profile": None, "later_kernel": None})
    _tell(decision)
    return decision


def _subject(profile: Profile, kernel: KernelStat | None, cause: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the decision is about and what was promised."""
    if kernel is None:
        finding = run_finding(profile, cause)
        if finding is None:
            raise Refused(f"this profile has no finding {cause[:60]}")
        return {"family": None, "model": profile.model, "gpu": profile.gpu}, {"title": finding.title,
                                                                              "expected_ns": finding.worth_ns}
    if kernel.family_id is None:
        raise Refused("this kernel has no family yet: a worker assigns it, try again in a moment")
    advice = next((entry for entry in advice_of(kernel) if entry.cause == cause), None)
    if advice is None:
        raise Refused(f"there is no advice {cause[:60]} about this kernel")
    return ({"family_id": kernel.family_id, "gpu": profile.gpu},
            {"title": advice.title, "expected_ns": advice.gain_ns, "expected_pct": advice.gain_pct, "model": profile.model})


def decisions_reopen(profile: Profile, kernel: KernelStat | None, cause: str) -> None:
    """Forget what was decided about a cause and not measured yet."""
    subject = of_family(kernel.family_id or 0) if kernel else Q(family=None, model=profile.model)
    for decision in AdviceDecision.objects.filter(OPEN, subject, cause=text(cause), gpu=profile.gpu):
        decision_delete(decision)


def decision_delete(decision: AdviceDecision) -> None:
    """Delete a decision, as if nothing had been decided."""
    _tell(decision)
    decision.delete()


def decisions_check(profile_id: int) -> int:
    """Close the decisions that this profile can measure; returns how many it measured.

    It can where it is later, of another build, and holds a kernel of the family.
    """
    profile = Profile.objects.filter(pk=profile_id, status=Profile.Status.READY).first()
    if profile is None or profile.kind not in (Profile.Kind.TRACE, Profile.Kind.COUNTERS):
        return 0
    open_ones = AdviceDecision.objects.filter(
        OPEN, state__in=(AdviceDecision.State.TAKEN, AdviceDecision.State.ASSIGNED), gpu=profile.gpu,
        base_profile__kind=profile.kind, base_kernel__family__in=profile.kernels.values("family"), created__lt=profile.created,
    ).exclude(base_profile=profile).exclude(base_profile__build=profile.build).select_related(
        "base_profile", "base_kernel")[:MOST_CHECKED]
    compared: dict[int, KernelComparison | None] = {}
    measured = 0
    for decision in open_ones:
        base = decision.base_profile
        if base is None or decision.base_kernel is None:
            continue
        if base.pk not in compared:
            compared[base.pk] = _compare(base, profile)
        comparison = compared[base.pk]
        if comparison is not None:
            measured += _close(decision, profile, comparison)
    return measured


def _compare(base: Profile, later: Profile) -> KernelComparison | None:
    try:
        return comparison({"a": str(base.pk), "b": str(later.pk)})
    except TraceError:
        return None


def _close(decision: AdviceDecision, profile: Profile, compared: KernelComparison) -> bool:
    """Judge by the row of most time of its kernel: gain ± noise."""
    assert decision.base_kernel is not None
    rows = [(index, row) for index, row in enumerate(compared.result.rows)
            if row.old and row.new and row.old.name == decision.base_kernel.name and row.change_pct is not None]
    if not rows:
        return False
    index, row = max(rows, key=lambda pair: pair[1].old_total_ns)
    assert row.new is not None and row.change_pct is not None
    gain, noise = -row.change_pct, row.noise_pct or 0.0
    decision.gain_pct, decision.gain_low_pct, decision.gain_high_pct = gain, gain - noise, gain + noise
    decision.outcome = _outcome(row, decision.gain_low_pct, decision.gain_high_pct)
    decision.why = compared.whys[index].sentence if index in compared.whys else ""
    decision.later_profile = profile
    decision.later_kernel = profile.kernels.filter(name=text(row.new.name)).first()
    decision.still_there = (None if decision.later_kernel is None else
                            any(advice.cause == decision.cause for advice in advice_of(decision.later_kernel)))
    decision.save()
    _tell(decision)
    return True


def _outcome(row: Row, low: float, high: float) -> str:
    """Verified: the whole interval is a gain. Refuted: no part of it is a gain that matters."""
    if row.noise_pct is not None and low > 0:
        return AdviceDecision.Outcome.VERIFIED
    if row.noise_pct is not None and high < LEAST_GAIN_PCT:
        return AdviceDecision.Outcome.REFUTED
    return AdviceDecision.Outcome.UNDECIDED


def are_decisions_open() -> bool:
    """Return whether any advice was taken up whose outcome is still unknown."""
    return AdviceDecision.objects.filter(OPEN, state__in=(AdviceDecision.State.TAKEN, AdviceDecision.State.ASSIGNED)).exists()


def decisions_follow(profile_id: int) -> None:
    """After an ingest: an error here is logged, the profile stands. Raises MemoryError."""
    try:
        decisions_check(profile_id)
    except MemoryError:
        raise
    except Exception:
        log.exception("profile %s: advice that was taken up could not be checked", profile_id)


def _tell(decision: AdviceDecision) -> None:
    jobs.publish("home", "advice", {"id": decision.pk, "state": decision.state, "outcome": decision.outcome})
