"""The end of a search: the fastest trials measured again, interleaved, beside the default configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.bench.runner import Runner
from tuner.trial import Config, Measured, Outcome, Trial, config_key

FINALISTS = 4              # fastest trials measured again beside the default configuration
FINALIST_WITHIN = 1.10     # … and not slower than the best by more than this
TIE_WITHIN = 1.01          # medians closer than this are reported as a tie


@dataclass(frozen=True)
class Finalist:
    """One configuration measured again, interleaved with the others in one session."""

    config: Config
    outcome: Outcome
    tie: bool = False          # not told apart from the winner

    @property
    def median_ms(self) -> float | None:
        return self.outcome.median_ms if isinstance(self.outcome, Measured) else None


def raced(trial: Trial) -> bool:
    """Given up in a race: its median is of few samples, and it can never be the best."""
    return trial.outcome.facts.get("ended") == "raced"


def best(trials: Sequence[Trial]) -> Trial | None:
    """The fastest trial that was measured to the end; the first asked of equals."""
    measured = [trial for trial in trials if trial.median_ms is not None and not raced(trial)]
    return min(measured, key=lambda trial: (trial.median_ms, trial.number), default=None)


def finish(runner: Runner, trials: Sequence[Trial], default: Config | None = None) -> list[Finalist]:
    """The fastest trials and the default configuration, measured again in turn; fastest first.

    Empty when nothing was measured.
    """
    winner = best(trials)
    if winner is None or winner.median_ms is None:
        return []
    limit = winner.median_ms * FINALIST_WITHIN
    near = [t for t in trials if t.median_ms is not None and t.median_ms <= limit and not raced(t)]
    configs = [trial.config for trial in sorted(near, key=lambda t: (t.median_ms, t.number))[:FINALISTS]]
    tried = {config_key(trial.config) for trial in trials if trial.median_ms is not None}
    chosen = {config_key(config) for config in configs}
    if default is not None and config_key(default) in tried - chosen:
        configs.append(default)
    again = [Finalist(config, outcome) for config, outcome in runner.finalists(configs)]
    again.sort(key=lambda finalist: finalist.median_ms if finalist.median_ms is not None else float("inf"))
    fastest = again[0].median_ms if again else None
    if fastest is None:
        return again
    limit = fastest * TIE_WITHIN
    return [Finalist(f.config, f.outcome, f.median_ms is not None and f.median_ms <= limit) for f in again]
