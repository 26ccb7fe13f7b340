"""What leads a trace: a cause of the account, or work that need not be. The topic "causes" with that lead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.once import once_a_frame
from profiles.analysis.core.result import Finding, Result
from profiles.analysis.trace.account.account import account_of
from profiles.analysis.trace.account.causes import CAUSES
from profiles.analysis.trace.account.result import causes_result
from profiles.analysis.trace.needed.account import Claim, Needs, needs_of
from profiles.analysis.trace.needed.lead import leading_claim
from profiles.analysis.trace.needed.topic import claim_text, needed_result


@once_a_frame
def _needs(frame: Frame) -> Needs:
    return needs_of(frame)


@once_a_frame
def lead_of_trace(frame: Frame) -> Claim | None:
    """Return the work that need not be which leads, by the GPU's data sheet; None where a cause of the account leads."""
    needs = _needs(frame)
    return leading_claim(needs, account_of(frame)) if needs.gpus else None


def causes_with_lead(frame: Frame) -> Result:
    """Return the account of a trace. Where work that need not be leads, `numbers["lead"]` is it, its `cause` the name of its kind.

    Causes that it explains (a host that is late because of pieces in a loop) are no findings of their own.
    """
    result, claim = causes_result(frame), lead_of_trace(frame)
    if claim is None:
        return result
    text = claim_text(_needs(frame), claim)
    wall_ns = max(1, sum(gpu.wall_ns for gpu in _needs(frame).gpus))
    count = max(1, len(result.numbers.get("gpus", ())))
    lead: dict[str, Any] = {
        "cause": claim.kind.name, "label": claim.kind.title, "where": "", "rank": None, "wall_ns": claim.takes_ns // count,
        "share_pct": 100 * claim.takes_ns / wall_ns, "recoverable_ns": claim.worth_ns // count, "text": text}
    findings = [_follows(each) for each in result.findings if not (claim.is_region and _is_idle(each.rule))]
    return replace(result, answer=f"{text}.", numbers={**result.numbers, "lead": lead}, findings=findings)


def _is_idle(rule: str) -> bool:
    cause = CAUSES.get(rule.removeprefix("cause_"))
    return cause is not None and (cause.side == "idle" or rule == "cause_small_kernels")


def _follows(finding: Finding) -> Finding:
    return replace(finding, numbers={name: value for name, value in finding.numbers.items() if name != "leads"})


def needed_with_lead(frame: Frame, given: dict[str, Any] | None = None) -> Result:
    """Return the topic "needed", the finding that leads the trace marked and first."""
    result, claim = needed_result(frame, given), lead_of_trace(frame)
    if claim is None:
        return result
    marked = [replace(each, numbers={**each.numbers, "leads": 1}) if each.rule == claim.kind.name else each
              for each in result.findings]
    return replace(result, findings=sorted(marked, key=lambda each: "leads" not in each.numbers))
