"""The end of a search: the fastest trials measured again in turn, with the default configuration and the vendor library.

The winner is the one of the statistically equal set that uses the fewest registers, then fits the most GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.bench.equal import Entry, place, standings
from tuner.bench.runner import Runner
from tuner.trial import Config, Measured, Outcome, Reason, Rejected, Trial, config_key

FINALISTS = 6              # fastest trials measured again beside the default configuration
FINALIST_WITHIN = 1.10     # … and not slower than the best by more than this
DEADLY = (Reason.CRASH, Reason.TIMEOUT)


@dataclass(frozen=True)
class Finalist:
    """One configuration measured again, interleaved with the others in one session."""

    config: Config
    outcome: Outcome
    tie: bool = False                   # not told apart from the fastest
    slower_by: float | None = None      # than the fastest, over paired rounds
    p: float | None = None              # of the test that says so, None where there was none
    why: str = ""                       # the test's result in words
    library: float | None = None        # the vendor library's median in the same rounds, over this one's: 1.2 = 20 % faster

    @property
    def median_ms(self) -> float | None:
        return self.outcome.median_ms if isinstance(self.outcome, Measured) else None

    def as_json(self) -> dict[str, Any]:
        """What of it is worth a row: times, standing, library."""
        outcome = self.outcome
        if isinstance(outcome, Rejected):
            return {"config": dict(self.config), "tie": False, "reason": str(outcome.reason), "message": outcome.message[:500]}
        names = ("registers", "spills", "smem_bytes", "round_ms", "clocks", "throttled", "library_ms")
        return {"config": dict(self.config), "tie": self.tie, "why": self.why, "slower_by": self.slower_by, "p": self.p,
                "library": self.library, "median_ms": outcome.median_ms, "min_ms": outcome.min_ms, "p90_ms": outcome.p90_ms,
                "n": outcome.n, **{name: outcome.facts[name] for name in names if name in outcome.facts}}


def raced(trial: Trial) -> bool:
    """Given up in a race: its median is of few samples, and it can never be the best."""
    return trial.outcome.facts.get("ended") == "raced"


def best(trials: Sequence[Trial]) -> Trial | None:
    """The fastest trial that was measured to the end; the first asked of equals."""
    measured = [trial for trial in trials if trial.median_ms is not None and not raced(trial)]
    return min(measured, key=lambda trial: (trial.median_ms, trial.number), default=None)


def finish(runner: Runner, trials: Sequence[Trial], default: Config | None = None) -> list[Finalist]:
    """The fastest trials and the default configuration, measured again in turn: the winner, its equals, then by time.

    Empty when nothing was measured. What was rejected comes last.
    """
    configs = chosen(trials, default)
    again = _measured_again(runner, configs) if configs else []
    static = {config_key(trial.config): trial.outcome.facts for trial in trials}
    fine = [(config, outcome) for config, outcome in again if isinstance(outcome, Measured)]
    entries = [Entry(outcome.median_ms, outcome.facts.get("round_ms") or (),
                     {**static.get(config_key(config), {}), **outcome.facts}) for config, outcome in fine]
    ranked = [(place(stands, entry), Finalist(config, outcome, stands.equal, stands.slower_by, stands.p, stands.why,
                                              _library(outcome)))
              for entry, stands, (config, outcome) in zip(entries, standings(entries), fine, strict=True)]
    ranked.sort(key=lambda one: one[0])
    return [finalist for _, finalist in ranked] + [
        Finalist(config, outcome) for config, outcome in again if isinstance(outcome, Rejected)]


def chosen(trials: Sequence[Trial], default: Config | None) -> list[Config]:
    """Who is measured again."""
    winner = best(trials)
    if winner is None or winner.median_ms is None:
        return []
    limit = winner.median_ms * FINALIST_WITHIN
    near = [t for t in trials if t.median_ms is not None and t.median_ms <= limit and not raced(t)]
    configs = [trial.config for trial in sorted(near, key=lambda t: (t.median_ms, t.number))[:FINALISTS]]
    tried = {config_key(trial.config) for trial in trials if trial.median_ms is not None}
    if default is not None and config_key(default) in tried - {config_key(config) for config in configs}:
        configs.append(default)
    return configs


def _measured_again(runner: Runner, configs: Sequence[Config]) -> list[tuple[Config, Outcome]]:
    """In turn. Where the session died, each alone shows who killed it, and the others go in turn without those."""
    again = runner.finalists(configs)
    if len(configs) < 2 or not again or not all(_deadly(outcome) for _, outcome in again):
        return again
    alone = [one for config in configs for one in runner.finalists([config])]
    alive = [config for config, outcome in alone if isinstance(outcome, Measured)]
    dead = [(config, outcome) for config, outcome in alone if not isinstance(outcome, Measured)]
    return [*(runner.finalists(alive) if len(alive) > 1 else [one for one in alone if isinstance(one[1], Measured)]), *dead]


def _deadly(outcome: Outcome) -> bool:
    return isinstance(outcome, Rejected) and outcome.reason in DEADLY


def _library(outcome: Measured) -> float | None:
    library_ms = outcome.facts.get("library_ms")
    return library_ms / outcome.median_ms if isinstance(library_ms, int | float) and outcome.median_ms else None
