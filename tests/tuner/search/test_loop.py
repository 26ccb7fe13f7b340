from collections.abc import Iterator, Sequence

import numpy as np

from tests.tuner.search.conformance import bowl, bowl_outcome
from tuner.tuning.measure.runner import Incumbent, Session
from tuner.tuning.search.finalists import best_trial, measure_finalists
from tuner.tuning.search.loop import Budget, Progress, tune
from tuner.tuning.search.strategies import STRATEGIES
from tuner.tuning.trial import Config, Measured, Outcome, Reason, Rejected, Trial, config_key


class Bowl:
    """A runner over a formula that notes what it was asked."""

    def __init__(self, stop_after: int | None = None, ahead: int = 1) -> None:
        self.asked: list[Config] = []
        self.stop_after, self.ahead = stop_after, ahead

    def open(self) -> Session:
        return Session(gpu="formula", compute_capability=None)

    def measure(self, configs: Sequence[Config], incumbent: Incumbent | None = None) -> Iterator[tuple[Config, Outcome]]:
        for config in configs:
            if self.stop_after is not None and len(self.asked) >= self.stop_after:
                return
            self.asked.append(config)
            yield config, bowl_outcome(config)

    def finalists(self, configs: Sequence[Config]) -> list[tuple[Config, Outcome]]:
        return [(config, bowl_outcome(config)) for config in configs]

    def stop(self) -> None: ...
    def close(self) -> None: ...


def test_the_default_configuration_comes_first_and_is_not_asked_again():
    default = {"a": 1, "b": 1, "mode": "x"}
    trials = list(tune(bowl(), "exhaustive", Bowl(), Budget(), 0, first=[default, {"a": 99}, default]))
    assert trials[0].config == default
    assert len({config_key(t.config) for t in trials}) == len(trials) == len(bowl())
    assert [t.number for t in trials] == list(range(len(trials)))


def test_trials_of_earlier_attempts_count_and_are_never_measured_again():
    first = list(tune(bowl(), "random", Bowl(), Budget(trials=5), 1))
    runner = Bowl()
    rest = list(tune(bowl(), "random", runner, Budget(trials=8), 1, history=first))
    assert [t.number for t in rest] == [5, 6, 7]
    assert not {config_key(t.config) for t in first} & {config_key(c) for c in runner.asked}
    whole = list(tune(bowl(), "random", Bowl(), Budget(trials=8), 1))
    assert [t.config for t in first + rest] == [t.config for t in whole]


def test_seconds_count_over_all_attempts():
    now = iter(range(1000))
    trials = list(tune(bowl(), "random", Bowl(), Budget(seconds=10), 0, elapsed_s=4, clock=lambda: float(next(now))))
    assert trials
    assert all(4 <= t.at_s <= 12 for t in trials)
    assert not list(tune(bowl(), "random", Bowl(), Budget(seconds=3), 0, elapsed_s=3))


def test_stop_is_seen_before_every_batch():
    trials = []
    for trial in tune(bowl(), "random", Bowl(), Budget(), 0, should_stop=lambda: len(trials) >= 3):
        trials.append(trial)
    assert len(trials) == 3


def test_a_runner_that_was_stopped_ends_the_search():
    assert len(list(tune(bowl(), "random", Bowl(stop_after=4, ahead=3), Budget(), 0))) == 4


def test_a_batch_never_exceeds_the_budget():
    assert len(list(tune(bowl(), "local", Bowl(ahead=4), Budget(trials=7), 0))) == 7


def test_best_ignores_rejected_trials():
    rejected = Trial(0, {"a": 1}, Rejected(Reason.WRONG))
    slow, fast = Trial(1, {"a": 2}, Measured(3, 3, 3, 1)), Trial(2, {"a": 3}, Measured(2, 2, 2, 1))
    assert best_trial([rejected, slow, fast]) is fast
    assert best_trial([rejected]) is None


