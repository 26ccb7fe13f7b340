"""Advice from counters: what holds each kernel back, what that is worth, and NVIDIA's own estimates beside ours.

Same shape as `profiles.analysis.trace.findings`: LIMITS holds the thresholds. `worth_ns` is an estimate over the kernel's
launches in this report: the gap to its own roof, or NVIDIA's estimated decrease of the run time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from profiles.analysis.core import gpus
from profiles.analysis.core.result import SEVERITIES, Finding
from profiles.analysis.core.sentences import pct_text, time_text
from profiles.analysis.kernel import rules, stalls
from profiles.analysis.kernel.advising import units
from profiles.analysis.kernel.advising.advice import Advice, advise, needs_no_action
from profiles.analysis.kernel.advising.causes import cause_of_nvidia
from profiles.analysis.kernel.counters import combine_launches, launch_facts
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.analysis.kernel.occupancy import limiter_words, waves_text
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import Report

LIMITS: dict[str, float] = {
    "share_pct": 5.0,            # kernels below this share of the report's time get no advice of ours
    "high_share_pct": 25.0,      # of the report's time that a finding must be worth to be called high
    "near_roof_pct": 85.0,       # at or above: nothing is left to win under this roof
    "low_occupancy_pct": 50.0,
    "occupancy_gap_pct": 25.0,   # achieved below theoretical by this many points: imbalance or short blocks
    "tail_loss_pct": 20.0,       # block slots empty in the last wave
    "stall_pct": 40.0,           # one reason's share of the cycles between two issues
    "nvidia_pct": 10.0,          # NVIDIA's estimates below this are left on the kernel page
}


@dataclass(frozen=True)
class Kernel:
    """One kernel of the report: its complete launches, their sum, and NVIDIA's rules."""

    name: str
    launches: Sequence[LaunchFacts]
    whole: LaunchFacts
    rules: Sequence[Mapping[str, Any]]
    share_pct: float

    @property
    def total_ns(self) -> float:
        return sum(launch.duration_ns or 0.0 for launch in self.launches)

    @property
    def title(self) -> str:
        return short_name(self.name)


def find(report: Report) -> list[Finding]:
    """Return all findings of a report, the worst first: by severity, then by worth."""
    kernels = _kernels(report)
    total_ns = sum(kernel.total_ns for kernel in kernels)
    findings = [finding for kernel in kernels if kernel.share_pct >= LIMITS["share_pct"]
             for rule in RULES.values() for finding in rule(kernel)]
    findings = [_rank(finding, total_ns) for finding in findings]
    return sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), -(each.worth_ns or 0)))


def _kernels(report: Report) -> list[Kernel]:
    groups: dict[str, list[Any]] = defaultdict(list)
    for launch in report.launches:
        if not launch.incomplete:
            groups[launch.kernel].append(launch)
    rows = []
    for name, launches in groups.items():
        facts = [launch_facts(launch) for launch in launches]
        whole = combine_launches(facts)
        if whole and whole.duration_ns:         # a finding is ranked by time: without any there is no rank
            listed = rules.merge_launch_rules([(fact.duration_ns, [asdict(rule) for rule in launch.rules])
                                      for fact, launch in zip(facts, launches, strict=True)])
            rows.append((name, facts, whole, listed, sum(fact.duration_ns or 0.0 for fact in facts)))
    total_ns = sum(ns for *_, ns in rows)
    return [Kernel(name, facts, whole, listed, 100.0 * ns / total_ns) for name, facts, whole, listed, ns in rows]


def _rank(finding: Finding, total_ns: float) -> Finding:
    """High where it is worth a lot of the report's time; what is worth nothing known stays as the rule said."""
    if finding.worth_ns is None or not total_ns:
        return finding
    high = 100.0 * finding.worth_ns / total_ns >= LIMITS["high_share_pct"]
    return Finding(**{**asdict(finding), "severity": "high" if high else "medium"})


