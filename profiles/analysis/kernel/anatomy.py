"""One launch, taken apart: every picture and table of its kernel's page, each with the sentence that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from functools import cached_property
from typing import Any

from profiles.analysis.kernel import memory_chart, memory_tables, pipes, scheduler, speed, stalls
from profiles.analysis.kernel.memory_chart import Chart
from profiles.analysis.kernel.memory_tables import Waste
from profiles.analysis.kernel.metrics import Metrics
from profiles.analysis.kernel.pipes import Mix, Pipe
from profiles.analysis.kernel.scheduler import Issue
from profiles.analysis.kernel.speed import Share, Side
from profiles.ingest.ncu.sections import Section, sections
from profiles.ingest.trace import SummaryTable

NOT_WAITING = ("selected", "not_selected")
PARTS = ("sides", "chart", "tables", "wastes", "pipes", "mix", "issue", "shares", "sections", "sentences")


class Anatomy:
    """Every picture and table of one launch; each is computed when it is first asked for, once."""

    def __init__(self, metrics: Metrics, breakdowns: Mapping[str, str]) -> None:
        self._metrics, self._breakdowns = metrics, breakdowns

    @cached_property
    def sides(self) -> list[Side]:
        return speed.breakdown(self._metrics, self._breakdowns)

    @cached_property
    def chart(self) -> Chart:
        return memory_chart.chart(self._metrics)

    @cached_property
    def tables(self) -> list[SummaryTable]:
        return memory_tables.tables(self._metrics)

    @cached_property
    def wastes(self) -> list[Waste]:
        return memory_tables.wastes(self._metrics)

    @cached_property
    def pipes(self) -> list[Pipe]:
        return pipes.pipes(self._metrics)

    @cached_property
    def mix(self) -> Mix | None:
        return pipes.mix(self._metrics)

    @cached_property
    def issue(self) -> Issue:
        return scheduler.issue(self._metrics)

    @cached_property
    def shares(self) -> list[Share]:
        return speed.distribution(self._metrics)

    @cached_property
    def sections(self) -> list[Section]:
        return sections(self._metrics)

    def sentence(self, picture: str) -> str:
        """Return what a picture says: one of `SAYS`."""
        return SAYS[picture](self)

    @cached_property
    def sentences(self) -> dict[str, str]:
        return {picture: self.sentence(picture) for picture in SAYS}

    def longest_wait(self) -> tuple[str, float] | None:
        """Return the warp state that takes most, in words and in percent."""
        waits = [stall for stall in stalls.stalls(self._metrics) if stall.reason not in NOT_WAITING]
        return (stalls.explain(waits[0].reason).title, waits[0].share_pct) if waits else None

    def as_json(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in PARTS}


def _plain(part: Any) -> Any:
    if isinstance(part, list):
        return [asdict(each) for each in part]
    return asdict(part) if is_dataclass(part) and not isinstance(part, type) else part


def anatomy(metrics: Metrics, breakdowns: Mapping[str, str]) -> Anatomy:
    """Return every picture and table of one launch.

    `breakdowns`: the report's own lists of what its throughputs break down into.
    """
    return Anatomy(metrics, breakdowns)


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


# picture -> the sentence that it stands for
SAYS: dict[str, Callable[[Anatomy], str]] = {
    "speed": lambda parts: speed.sentence(parts.sides),
    "memory": lambda parts: parts.chart.sentence,
    "issue": lambda parts: scheduler.sentence(parts.issue, parts.longest_wait()),
    "pipes": lambda parts: pipes.sentence(parts.pipes, parts.mix),
    "shares": lambda parts: _shares_sentence(parts.shares),
}