def test_finish_measures_the_fastest_and_the_default_again():
    trials = list(tune(bowl(), "exhaustive", Bowl(), Budget(), 0))
    default = {"a": 1, "b": 0, "mode": "x"}
    finalists = measure_finalists(Bowl(), trials, default)
    assert finalists[0].config == {"a": 4, "b": 2, "mode": "y"}
    assert finalists[0].tie and not finalists[-1].tie
    assert finalists[-1].config == default
    assert measure_finalists(Bowl(), [Trial(0, default, Rejected(Reason.CRASH))], default) == []


def test_a_plateau_ends_the_search():
    trials = list(tune(bowl(), "exhaustive", Bowl(), Budget(plateau=4), 0))
    medians = [t.median_ms for t in trials]
    last_gain = next(i for i, ms in enumerate(medians) if ms == min(m for m in medians if m is not None))
    assert len(trials) == last_gain + 1 + 4 < len(bowl())
    whole = list(tune(bowl(), "exhaustive", Bowl(), Budget(plateau=4), 0, history=trials))
    assert whole == []                                    # what earlier attempts spent counts


def test_gains_too_small_to_count_add_up_to_one():
    progress = Progress()
    for number, ms in enumerate([1.0, 0.995, 0.991, 0.989, 0.985]):
        progress.add(Trial(number, {"a": number}, Measured(ms, ms, ms, 1)))
    assert progress.without_gain == 1 and progress.best is not None and progress.best.number == 4


def test_trials_of_other_workers_count_are_told_and_can_be_the_incumbent():
    others = [[Trial(0, {"a": 4, "b": 2, "mode": "y"}, Measured(0.5, 0.5, 0.5, 3, {"samples_ms": [0.5, 0.6, 0.4]}))]]
    seen = []

    class Noting(Bowl):
        def measure(self, configs, incumbent=None):
            seen.append(incumbent)
            yield from super().measure(configs, incumbent)

    runner = Noting()
    trials = list(tune(bowl(), "exhaustive", runner, Budget(trials=5), 0, others=lambda: others.pop() if others else []))
    assert len(trials) == 4 and {"a": 4, "b": 2, "mode": "y"} not in [t.config for t in trials]
    assert seen[0] == Incumbent(0.5, (0.5, 0.6, 0.4)).for_other_card() and seen[0].median_ms == 0.5 * 1.03      # another card


def test_a_raced_trial_is_never_the_best_nor_the_incumbent():
    progress = Progress()
    progress.add(Trial(0, {"a": 1}, Measured(2, 2, 2, 20, {"samples_ms": [2.0] * 20})))
    progress.add(Trial(1, {"a": 2}, Measured(1, 1, 1, 3, {"samples_ms": [1.0] * 3, "ended": "raced"})))
    assert progress.best is not None and progress.best.number == 0 and progress.incumbent() == Incumbent(2, (2.0,) * 20)


def test_the_best_of_another_card_has_to_be_clearly_faster_to_race_against():
    progress = Progress()
    progress.add(Trial(0, {"a": 1}, Measured(1.02, 1, 1, 1, {"samples_ms": [1.02]})))
    progress.add(Trial(1, {"a": 2}, Measured(1.00, 1, 1, 1, {"samples_ms": [1.0]})), here=False)
    assert progress.incumbent() == Incumbent(1.02, (1.02,)) and progress.best is not None and progress.best.number == 1
    progress.add(Trial(2, {"a": 3}, Measured(0.9, 1, 1, 1)), here=False)
    assert progress.incumbent() == Incumbent(0.9).for_other_card()


def test_a_made_strategy_is_taken_as_it_is():
    space = bowl()
    listed = STRATEGIES["exhaustive"].make(space, np.random.default_rng(0))
    listed.tell([Trial(0, space.config(0), Measured(1, 1, 1, 1))])
    assert len(list(tune(space, listed, Bowl(), Budget(), 0))) == len(space) - 1
