"""The topic "causes": the account of the time as one result, and as the JSON that programs read."""

from __future__ import annotations

from typing import Any

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.result import Finding, Result
from profiles.analysis.trace.account.account import Account, account_of, rank_number
from profiles.analysis.trace.account.causes import CAUSES, Group, Row
from profiles.analysis.trace.account.words import group_text, lead_text
from profiles.analysis.trace.time.facts import no_work_text
from profiles.ingest.trace import CellRows, SummaryTable, summary_columns

VERSION = 10                        # of what the topic's document holds
HIGH_PCT, MEDIUM_PCT, LEAST_PCT = 25.0, 5.0, 1.0        # of the wall time to win: severities, and the least that is a finding
NAME_CHARS = 500


def causes_result(frame: Frame) -> Result:
    """Return the account of a trace: what the time of every GPU went to, and what leads."""
    account = account_of(frame)
    if account.lead is None:
        return Result(no_work_text(frame), account_json(account), applies=False)
    return Result(f"{lead_text(account)}.", account_json(account), [_groups_table(account), _rows_table(account)],
                  _findings(account))


def account_json(account: Account) -> dict[str, Any]:
    """Return `{"wall_ns", "lead", "causes", "groups", "gpus", "steps", "step_ns"}` (docs/causes.md says each field).

    `lead` is None without GPU work.
    """
    wall = max(1, account.wall_ns)
    lead = account.lead
    return {
        "wall_ns": account.wall_ns,
        "lead": {**_group_json(account, lead), "text": lead_text(account)} if lead else None,
        "causes": [_row_json(row, wall) for row in account.rows],
        "groups": [{**_group_json(account, group), "label": CAUSES[group.cause].label, "side": CAUSES[group.cause].side,
                    "text": group_text(account, group)} for group in account.groups],
        "gpus": [{"gpu": gpu, "label": label} for gpu, label in account.gpus.items()],
        "leads": _leading(account), "steps": account.steps, "step_ns": account.step_ns,
    }


def _leading(account: Account) -> list[str]:
    """The causes that lead: several, where a host that does not keep up does."""
    if account.host_bound:
        return [group.cause for group in account.host_bound.groups]
    return [account.lead.cause] if account.lead else []


def _group_json(account: Account, group: Group) -> dict[str, Any]:
    return {"cause": group.cause, "where": group.where[:NAME_CHARS], "rank": rank_number(group.rank), "wall_ns": group.wall_ns,
            "share_pct": 100 * group.wall_ns / max(1, account.wall_ns), "recoverable_ns": group.recoverable_ns}


def _row_json(row: Row, wall_ns: int) -> dict[str, Any]:
    return {"gpu": row.gpu, "cause": row.cause, "where": row.where[:NAME_CHARS], "rank": rank_number(row.rank),
            "wall_ns": row.wall_ns, "share_pct": 100 * row.wall_ns / wall_ns, "recoverable_ns": row.recoverable_ns,
            "evidence": row.evidence}


def _groups_table(account: Account) -> SummaryTable:
    wall = max(1, account.wall_ns)
    rows: CellRows = [
        [CAUSES[group.cause].label, group.rank or None, group.where[:NAME_CHARS] or None, group.wall_ns, 100 * group.wall_ns / wall,
         group.recoverable_ns, CAUSES[group.cause].means] for group in sorted(account.groups, key=lambda each: -each.wall_ns)]
    return SummaryTable("What the time went to",
        summary_columns("cause: text | starts on: text | most of it in: text | time: ns | of the time: pct | "
                        "to win, at most: ns | what it means: text"), rows,
        "Means over the GPUs: the times add up to the wall time. To win, at most: what the run would be shorter without the cause; "
        "unknown where the trace cannot say.")


def _rows_table(account: Account) -> SummaryTable:
    wall = max(1, account.wall_ns)
    rows: CellRows = [
        [account.gpus[row.gpu], CAUSES[row.cause].label, row.rank or None, row.where[:NAME_CHARS] or None, row.wall_ns,
         100 * row.wall_ns / wall, row.recoverable_ns, row.evidence.get("waits_in")] for row in account.rows]
    return SummaryTable("The same for each GPU",
        summary_columns("GPU: text | cause: text | starts on: text | where: text | time: ns | of the time: pct | "
                        "to win, at most: ns | waits in: text"), rows,
        "Every nanosecond of each GPU's wall time is in one row.")


def _findings(account: Account) -> list[Finding]:
    """One per cause with something to win, and the lead."""
    joined = account.host_bound.groups if account.host_bound else ()
    others = [group for group in account.groups if group is not account.lead and group not in joined]
    worth = [group for group in others if 100 * group.gain_ns >= LEAST_PCT * account.wall_ns]
    lead = [_finding(account, account.lead, lead_text(account), True)] if account.lead else []
    return lead + sorted((_finding(account, group, group_text(account, group), False) for group in worth),
                         key=lambda finding: -(finding.worth_ns or 0))


def _finding(account: Account, group: Group, title: str, leads: bool) -> Finding:
    wall_ns, bound = max(1, account.wall_ns), account.host_bound if leads else None
    won_pct = 100 * group.gain_ns / wall_ns
    severity = "high" if won_pct >= HIGH_PCT else "medium" if won_pct >= MEDIUM_PCT else "info"
    numbers: dict[str, Any] = {"time_ns": group.wall_ns, "share_pct": 100 * group.wall_ns / wall_ns, "wall_ns": account.wall_ns,
                               **({"leads": 1} if leads else {}), **({"graph_ns": bound.graph_ns} if bound else {})}
    for row in group.rows[:1]:
        numbers |= {key: value for key, value in row.evidence.items() if isinstance(value, int | float | str)}
    return Finding(f"cause_{group.cause}", severity, title, CAUSES["host_launch" if bound else group.cause].advice, numbers,
                   worth_ns=float(group.recoverable_ns) if group.recoverable_ns else None,
                   kernel=group.where if CAUSES[group.cause].side == "busy" and group.where else None)
