"""Decide when the next window opens and how long it is, so that collecting costs less than a limit. Pure: no clock, no CUPTI.

The cost of a window is measured: the time that the job's steps took longer than those beside it (`progress.time_lost`). All costs
since the start, taken at the upper end of their 95 % interval, stay below limit x time: the next window waits until that holds.
Until FIRST_WINDOWS are measured they may be ahead of that by START_DEBT_S, which is waited for afterwards. Where the job's speed is
not known a window counts as lost altogether: windows are then as rare as the limit itself, whatever they cost.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from workers.agent.progress import Residue

FIRST_WINDOWS, START_DEBT_S = 8, 0.5
UNMEASURED, UNMEASURED_DEBT_S = 3, 1.0      # windows until a cost is measured; until then each counts as lost altogether
MOST_KEPT = 200                     # windows whose costs are compared; older ones are forgotten with their time
SHORTEST_S, LONGEST_S = 0.1, 1.6    # a window
SPENT = 0.8                         # of the limit: not all that a window costs lies in the steps that are compared (fleet-loss.md)
MOST_WAIT_S = 120.0                 # a job whose windows would be rarer is not collected
LOOK_AGAIN_S = 1800.0               # at a job that is not collected
RARE_S = 60.0                       # between windows after the first `Limits.often`
MOST_EMPTY = 5                      # windows without a record, each twice as long as the one before
# 97.5 % quantiles of Student's t by degrees of freedom 1..30
_T = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101,
      2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)


@dataclass(frozen=True)
class Limits:
    """`loss_pct`: of step or token time. `coverage_pct`: of time that windows may be open at most. `often`: windows before they are
    RARE_S apart, because the process grows by 83 kB each time CUPTI is taken out (H200, CUDA 13.0, docs/fleet-loss.md)."""

    loss_pct: float = 0.5
    coverage_pct: float = 25.0
    window_s: float = 0.2
    shortest_wait_s: float = 1.0
    often: int = 120


@dataclass(frozen=True)
class Outcome:
    """What became of a window. Times in s of the controller's clock; `held_s`: from attach to detach."""

    opened_s: float
    held_s: float
    observed_s: float
    lost_s: float | None
    records: int = 0
    why: str = ""                   # of lost_s None
    cut: bool = False               # it closed before its time: its length says nothing


@dataclass(frozen=True)
class Plan:
    """Open a window of `window_s` at `at_s`."""

    at_s: float
    window_s: float


@dataclass(frozen=True)
class State:
    """What is told of the job. `measured`: the loss rests on the job's steps, else it is a bound by the time windows took."""

    state: str                      # "starting", "calibrating", "collecting", "not collected"
    why: str
    loss_pct: float | None          # None: not known, between low and high
    loss_low_pct: float
    loss_high_pct: float
    coverage_pct: float
    windows: int
    measured: bool
    window_s: float