def _find_bound(kernel: Kernel) -> Iterator[Finding]:
    """Which roof, how far, what would move it. The distance to it, time × (1 − achieved / its own roof), is a measure: an upper
    bound for everything that could be done, and no advice, so it is said and not ranked by (`worth_ns_estimate`)."""
    whole, point = kernel.whole, kernel.whole.point
    if not whole.bound:
        return
    numbers = {"sm_pct": whole.sol.sm_pct, "memory_pct": whole.sol.memory_pct, "dram_pct": whole.sol.dram_pct,
               "roof_pct": point.roof_pct, "intensity_flop_per_byte": point.intensity, "time_ns": kernel.total_ns}
    worth = None
    title = f"{kernel.title}: {whole.bound}-bound — {whole.bound_reason}"
    reached = _roof_pct(whole)
    if reached is not None:
        worth = kernel.total_ns * max(0.0, 1.0 - reached / 100.0)
        numbers["worth_ns_estimate"] = worth
    if reached is not None and reached >= LIMITS["near_roof_pct"]:
        yield Finding("counters.at_roof", "info", f"{title}. It reaches {pct_text(reached)} of its roof",
                    _advice(whole), numbers, None, kernel.name)
        return
    if worth is not None:
        title += f". At its roof it would take {time_text(worth)} less (estimate)"
    yield Finding("counters.bound", "info", title, _advice(whole), numbers, None, kernel.name)


def _roof_pct(whole: LaunchFacts) -> float | None:
    """Of its own roof; of the DRAM roof where a kernel only moves data."""
    if whole.point.roof_pct is not None:
        return min(100.0, whole.point.roof_pct)
    return whole.sol.dram_pct if whole.point.flop == 0 else None


def _advice(whole: LaunchFacts) -> str:
    """What moves this kernel and what does not: it depends on the ceiling it stands under."""
    if whole.bounded is None:
        return ""
    return "; ".join(whole.bounded.helps) + f". {whole.bounded.useless}."


def _find_occupancy(kernel: Kernel) -> Iterator[Finding]:
    occupancy = kernel.whole.occupancy
    theoretical, achieved = occupancy.theoretical_pct, occupancy.achieved_pct
    numbers = {
        "theoretical_pct": theoretical,
        "achieved_pct": achieved,
        **{f"blocks_by_{k}": v for k, v in occupancy.limits.items()},
    }
    hides_nothing = kernel.whole.bound == "latency" and not units.holds_results(kernel.whole)
    if units.saturated(kernel.whole) is not None:
        return                                      # more warps hide waiting, which is hidden already
    if theoretical is not None and theoretical < LIMITS["low_occupancy_pct"] and hides_nothing:
        yield Finding(
            "counters.occupancy",
            "medium",
            f"{kernel.title}: at most {pct_text(theoretical)} of an SM's warps fit, limited by {limiter_words(occupancy.limiters)}",
            "Spend less of the limiting resource per block (smaller tiles, fewer registers), or make each warp do more "
            "independent work.",
            numbers,
            None,
            kernel.name,
        )
    elif theoretical is not None and achieved is not None and theoretical - achieved >= LIMITS["occupancy_gap_pct"]:
        yield Finding(
            "counters.occupancy_gap",
            "info",
            f"{kernel.title}: {pct_text(achieved)} of the warps are active where {pct_text(theoretical)} would fit",
            "Blocks end at different times or are too short: balance the work, use fewer and longer blocks.",
            numbers,
            None,
            kernel.name,
        )


def _find_tail(kernel: Kernel) -> Iterator[Finding]:
    occupancy = kernel.whole.occupancy
    loss, waves = occupancy.tail_loss_pct, occupancy.waves
    if loss is None or waves is None or waves < 1.0 or loss < LIMITS["tail_loss_pct"]:
        return
    worth = kernel.total_ns * loss / 100.0
    yield Finding("counters.tail", "medium",
                f"{kernel.title}: {waves_text(waves)} waves, the last one {pct_text(occupancy.tail_pct or 0)} full: up to "
                f"{time_text(worth)} of tail (estimate)",
                "Choose tiles so that blocks fill whole waves, or split the last ones (stream-K, persistent blocks).",
                {"waves": waves, "tail_pct": occupancy.tail_pct, "tail_loss_pct": loss}, worth, kernel.name)


def _find_stall(kernel: Kernel) -> Iterator[Finding]:
    top = next((stall for stall in kernel.whole.stalls if stall.reason not in stalls.NO_ACTION), None)
    if top is None or top.share_pct < LIMITS["stall_pct"]:
        return
    reason = stalls.explain(top.reason)
    cycles = "" if top.cycles is None else f": {top.cycles:.1f} cycles per instruction"
    yield Finding("counters.stall", "info",
                f"{kernel.title}: warps spend {pct_text(top.share_pct)} of their time in “{reason.title}”{cycles}",
                f"{reason.meaning} {reason.fix}",
                {"share_pct": top.share_pct, "cycles_per_issue": top.cycles}, None, kernel.name)


