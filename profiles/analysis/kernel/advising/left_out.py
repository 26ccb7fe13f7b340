"""NVIDIA's rules that the advice about a kernel leaves out, each with the reason: one filter for advice, findings and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profiles.analysis.kernel.advising import bounded
from profiles.analysis.kernel.advising.advice import advise, why_idle
from profiles.analysis.kernel.advising.causes import cause_of_nvidia
from profiles.analysis.kernel.advising.gains import LEAST_PCT
from profiles.analysis.kernel.facts import LaunchFacts

ADVICE = ("optimization", "warning", "error")       # severities that ask for something
UNUSUAL = ("MemoryL2Compression",)


def needs_no_action(rule: Mapping[str, Any]) -> str:
    """Return why a rule asks for nothing that people do, whatever the kernel; "" for all others."""
    if rule["identifier"] in UNUSUAL:
        return "compressible memory has to be allocated by the driver's API, which few programs do"
    if rule["identifier"].startswith("CPIStall") and rule["title"].startswith("Wait"):
        return "every instruction has such a latency, and other warps issue meanwhile"
    return ""


def most_ns(rule: Mapping[str, Any], whole: LaunchFacts | None, total_ns: float) -> float | None:
    """Return what a rule's fault costs at most, as the advice bounds it; None where the counts for it are not in the report."""
    cause = cause_of_nvidia(rule["identifier"], rule["title"])
    pct = bounded.most_pct(cause.key, whole) if cause is not None and whole is not None else None
    return None if pct is None else total_ns * pct / 100.0


def why_left_out(nvidia: Sequence[Mapping[str, Any]], whole: LaunchFacts | None, total_ns: float,
                 launches: Sequence[LaunchFacts] = ()) -> list[str]:
    """Return, for each rule of `rules.merge_launch_rules`, why it is no advice about this kernel; "" where it is, or says no more
    than what it sees."""
    listed = {each.cause for each in advise(whole, total_ns, [], nvidia, launches)}

    def why(rule: Mapping[str, Any]) -> str:
        if rule.get("severity") not in ADVICE:
            return ""
        cause = cause_of_nvidia(rule["identifier"], rule["title"])
        if cause is None or cause.key in listed:
            return needs_no_action(rule)
        return why_idle(cause, whole, launches) or f"on the unit that it loads it costs less than {LEAST_PCT:.0f} % of the time"

    return [why(rule) for rule in nvidia]
