"""What leads a trace: a cause of the account, or work that need not be, whichever has the most to win; the topics of both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiles.analysis.core.frame import Frame, once_a_frame
from profiles.analysis.core.result import Finding, Result
from profiles.analysis.core.sentences import time_text
from profiles.analysis.trace.account.account import HOST_BOUND, Account, account_of
from profiles.analysis.trace.account.causes import CAUSES
from profiles.analysis.trace.account.result import causes_result
from profiles.analysis.trace.needed.needs import Claim, Needs, needs_of
from profiles.analysis.trace.needed.slow import slow_kernels
from profiles.analysis.trace.needed.topic import GENERIC, claim_text, needed_pct, needed_result, per_step, shown_claims
from profiles.ingest.naming.names import short_name

LEAST_PCT = 5.0                     # of the time: a kind with less to win does not lead
LEAST_GENERIC_PCT = 10.0
HOST_SHARE = 0.5                    # of what they win in the recording: with shapes recorded a host takes 1.5 to 1.8 times as long
KERNELS = ("compute", "memory_traffic")     # causes that kernels are themselves
LEAST_LOST_PCT = 1.0                # of the time, that one kernel loses below its ceiling to be named
EXPLAINED = 0.5                     # of what the account's lead wins: pieces that win as much are why the host is late


def leading_claim(needs: Needs, account: Account) -> Claim | None:
    """Return the kind that leads a trace, None where a cause of the account does.

    Compared is the share of the time: GPU time that goes, of pieces in a loop the host's too, with what the cause would win. Of the
    generic kind only a cause without any gain is behind.
    """
    wall_ns = sum(gpu.wall_ns for gpu in needs.gpus)
    if not wall_ns or account.lead is None:
        return None
    claims = [claim for claim in shown_claims(needs) if claim.certain or claim.gain_ns[0]]
    named = [claim for claim in claims if claim.kind.name != GENERIC and 100 * claim.worth_ns >= LEAST_PCT * wall_ns]
    cause = account.lead.gain_ns / max(1, account.wall_ns)
    weighed = cause * (HOST_SHARE if account.lead.cause in HOST_BOUND else 1.0)
    best = max(named, key=lambda claim: claim.worth_ns, default=None)
    if best is not None:
        explains = best.is_region and CAUSES[account.lead.cause].side == "idle" and best.gain_ns[1] / wall_ns >= EXPLAINED * cause
        return best if explains or best.worth_ns / wall_ns >= weighed else None
    generic = next((claim for claim in claims if claim.kind.name == GENERIC), None)
    if generic is None or 100 * generic.gone_ns < LEAST_GENERIC_PCT * wall_ns:
        return None
    return generic if generic.gone_ns / wall_ns >= cause and CAUSES[account.lead.cause].side == "busy" else None


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
    limit = limit_of(account_of(frame), _needs(frame)) if claim is None else None
    if limit is not None:               # its finding is one of the topic "needed", by the ceilings that are measured there
        lead = {**result.numbers["lead"], "text": limit.title}
        return replace(result, answer=f"{limit.title}.", numbers={**result.numbers, "lead": lead},
                       findings=[finding for finding in result.findings if "leads" not in finding.numbers])
    if claim is None:
        return result
    text = claim_text(_needs(frame), claim)
    wall_ns = max(1, sum(gpu.wall_ns for gpu in _needs(frame).gpus))
    count = max(1, len(result.numbers.get("gpus", ())))
    lead = {
        "cause": claim.kind.name, "label": claim.kind.title, "where": "", "rank": None, "wall_ns": claim.takes_ns // count,
        "share_pct": 100 * claim.takes_ns / wall_ns, "recoverable_ns": claim.worth_ns // count, "text": text}
    findings = [_follows(finding) for finding in result.findings if not (claim.is_region and _is_idle(finding.rule))]
    return replace(result, answer=f"{text}.", numbers={**result.numbers, "lead": lead}, findings=findings)


def limit_of(account: Account, needs: Needs) -> Finding | None:
    """Return the kernel that loses most as what leads, where kernels themselves do and the trace's least times are known."""
    lead = account.lead
    wall_ns = sum(gpu.wall_ns for gpu in needs.gpus)
    if lead is None or lead.cause not in KERNELS or lead.recoverable_ns or needed_pct(needs.gpus) is None:
        return None
    slow = next(iter(slow_kernels(needs)), None)
    if slow is None or 100 * slow.lost_ns < LEAST_LOST_PCT * wall_ns:
        return None
    whole = "a step's" if any(gpu.steps for gpu in needs.gpus) else "the run's"
    title = (f"The kernels themselves are the limit: most is lost below its ceiling in `{short_name(slow.kernel)}`"
             f"{f' ({slow.sizes})' if slow.sizes else ''}, {time_text(per_step(needs, slow.lost_ns))} of {whole} "
             f"{time_text(per_step(needs, wall_ns))}")
    advice = ["tune it for these sizes"] if slow.tune else []
    advice += [f"try {slow.choice}"] if slow.choice else []
    remedy = ", or ".join(advice) or "look at its counters"
    return Finding("kernels_are_the_limit", "info", title, f"{remedy[:1].upper()}{remedy[1:]}.",
                   {"takes_ns": slow.takes_ns, "least_ns": slow.least_ns, "lost_ns": slow.lost_ns, "launches": slow.launches,
                    "leads": 1}, kernel=slow.kernel)


def _is_idle(rule: str) -> bool:
    cause = CAUSES.get(rule.removeprefix("cause_"))
    return cause is not None and (cause.side == "idle" or rule == "cause_small_kernels")


def _follows(finding: Finding) -> Finding:
    return replace(finding, numbers={name: value for name, value in finding.numbers.items() if name != "leads"})


def needed_with_lead(frame: Frame, given: dict[str, Any] | None = None) -> Result:
    """Return the topic "needed", the finding that leads the trace marked and first."""
    needs = needs_of(frame, given) if (given or {}).get("ceilings") else _needs(frame)
    result, claim = needed_result(frame, needs), lead_of_trace(frame)
    if claim is None:
        limit = limit_of(account_of(frame), needs)
        return replace(result, findings=[limit, *result.findings]) if limit is not None else result
    marked = [replace(finding, numbers={**finding.numbers, "leads": 1}) if finding.rule == claim.kind.name else finding
              for finding in result.findings]
    return replace(result, findings=sorted(marked, key=lambda each: "leads" not in each.numbers))
