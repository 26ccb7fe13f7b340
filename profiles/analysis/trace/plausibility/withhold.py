"""Which findings and answers rest on what is in doubt: they are not given, and the doubt is said in their place.

`doubts` are rows of a stored integrity report (`Integrity.as_json()["plausibility"]`); a report that was stored before there were
any has none, and withholds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from profiles.analysis.core.result import Finding, Result
from profiles.analysis.trace.account.causes import CAUSES
from profiles.analysis.trace.plausibility.kinds import ALL, CALLS, COUNTS, GPU_TIME, IDLE, KINDS
from profiles.ingest.trace import SummaryTable

Doubts = Sequence[Mapping[str, Any]]

# Rule of a finding -> what it rests on. A rule that is not listed rests on all of it, one of the account on `_cause_rests`.
RESTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("out_of_memory", "memory_nearly_full", "memory_unused", "memory_fragmented", "activations_make_the_peak",
                     "memory_grows", "warm_up", "slow_step"), frozenset()),
    **dict.fromkeys(("low_occupancy", "pageable_copies", "casts_and_copies", "convolution_algorithm", "unsteady_kernels",
                     "sampled_metrics"), frozenset({GPU_TIME})),
    **dict.fromkeys(("top_kernel", "fusion", "small_collectives"), frozenset({GPU_TIME, COUNTS})),
    **dict.fromkeys(("copies_exposed", "exposed_communication", "exposed_transfers"), frozenset({GPU_TIME, IDLE})),
    **dict.fromkeys(("gpu_idle", "host_on_path", "kernel_on_path", "waits_on_path"), frozenset({GPU_TIME, IDLE, CALLS})),
    **dict.fromkeys(("serial_kernels", "straggler"), frozenset({GPU_TIME, CALLS})),
    **dict.fromkeys(("host_syncs", "data_loading", "allocating_calls"), frozenset({IDLE, CALLS})),
    "slow_calls": frozenset({IDLE}),
    "queue_full": frozenset({CALLS, COUNTS}),
    "graphs": frozenset({IDLE, CALLS, COUNTS}),
}
_RESTS_BY_PREFIX = {"tensor_cores_": frozenset({GPU_TIME})}
# Topic -> what its answer rests on.
TOPIC_RESTS: dict[str, frozenset[str]] = {
    "causes": frozenset({GPU_TIME, IDLE}), "time": frozenset({GPU_TIME, IDLE, CALLS}), "operators": frozenset({GPU_TIME}),
    "layer": frozenset({GPU_TIME}), "communication": frozenset({GPU_TIME}), "memory": frozenset(),
    "launches": ALL, "sequences": frozenset({GPU_TIME, COUNTS}), "critical-path": frozenset({GPU_TIME, IDLE, CALLS}),
    "gpu-metrics": frozenset({GPU_TIME}),
}
GAIN = "to win, at most"                # column of the account's tables
_OF_RECORDS = "What stands below is of the records that are there."


def touching(doubts: Doubts) -> list[Mapping[str, Any]]:
    """Return the doubts that touch the result, the weightiest kind first; of several that say the same thing the first."""
    candidates = [doubt for doubt in doubts if doubt.get("touches") and doubt.get("sentence")]
    lost = any(doubt.get("kind") == "no_kernel_table" for doubt in candidates)
    return [doubt for doubt in candidates if not (lost and doubt.get("kind") == "launch_without_work")]


def doubt_text(doubts: Doubts) -> str:
    """Return what is said before everything else, "" where nothing that touches the result is in doubt."""
    return "".join(f"{doubt['sentence']}. " for doubt in touching(doubts)).strip()


def affected(doubts: Doubts) -> frozenset[str]:
    """Return what must not be built on."""
    nothing: frozenset[str] = frozenset()
    return nothing.union(*(KINDS[doubt["kind"]].affects for doubt in touching(doubts) if doubt.get("kind") in KINDS))


def doubtful_kernels(doubts: Doubts) -> frozenset[str]:
    """Return the kernels whose own time is in doubt."""
    return frozenset(name for doubt in touching(doubts) for name in doubt.get("names") or ())


def rests_of(rule: str) -> frozenset[str]:
    """Return what findings of a rule rest on."""
    if rule.startswith("cause_"):
        return _cause_rests(rule.removeprefix("cause_"))
    if rule in RESTS:
        return RESTS[rule]
    return next((rests for prefix, rests in _RESTS_BY_PREFIX.items() if rule.startswith(prefix)), ALL)


def _cause_rests(cause: str) -> frozenset[str]:
    """A share of the time is one of busy and idle time; why a GPU was idle, and which work waited, rests on the calls too."""
    timed = frozenset({GPU_TIME, IDLE})
    entry = CAUSES.get(cause)
    if entry is None:
        return ALL
    if cause in ("small_kernels", "serial_streams"):
        return timed | {CALLS, COUNTS}
    return timed | {CALLS} if entry.side == "idle" else timed


def withhold(findings: Sequence[Finding], doubts: Doubts) -> list[Finding]:
    """Return the findings that rest on nothing that is in doubt."""
    doubtful = affected(doubts)
    return [finding for finding in findings if not rests_of(finding.rule) & doubtful]


def withhold_result(topic: str, result: Result, doubts: Doubts) -> Result:
    """Return what an analysis found without what rests on what is in doubt; its answer says the doubt first."""
    doubtful = affected(doubts)
    text = doubt_text(doubts)
    if not text:
        return result
    findings = withhold(result.findings, doubts)
    rests, answer = TOPIC_RESTS.get(topic, ALL), result.answer
    numbers = _without_causes(result.numbers, doubtful) if topic == "causes" else result.numbers
    lost_lead = topic == "causes" and result.numbers.get("lead") is not None and numbers.get("lead") is None
    if rests & doubtful or lost_lead:
        answer = f"{text} {_OF_RECORDS if result.applies else answer}"
    tables = [_without_gains(table, doubtful) for table in result.tables] if topic == "causes" else result.tables
    return replace(result, answer=answer, numbers=numbers, findings=findings, tables=tables)


def _without_causes(numbers: dict[str, Any], doubtful: frozenset[str]) -> dict[str, Any]:
    """The account without gains, and without a lead, that rest on what is in doubt."""
    lead = numbers.get("lead")
    return {**numbers, "lead": None if lead and _cause_rests(lead["cause"]) & doubtful else lead,
            **{name: [{**row, "recoverable_ns": None} if _cause_rests(row["cause"]) & doubtful else row for row in numbers[name]]
               for name in ("causes", "groups") if name in numbers}}


def _without_gains(table: SummaryTable, doubtful: frozenset[str]) -> SummaryTable:
    """A table of the account without gains that rest on what is in doubt."""
    places = {column.name: index for index, column in enumerate(table.columns)}
    if GAIN not in places or "cause" not in places:
        return table
    cause_by_label = {cause.label: name for name, cause in CAUSES.items()}
    rows = [[None if index == places[GAIN] and _cause_rests(cause_by_label.get(str(row[places["cause"]]), "")) & doubtful else cell
             for index, cell in enumerate(row)] for row in table.rows]
    return replace(table, rows=rows)
