"""Measure the fastest trials again at the end of a search, with the default and the library.

The winner is the one of the statistically equal set that uses the fewest registers, then fits the most GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.tuning.measure.runner import Runner
from tuner.tuning.measure.statistics import Entry, finalist_order, standings
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Measured, Outcome, Reason, Rejected, Trial, config_key

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
        """Return the median of the outcome in ms; None where it was rejected."""
        return self.outcome.median_ms if isinstance(self.outcome, Measured) else None

    def as_json(self) -> dict[str, Any]:
        """Return what of it a row keeps: times, standing and library."""
        outcome = self.outcome
        if isinstance(outcome, Rejected):
            return {"config": dict(self.config), "tie": False, "reason": str(outcome.reason), "message": outcome.message[:500]}
        names = ("registers", "spills", "smem_bytes", "round_ms", "clocks", "throttled", "library_ms", "library_round_ms")
        return {"config": dict(self.config), "tie": self.tie, "why": self.why, "slower_by": self.slower_by, "p": self.p,
                "library": self.library, "median_ms": outcome.median_ms, "min_ms": outcome.min_ms, "p90_ms": outcome.p90_ms,
                "n": outcome.n, **{name: outcome.facts[name] for name in names if name in outcome.facts}}


def is_raced(trial: Trial) -> bool:
    """Return whether the trial lost a race: its median is of few samples and cannot be the best."""
    return trial.outcome.facts.get("ended") == "raced"


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """Return the fastest trial measured to its end; of equals the one asked first."""
    measured = [trial for trial in trials if trial.median_ms is not None and not is_raced(trial)]
    return min(measured, key=lambda trial: (trial.median_ms, trial.number), default=None)


def measure_finalists(runner: Runner, trials: Sequence[Trial], default: Config | None = None, space: Space | None = None,
                      judge: Callable[[Outcome], Outcome] = lambda outcome: outcome,
                      in_force: Config | None = None) -> list[Finalist]:
    """Measure the fastest trials and the default again, in turn; return winner, equals, then by time.

    Empty when nothing was measured. What was rejected comes last. A default that the searched `space` lacks is measured all the
    same, as what the winner is compared with: it stands behind what the space has, and never wins.
    `judge` makes of an outcome what is believed of it. `in_force`: what the cache serves for this problem now; it is measured
    beside them, and wins only where this search tried it.
    """
    outside = default is not None and space is not None and default not in space
    configs = choose_finalists(trials, default, always=outside)
    tried = {config_key(trial.config) for trial in trials}
    if configs and in_force is not None and config_key(in_force) not in map(config_key, configs):
        configs.append(in_force)
    again = [(config, judge(outcome)) for config, outcome in (_measure_again(runner, configs) if configs else [])]
    static = {config_key(trial.config): trial.outcome.facts for trial in trials}
    fine = [(config, outcome) for config, outcome in again if isinstance(outcome, Measured)]
    entries = [Entry(outcome.median_ms, outcome.facts.get("round_ms") or (),
                     {**static.get(config_key(config), {}), **outcome.facts}) for config, outcome in fine]
    ranked = [(finalist_order(stands, entry), Finalist(config, outcome, stands.equal, stands.slower_by, stands.p, stands.why,
                                                       _library_gain(outcome)))
              for entry, stands, (config, outcome) in zip(entries, standings(entries), fine, strict=True)]
    ranked.sort(key=lambda one: one[0])
    measured = [finalist for _, finalist in ranked]
    rejected = [Finalist(config, outcome) for config, outcome in again if isinstance(outcome, Rejected)]
    apart = {config_key(default)} if outside and default is not None else set()
    apart |= {config_key(in_force)} - tried if in_force is not None else set()
    beside = [finalist for finalist in measured if config_key(finalist.config) in apart]
    finalists = [finalist for finalist in measured if finalist not in beside]
    return [*finalists, *beside, *rejected] if finalists else [*rejected, *beside]


def choose_finalists(trials: Sequence[Trial], default: Config | None, *, always: bool = False) -> list[Config]:
    """Return the configurations to measure again: the fastest trials and the default, `always` or where it could be measured."""
    winner = best_trial(trials)
    if winner is None or winner.median_ms is None:
        return []
    limit = winner.median_ms * FINALIST_WITHIN
    near = [t for t in trials if t.median_ms is not None and t.median_ms <= limit and not is_raced(t)]
    configs = [trial.config for trial in sorted(near, key=lambda t: (t.median_ms, t.number))[:FINALISTS]]
    tried = {config_key(trial.config) for trial in trials if trial.median_ms is not None}
    chosen = {config_key(config) for config in configs}
    if default is not None and config_key(default) not in chosen and (always or config_key(default) in tried):
        configs.append(default)
    return configs


def _measure_again(runner: Runner, configs: Sequence[Config]) -> list[tuple[Config, Outcome]]:
    """Measure in turn. Where the session died, each alone shows which one killed it."""
    again = runner.finalists(configs)
    if len(configs) < 2 or not again or not all(_is_deadly(outcome) for _, outcome in again):
        return again
    alone = [pair for config in configs for pair in runner.finalists([config])]
    alive = [config for config, outcome in alone if isinstance(outcome, Measured)]
    dead = [(config, outcome) for config, outcome in alone if not isinstance(outcome, Measured)]
    return [*(runner.finalists(alive) if len(alive) > 1 else [pair for pair in alone if isinstance(pair[1], Measured)]), *dead]


def _is_deadly(outcome: Outcome) -> bool:
    return isinstance(outcome, Rejected) and outcome.reason in DEADLY


def _library_gain(outcome: Measured) -> float | None:
    """Return library time ÷ configuration time; None where the library was not measured."""
    library_ms = outcome.facts.get("library_ms")
    return library_ms / outcome.median_ms if isinstance(library_ms, int | float) and outcome.median_ms else None
