"""Every doubt about a trace, in words, into its integrity report."""

from __future__ import annotations

from dataclasses import replace

from profiles.analysis.core.digest import digest_of
from profiles.analysis.trace.plausibility.kinds import KINDS, LEAST_PCT
from profiles.ingest.trace import Doubt, Trace


def examine(trace: Trace) -> None:
    """Complete `trace.integrity.plausibility`: what readers noted, what the trace itself shows, the weightiest kind first."""
    digest = digest_of(trace)
    doubts = [_complete(doubt, trace) for doubt in trace.integrity.plausibility if doubt.kind in KINDS]
    doubts += [doubt for kind in KINDS.values() if kind.find and (doubt := kind.find(digest, trace))]
    lost = next((doubt for doubt in doubts if doubt.kind == "launch_without_work"), None)
    for place, doubt in enumerate(doubts):
        if doubt.kind == "no_kernel_table" and lost:
            doubts[place] = replace(doubt, count=lost.count, of=lost.of, first_ns=lost.first_ns, last_ns=lost.last_ns)
    order = list(KINDS)
    trace.integrity.plausibility = [_said(doubt) for doubt in sorted(doubts, key=lambda each: order.index(each.kind))]


def _complete(doubt: Doubt, trace: Trace) -> Doubt:
    """A reader knows no times of what it counted as a whole: then they are the trace's own."""
    if doubt.kind == "cap":
        return replace(doubt, first_ns=0, last_ns=_last_start(trace))
    return doubt


def _last_start(trace: Trace) -> int:
    last = 0
    for window in trace.windows():
        if len(window):
            last = max(last, int(window.columns["start_ns"].max()))
    return last


def _said(doubt: Doubt) -> Doubt:
    kind = KINDS[doubt.kind]
    return replace(doubt, label=kind.label, sentence=kind.tell(doubt), touches=kind.weigh(doubt) >= LEAST_PCT)
