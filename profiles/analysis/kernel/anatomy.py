"""One launch, taken apart: every picture and table of its kernel's page, each with the sentence that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from typing import Any

from profiles.analysis.core.sentences import pct_text
from profiles.analysis.kernel import memory_chart, memory_tables, pipes, speed, stalls
from profiles.analysis.kernel.memory_chart import Chart
from profiles.analysis.kernel.memory_tables import Waste
from profiles.analysis.kernel.metrics import Metrics, number
from profiles.analysis.kernel.pipes import Mix, Pipe
from profiles.analysis.kernel.speed import Share, Side
from profiles.ingest.ncu.sections import Section, sections
from profiles.ingest.trace import SummaryTable

# ---- scheduler and issue statistics ----
# How many warps a scheduler has to choose from, and how often it finds one that can go on.
# Source: Nsight Compute, Kernel Profiling Guide, sections SchedulerStats and WarpStateStats. A scheduler issues at most one warp
# instruction per cycle.

# Below this share of cycles with an issued instruction the reasons of the waiting matter: NVIDIA's IssueSlotUtilization rule.
ISSUE_PCT = 80.0


@dataclass(frozen=True)
class Issue:
    """Per scheduler; warps are averages over its active cycles."""

    slots: float | None                  # warps that the hardware can hold
    theoretical: float | None            # that this launch's resources allow
    active: float | None
    eligible: float | None
    issued: float | None                 # instructions per cycle, 0-1
    no_eligible_pct: float | None        # cycles in which no warp could go on
    latency_cycles: float | None         # between two issued instructions of one warp

    @property
    def ladder(self) -> list[tuple[str, float, str]]:
        """Return (what, warps, meaning); each is a part of the one before."""
        steps = [("Slots", self.slots, "warps that a scheduler can hold"),
                 ("Theoretical", self.theoretical, "that fit with this kernel's registers, shared memory and block size"),
                 ("Active", self.active, "that were there on average"),
                 ("Eligible", self.eligible, "that could issue: not waiting for anything"),
                 ("Issued", self.issued, "instructions issued per cycle, at most 1")]
        return [(name, value, meaning) for name, value, meaning in steps if value is not None]


def issue(metrics: Metrics) -> Issue:
    schedulers = number(metrics, "device__attribute_num_schedulers_per_multiprocessor") or 4.0
    warps = number(metrics, "device__attribute_max_warps_per_multiprocessor")
    theoretical = number(metrics, "sm__maximum_warps_avg_per_active_cycle", "smsp__maximum_warps_avg_per_active_cycle")
    if theoretical is not None and "sm__maximum_warps_avg_per_active_cycle" in metrics:
        theoretical /= schedulers
    none = number(metrics, "smsp__issue_inst0.avg.pct_of_peak_sustained_active")
    busy = number(metrics, "smsp__issue_active.avg.pct_of_peak_sustained_active")
    return Issue(
        slots=number(metrics, "device__attribute_max_warps_per_scheduler") or (warps / schedulers if warps else None),
        theoretical=theoretical,
        active=number(metrics, "smsp__warps_active.avg.per_cycle_active"),
        eligible=number(metrics, "smsp__warps_eligible.avg.per_cycle_active"),
        issued=number(metrics, "smsp__issue_active.avg.per_cycle_active"),
        no_eligible_pct=none if none is not None else 100.0 - busy if busy is not None else None,
        latency_cycles=number(metrics, "smsp__average_warp_latency_per_inst_issued.ratio"),
    )


def sentence(issue: Issue, top: tuple[str, float] | None = None) -> str:
    """Say whether the waiting matters, and what is waited for.

    `top`: the longest stall's title and its share of a warp's time.
    """
    if issue.issued is None or issue.no_eligible_pct is None:
        return ""
    busy = 100.0 - issue.no_eligible_pct
    waits = f" A warp waits {pct_text(top[1])} of its time on {top[0]}." if top else ""
    if busy >= ISSUE_PCT:
        return (f"The schedulers issue in {busy:.3g} % of their cycles: they are the limit, and what single warps wait for matters "
                f"little.{waits}")
    have = ""
    if issue.active is not None and issue.eligible is not None:
        have = f" Of {issue.active:.3g} active warps {issue.eligible:.2g} can go on in a cycle."
    return f"In {issue.no_eligible_pct:.3g} % of the cycles a scheduler finds no warp that can go on.{have}{waits}"


# ---- one launch ----

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
        return issue(self._metrics)

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
    "issue": lambda parts: sentence(parts.issue, parts.longest_wait()),
    "pipes": lambda parts: pipes.sentence(parts.pipes, parts.mix),
    "shares": lambda parts: _shares_sentence(parts.shares),
}
