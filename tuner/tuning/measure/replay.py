"""A runner that replays a recorded landscape in place of a GPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tuner.tuning.measure.landscape import Landscape, LandscapeError
from tuner.tuning.measure.runner import Incumbent, Session
from tuner.tuning.trial import Config, Measured, Outcome, config_key

SPEED = 50.0                    # a watched replay runs so much faster than the recording …
TRIAL_S = (0.08, 0.5)           # … but a trial takes at least and at most this long


class ReplayRunner:
    """`speed` 0 answers at once; else a trial takes its recorded cost ÷ `speed`, within TRIAL_S."""

    ahead = 1

    def __init__(self, landscape: Landscape, shape_index: int, *, speed: float = 0.0) -> None:
        self.landscape = landscape
        self.recorded = landscape.at(shape_index)
        self.speed = speed
        self._stopped = threading.Event()

    def open(self) -> Session:
        one = self.recorded
        return Session(
            gpu=self.landscape.gpu, compute_capability=self.landscape.compute_capability,
            recorded=self.landscape.recorded, environment=dict(self.landscape.environment), policy=self._policy(),
            library_ms=one.library_ms, flops=one.flops, bytes=one.bytes)

    def _policy(self) -> dict[str, Any]:
        policy: dict[str, Any] = {"timing": "as recorded: median of n samples each",
                                  "finalists": "recorded values, not measured again"}
        if self.speed:
            low, high = TRIAL_S
            policy["replay_pace"] = f"recorded cost ÷ {self.speed:g}, {low:g} to {high:g} s a trial"
        return policy

    def measure(self, configs: Sequence[Config], incumbent: Incumbent | None = None) -> Iterator[tuple[Config, Outcome]]:
        """Yield recorded outcomes; they are complete, so nothing is raced."""
        for config in configs:
            outcome = self._outcome(config)
            if self.speed:
                self._stopped.wait(replay_cost_s(outcome, self.speed))
            if self._stopped.is_set():
                return
            yield config, outcome

    def finalists(self, configs: Sequence[Config]) -> list[tuple[Config, Outcome]]:
        return [(config, self._outcome(config)) for config in configs]

    def _outcome(self, config: Config) -> Outcome:
        recorded = self.recorded.outcomes.get(config_key(config))
        if recorded is None:
            raise LandscapeError(self.landscape.stem, f"{config_key(config)} was not recorded",
                                 "Ask for configurations of its space only.")
        return recorded[1]

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        self._stopped.set()


def recorded_cost_s(outcome: Outcome) -> float:
    """Return what a trial cost when recorded: compiling and timed samples, in s."""
    compile_s = outcome.facts.get("compile_s", 0.0)
    timed_s = outcome.n * outcome.median_ms / 1000 if isinstance(outcome, Measured) else 0.0
    return float(compile_s) + timed_s


def replay_cost_s(outcome: Outcome, speed: float) -> float:
    """Return how long a replayed trial takes at `speed`, in s."""
    low, high = TRIAL_S
    return min(high, max(low, recorded_cost_s(outcome) / speed))