class Controller:
    """`residue`: what is lost between windows where CUPTI stays attached. What is proved of it, the low end, is taken off what
    windows may cost: steps vary by more than the limit, and fewer windows do not bring CUPTI out. All of it is told."""

    def __init__(self, limits: Limits, now_s: float, residue: Residue | None = None) -> None:
        self.limits, self.start_s, self.residue = limits, now_s, residue or Residue()
        self.window_s = limits.window_s
        self.windows = self.empty = 0
        self.state, self.why = "starting", ""
        self._last_s = now_s
        self._again_s = math.inf
        self._kept: deque[Outcome] = deque()

    def plan(self, now_s: float) -> Plan | None:
        """Return the next window; None: none until `again_s`, the state says why."""
        if self.state == "not collected":
            if now_s < self._again_s:
                return None
            self._again_s, self.state, self.why, self.empty = now_s + LOOK_AGAIN_S, "starting", "", 0
            return Plan(now_s, self.window_s)
        allowed = self._allowed()
        if allowed <= 0:
            self._stop(now_s, f"what CUPTI costs while attached, {self.residue.pct:.2f} % (at least {self.residue.low_pct:.2f} %), "
                              f"is above the limit of {self.limits.loss_pct:g} %; it stays until the process ends")
            return None
        costs = self._costs()
        next_s = self._next_cost(costs)
        spent_s = sum(upper for _, _, upper in costs)
        debt_s = 0.0
        if self._measured()[0] is None:
            debt_s = UNMEASURED_DEBT_S if self.windows < 2 * UNMEASURED else 0.0
        elif self._is_starting():
            debt_s = START_DEBT_S
        earned_at_s = self.start_s + (spent_s + next_s - debt_s) / allowed
        apart_s = max(self.limits.shortest_wait_s, self.window_s / (self.limits.coverage_pct / 100) - self.window_s)
        if self.windows >= self.limits.often:
            apart_s = max(apart_s, RARE_S)
        at_s = max(earned_at_s, self._last_s + (apart_s if self.windows else 0.0))
        rarest_s = max(MOST_WAIT_S, SHORTEST_S / allowed * 1.25)
        if not self._is_starting() and next_s / allowed > rarest_s:
            if self.window_s > SHORTEST_S:
                self._resize(self.window_s / 2)
                return self.plan(now_s)
            self._stop(now_s, f"a window of {self.window_s * 1e3:.0f} ms costs up to {next_s * 1e3:.1f} ms: below "
                              f"{self.limits.loss_pct:g} % one could open every {next_s / allowed:.0f} s")
            return None
        return Plan(max(at_s, now_s), self.window_s)

    def tell(self, outcome: Outcome) -> None:
        """Take what became of a window into account."""
        self.windows += 1
        self._last_s = outcome.opened_s + outcome.held_s
        self._keep(outcome)
        now_s = self._last_s
        if outcome.cut and outcome.observed_s < 0.5 * self.window_s:
            return
        if not outcome.records:
            self.empty += 1
            if self.empty >= MOST_EMPTY:
                self._stop(now_s, f"no records in {self.empty} windows of up to {self.window_s:.1f} s: nothing runs")
            elif self.window_s < LONGEST_S:
                self._resize(min(LONGEST_S, self.window_s * 2))
            return
        self.empty = 0
        if outcome.observed_s < 0.5 * self.window_s and self.window_s < LONGEST_S:
            self._resize(min(LONGEST_S, self.window_s * 2))         # records began late: most of the window was for nothing
        self.state, self.why = ("calibrating" if self._is_starting() else "collecting"), ""

    def shift(self, seconds: float) -> None:
        """The job was held for so long: that time earns nothing."""
        self.start_s += seconds
        self._last_s += seconds
        self._again_s += seconds
        self._kept = deque(replace(outcome, opened_s=outcome.opened_s + seconds) for outcome in self._kept)

    def report(self, now_s: float) -> State:
        """Return what is known at a moment: the loss with its interval, and how much was seen."""
        span_s = max(now_s - self.start_s, 1e-9)
        costs = self._costs()
        mean, low, high = (100 * sum(cost[column] for cost in costs) / span_s for column in (0, 1, 2))
        measured = self._measured()[0] is not None
        seen_s = sum(outcome.observed_s for outcome in self._kept)
        return State(self.state, self.why, max(0.0, mean) + self.residue.pct if measured else None,
                     max(0.0, low) + self.residue.low_pct, max(0.0, high) + self.residue.high_pct,
                     100 * seen_s / span_s, self.windows, measured, self.window_s)

    def _allowed(self) -> float:
        return SPENT * (self.limits.loss_pct - self.residue.low_pct) / 100

    def _is_starting(self) -> bool:
        return self.windows < FIRST_WINDOWS

    def _costs(self) -> list[tuple[float, float, float]]:
        """Return (estimate, low, high) in s of each kept window. Those of unknown cost may have cost all their time."""
        mean, half = self._measured()
        if mean is None:
            return [(0.0, 0.0, outcome.held_s) for outcome in self._kept]
        return [(mean, mean - half, mean + half)] * len(self._kept)

    def _measured(self) -> tuple[float | None, float]:
        lost = np.array([outcome.lost_s for outcome in self._kept if outcome.lost_s is not None])
        if lost.size < UNMEASURED:
            return None, 0.0
        half = _t(lost.size - 1) * float(lost.std(ddof=1)) / math.sqrt(lost.size)
        return float(lost.mean()), half

    def _next_cost(self, costs: list[tuple[float, float, float]]) -> float:
        mean, half = self._measured()
        if mean is None:
            return max((outcome.held_s for outcome in self._kept), default=self.window_s)
        return max(mean + half, 0.0)

    def _resize(self, window_s: float) -> None:
        """Costs of windows of another length are taken in proportion, never as less."""
        factor = max(1.0, window_s / self.window_s)
        self.window_s = max(SHORTEST_S, window_s)
        self._kept = deque(replace(each, lost_s=None if each.lost_s is None else each.lost_s * factor) for each in self._kept)

    def _keep(self, outcome: Outcome) -> None:
        self._kept.append(outcome)
        if len(self._kept) > MOST_KEPT:
            self._kept.popleft()
            self.start_s = self._kept[0].opened_s

    def _stop(self, now_s: float, why: str) -> None:
        self.state, self.why, self._again_s = "not collected", why, now_s + LOOK_AGAIN_S


def _t(freedom: int) -> float:
    return _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.4 / freedom
