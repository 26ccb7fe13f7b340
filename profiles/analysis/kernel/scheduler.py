"""Scheduler and issue statistics: how many warps a scheduler has to choose from, and how often it finds one that can go on.

Source: Nsight Compute, Kernel Profiling Guide, sections SchedulerStats and WarpStateStats. A scheduler issues at most one warp
instruction per cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiles.analysis.core.sentences import pct_text
from profiles.analysis.kernel.metrics import Metrics, number

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
