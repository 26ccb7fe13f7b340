"""Simulated jobs: steps of a known length on a clock of their own, slowed down while a window is open."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from workers.agent.controller import Controller, Outcome
from workers.agent.progress import time_lost


@dataclass
class SimulatedJob:
    """`slower`: what a step takes longer in a window; `attach_s`: what its begin stalls; `noise`: of a step's length."""

    step_s: float
    slower: float
    launches_per_s: float = 100_000.0
    noise: float = 0.0
    attach_s: float = 0.002
    marks: bool = True
    chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    now_s: float = 0.0
    lost_s: float = 0.0
    windows: list[tuple[float, float, float]] = field(default_factory=list)     # in s: opened, seen, lost before
    times_ns: list[int] = field(default_factory=list)

    def run(self, until_s: float, factor: float = 1.0) -> None:
        while self.now_s < until_s:
            usual = self.step_s * max(0.2, 1 + self.noise * self.chance.standard_normal())
            self.now_s += usual * factor
            self.lost_s += usual * (factor - 1)
            self.times_ns.append(int(self.now_s * 1e9))

    def seen_pct(self, from_s: float = 0.0) -> float:
        """Return the share of the time since a moment that windows saw, in %."""
        return 100 * sum(seen_s for opened_s, seen_s, _ in self.windows if opened_s >= from_s) / (self.now_s - from_s)

    def lost_pct(self, from_s: float = 0.0) -> float:
        """Return the share of the time since a moment that was lost, in %."""
        before_s = next((lost_s for opened_s, _, lost_s in self.windows if opened_s >= from_s), self.lost_s)
        return 100 * (self.lost_s - before_s) / (self.now_s - from_s)

    def drive(self, controller: Controller, seconds: float) -> None:
        """Let the controller open windows for a time."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            plan = controller.plan(self.now_s)
            if plan is None or plan.at_s > end_s:
                self.run(min(end_s, self.now_s + 60) if plan is None else end_s)
                continue
            self.run(plan.at_s)
            opened_s, lost_before_s = self.now_s, self.lost_s
            self.now_s += self.attach_s
            self.lost_s += self.attach_s
            self.run(opened_s + plan.window_s, 1 + self.slower)
            open_s = self.now_s - opened_s
            self.run(self.now_s + 0.06)
            held_s = self.now_s - opened_s
            self.run(self.now_s + held_s * 1.2)
            observed_s = max(0.0, open_s - 0.02)
            self.windows.append((opened_s, observed_s, lost_before_s))
            del self.times_ns[:-60_000]
            times = np.array(self.times_ns, np.int64)
            times = times[times > int((opened_s - 12) * 1e9)]
            lost = time_lost(times, int(opened_s * 1e9), int((opened_s + held_s) * 1e9)).seconds if self.marks else None
            records = int(observed_s * self.launches_per_s)
            controller.tell(Outcome(opened_s, held_s, observed_s, lost, records))
