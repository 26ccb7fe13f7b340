"""Test classes that every implementation of a contract inherits: a new one supplies a fixture and passes them all."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.tuning.measure.runner import Runner
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.search.strategies import STRATEGIES, Strategy
from tuner.tuning.space import Constraint, Param, Space
from tuner.tuning.trial import Config, Measured, Reason, Rejected, Trial, config_key


def bowl() -> Space:
    """A small space with a constraint: 4 × 4 × 2 less what is pruned."""
    return Space.enumerate(
        (Param("a", (1, 2, 4, 8)), Param("b", (0, 1, 2, 3)), Param("mode", ("x", "y"))),
        (Constraint("a times b", lambda c: int(c["a"]) * int(c["b"]) <= 16),))


def bowl_outcome(config: Config) -> Measured | Rejected:
    """Fastest at a=4, b=2, mode=y; a=8 with mode=x does not compile."""
    if config["a"] == 8 and config["mode"] == "x":
        return Rejected(Reason.COMPILE, "no")
    ms = 1 + abs(int(config["a"]) - 4) + abs(int(config["b"]) - 2) + (config["mode"] == "x")
    return Measured(ms, ms, ms, 20)


class StrategyTests:
    """`strategy` names an entry of STRATEGIES."""

    @pytest.fixture
    def strategy(self) -> str:
        raise NotImplementedError

    def make(self, strategy: str, space: Space, seed: int = 0) -> Strategy:
        return STRATEGIES[strategy].make(space, np.random.default_rng(seed))

    def trials(self, strategy: Strategy, limit: int = 10_000, batch: int = 1, start: int = 0) -> list[Trial]:
        """Ask and tell until nothing is left or `limit` is reached."""
        done: list[Trial] = []
        while len(done) < limit and (configs := strategy.ask(min(batch, limit - len(done)))):
            asked = [Trial(start + len(done) + i, config, bowl_outcome(config)) for i, config in enumerate(configs)]
            strategy.tell(asked)
            done += asked
        return done

    @pytest.mark.parametrize("batch", [1, 3, 1000])
    def test_asks_each_valid_configuration_once(self, strategy: str, batch: int) -> None:
        space = bowl()
        keys = [config_key(trial.config) for trial in self.trials(self.make(strategy, space), batch=batch)]
        assert sorted(keys) == sorted(config_key(config) for config in space.configs())

    def test_gives_at_most_what_was_asked_for(self, strategy: str) -> None:
        search = self.make(strategy, bowl())
        assert len(search.ask(4)) == 4
        assert search.ask(0) == []

    def test_same_seed_same_trials(self, strategy: str) -> None:
        runs = [[config_key(t.config) for t in self.trials(self.make(strategy, bowl(), seed=7), 12)] for _ in range(2)]
        assert runs[0] == runs[1]

    def test_never_asks_what_it_was_told(self, strategy: str) -> None:
        space = bowl()
        told = [Trial(i, space.config(i), bowl_outcome(space.config(i))) for i in range(0, len(space), 2)]
        search = self.make(strategy, space)
        search.tell(told)
        asked = {config_key(trial.config) for trial in self.trials(search)}
        assert asked == {config_key(space.config(i)) for i in range(1, len(space), 2)}

    def test_a_resumed_search_goes_on_as_the_interrupted_one_would_have(self, strategy: str) -> None:
        space = bowl()
        whole = self.trials(self.make(strategy, space, seed=3), 20)
        again = self.make(strategy, space, seed=3)
        again.tell(whole[:9])
        rest = self.trials(again, 11, start=9)
        assert [t.config for t in whole[:9] + rest] == [t.config for t in whole]

    def test_survives_all_rejected_and_foreign_configurations(self, strategy: str) -> None:
        space = bowl()
        search = self.make(strategy, space)
        search.tell([Trial(0, {"other": 1}, Measured(1, 1, 1, 1))])
        for number in range(len(space)):
            (config,) = search.ask(1)
            search.tell([Trial(number, config, Rejected(Reason.CRASH))])
        assert search.ask(5) == []

    def test_empty_space(self, strategy: str) -> None:
        empty = Space.enumerate((Param("a", (1,)),), (Constraint("never", lambda c: False),))
        assert self.make(strategy, empty).ask(3) == []

    def test_does_not_touch_numpys_global_generator(self, strategy: str) -> None:
        np.random.seed(1)
        before = np.random.get_state()[1].tolist()
        self.trials(self.make(strategy, bowl()))
        assert np.random.get_state()[1].tolist() == before


class RunnerTests:
    """`runner` is closed at first; `space` holds configurations it can measure."""

    @pytest.fixture
    def runner(self) -> Runner:
        raise NotImplementedError

    @pytest.fixture
    def space(self) -> Space:
        raise NotImplementedError

    def test_session_names_the_gpu_and_the_policy(self, runner: Runner) -> None:
        session = runner.open()
        runner.close()
        assert session.gpu
        assert session.policy

    def test_one_outcome_per_configuration_in_order(self, runner: Runner, space: Space) -> None:
        runner.open()
        configs = [space.config(row) for row in range(min(3, len(space)))]
        answers = list(runner.measure(configs))
        runner.close()
        assert [config for config, _ in answers] == configs
        assert all(isinstance(outcome, Measured | Rejected) for _, outcome in answers)

    def test_finalists_measures_what_it_is_given(self, runner: Runner, space: Space) -> None:
        runner.open()
        configs = [space.config(row) for row in range(min(2, len(space)))]
        again = runner.finalists(configs)
        runner.close()
        assert sorted(config_key(config) for config, _ in again) == sorted(map(config_key, configs))

    def test_a_stopped_runner_measures_no_more(self, runner: Runner, space: Space) -> None:
        runner.open()
        runner.stop()
        assert list(runner.measure([space.config(0)])) == []
        runner.close()

    def test_the_loop_runs_on_it(self, runner: Runner, space: Space) -> None:
        runner.open()
        trials = list(tune(space, "random", runner, Budget(trials=3), seed=0))
        runner.close()
        assert [trial.number for trial in trials] == list(range(min(3, len(space))))