def _find_tensor(kernel: Kernel) -> Iterator[Finding]:
    """mma.sync where warp-group instructions would be half as fast again (9.0: 2731 of 4096 operations per SM
    and clock, `…op_hmma…` and `…op_hgmma…sparsity_off.sum.peak_sustained` of H200 reports)."""
    ran, precision = kernel.whole.tensor_instructions, kernel.whole.point.precision
    if kernel.whole.compute_capability != "9.0" or kernel.whole.point.side != "compute" or precision is None:
        return
    if not any(name in ran for name in ("hmma", "imma")) or any(name.endswith("gmma") for name in ran):
        return
    yield Finding(
        "counters.mma_sync",
        "info",
        f"{kernel.title}: its {gpus.PRECISIONS[precision]} work runs as mma.sync, whose peak on this GPU is two "
        f"thirds of that of warp-group instructions (wgmma)",
        "Tiles of at least 64 rows let the compiler use wgmma.",
        {f"{name}_operations": amount for name, amount in ran.items()},
        None,
        kernel.name,
    )


def _find_nvidia(kernel: Kernel) -> Iterator[Finding]:
    """NVIDIA's estimate of what stands first in the kernel's advice, as theirs; of nothing in it, the greatest."""
    global_rules = [rule for rule in kernel.rules if rule.get("speedup_scope") == "global" and not needs_no_action(rule)
                    and (rule.get("speedup_pct") or 0) >= LIMITS["nvidia_pct"] and rule["worth_ns"]]
    global_rules = [rule for rule in global_rules if not _is_full_tail(rule, kernel.whole)]
    listed = {advice.cause: advice for advice in advise(kernel.whole, kernel.total_ns, [], kernel.rules, kernel.launches)}
    order = list(listed)
    keyed = [(cause.key if (cause := cause_of_nvidia(rule["identifier"], rule["title"])) else "", rule) for rule in global_rules]
    # what the kernel's own advice leaves out (it hides waiting at a roof, or its unit does next to nothing) is no finding either
    keyed = [(key, rule) for key, rule in keyed if key == "" or _still_counts(listed.get(key), kernel.total_ns)]
    if not keyed:
        return
    key, best = min(keyed, key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order))
    gain = listed[key].gain_ns if key in listed else None
    pct = best["speedup_pct"] if gain is None else min(best["speedup_pct"], 100.0 * gain / kernel.total_ns)
    less = "" if pct >= best["speedup_pct"] - 0.5 else f", here at most {pct_text(pct)}"
    yield Finding(
        "counters.nvidia",
        "medium",
        f"{kernel.title}: NVIDIA's rule “{best['title']}” estimates up to {pct_text(best['speedup_pct'])} less time "
        f"({time_text(best['worth_ns'])}){less}",
        rules.plain(best["text"]),
        {"speedup_pct": pct, "rule": best["identifier"], "section": best["section"]},
        min(best["worth_ns"], kernel.total_ns * pct / 100.0),
        kernel.name,
    )


def _still_counts(advice: Advice | None, total_ns: float) -> bool:
    """Whether an advice is there and worth a finding by what it wins at most."""
    if advice is None:
        return False
    gain = advice.gain_ns if advice.gain_ns is not None else advice.gain_most_ns
    return gain is None or 100.0 * gain >= LIMITS["nvidia_pct"] * total_ns


def _is_full_tail(rule: Mapping[str, Any], whole: LaunchFacts) -> bool:
    """Whether a last wave is named that leaves few block slots empty: NVIDIA counts all of its time, not what of it is empty."""
    cause, loss_pct = cause_of_nvidia(rule["identifier"], rule["title"]), whole.signals.get("tail_loss_pct")
    return cause is not None and cause.key == "tail" and loss_pct is not None and loss_pct < LIMITS["nvidia_pct"]


RULES: dict[str, Callable[[Kernel], Iterator[Finding]]] = {
    "bound": _find_bound, "occupancy": _find_occupancy, "tail": _find_tail, "stall": _find_stall, "mma_sync": _find_tensor,
    "nvidia": _find_nvidia,
}
