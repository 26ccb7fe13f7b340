"""Every strategy keeps the contract; local search beats random on what was recorded on a real GPU."""

import math
import statistics
from pathlib import Path

import pytest

from tests.tuner.search.conformance import StrategyTests, bowl
from tuner.tuning.measure.landscape import Landscape
from tuner.tuning.measure.replay import ReplayRunner
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.search.strategies import DEFAULT, STRATEGIES
from tuner.tuning.trial import Measured

LANDSCAPES = sorted((Path(__file__).parents[2] / "data/h200/landscapes").glob("*.json.gz"))


@pytest.mark.parametrize("strategy", list(STRATEGIES))
class TestEveryStrategy(StrategyTests):
    pass


def test_the_default_is_in_the_table():
    assert DEFAULT in STRATEGIES


def test_exhaustive_keeps_the_order_of_the_space():
    space = bowl()
    search = STRATEGIES["exhaustive"].make(space, None)
    assert search.ask(len(space)) == list(space.configs())


def trials_to_within_5_pct(landscape: Landscape, shape: int, strategy: str, seed: int) -> int:
    """Trials until one is at most 5 % slower than the best of the space. No default configuration, no history."""
    best = min(o.median_ms for _, o in landscape.at(shape).outcomes.values() if isinstance(o, Measured))
    runner = ReplayRunner(landscape, shape)
    for trial in tune(landscape.space(shape), strategy, runner, Budget(), seed):
        if trial.median_ms is not None and trial.median_ms <= 1.05 * best:
            return trial.number + 1
    raise AssertionError("the best was never tried")


@pytest.mark.slow
def test_local_search_beats_random_on_the_recorded_landscapes():
    """Geometric mean over 12 shapes of the mean of 8 seeds: about 15 trials against 35. Seeded, so it cannot flake."""
    assert LANDSCAPES
    means = {"local": [], "random": []}
    for path in LANDSCAPES:
        landscape = Landscape.load(path)
        for shape in range(len(landscape.shapes)):
            for strategy, into in means.items():
                into.append(statistics.mean(trials_to_within_5_pct(landscape, shape, strategy, s) for s in range(8)))
    geometric = {name: math.exp(statistics.mean(map(math.log, values))) for name, values in means.items()}
    assert geometric["local"] < 0.6 * geometric["random"], geometric
    assert max(means["local"]) < 0.6 * max(means["random"])
