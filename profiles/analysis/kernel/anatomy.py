"""One launch, taken apart: every picture and table of its kernel's page, each with the sentence that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from profiles.analysis.core.sections import Section, sections
from profiles.analysis.kernel import memory_chart, memory_tables, pipes, scheduler, speed, stalls
from profiles.analysis.kernel.memory_chart import Chart
from profiles.analysis.kernel.memory_tables import Waste
from profiles.analysis.kernel.metrics import Metrics
from profiles.analysis.kernel.pipes import Mix, Pipe
from profiles.analysis.kernel.scheduler import Issue
from profiles.analysis.kernel.speed import Share, Side
from profiles.trace import SummaryTable

NOT_WAITING = ("selected", "not_selected")


@dataclass(frozen=True)
class Anatomy:
    sides: list[Side]
    chart: Chart
    tables: list[SummaryTable]
    wastes: list[Waste]
    pipes: list[Pipe]
    mix: Mix | None
    issue: Issue
    shares: list[Share]
    sections: list[Section]
    sentences: dict[str, str]            # "speed" | "memory" | "issue" | "pipes" | "shares" -> what its picture says

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def anatomy(metrics: Metrics, breakdowns: Mapping[str, str]) -> Anatomy:
    """Return every picture and table of one launch.

    `breakdowns`: the report's own lists of what its throughputs break down into.
    """
    sides, chart, issue = speed.breakdown(metrics, breakdowns), memory_chart.chart(metrics), scheduler.issue(metrics)
    busy, mix, shares = pipes.pipes(metrics), pipes.mix(metrics), speed.distribution(metrics)
    waits = [stall for stall in stalls.stalls(metrics) if stall.reason not in NOT_WAITING]
    top = (stalls.explain(waits[0].reason).title, waits[0].share_pct) if waits else None
    return Anatomy(
        sides=sides, chart=chart, tables=memory_tables.tables(metrics), wastes=memory_tables.wastes(metrics), pipes=busy, mix=mix,
        issue=issue, shares=shares, sections=sections(metrics),
        sentences={"speed": speed.sentence(sides), "memory": chart.sentence, "issue": scheduler.sentence(issue, top),
                   "pipes": pipes.sentence(busy, mix), "shares": _shares_sentence(shares)},
    )


UNEVEN_PCT = 20.0                        # between the idlest and the busiest SM, of the average


def _shares_sentence(shares: list[Share]) -> str:
    """Do all SMs have the same to do?"""
    sm = next((share for share in shares if share.unit == "SM"), None)
    if sm is None or sm.spread_pct is None:
        return ""
    busy = f", on average {100.0 * sm.average / sm.elapsed:.3g} % of the kernel's time" if sm.elapsed else ""
    uneven = "unevenly: some SMs wait for the others" if sm.spread_pct >= UNEVEN_PCT else "evenly"
    return (f"The work lies {uneven}. SMs are active for {sm.least:,.0f} to {sm.most:,.0f} cycles, a spread of "
            f"{sm.spread_pct:.3g} %{busy}.")
