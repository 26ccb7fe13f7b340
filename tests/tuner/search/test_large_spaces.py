"""Spaces of more configurations than a model looks at, and texts of many values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tuner.tuning.search.strategies import STRATEGIES
from tuner.tuning.search.strategies.ledger import Ledger
from tuner.tuning.search.strategies.model import Posterior, Shortlist, distances
from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge
from tuner.tuning.search.strategies.roles import MOST_TEXTS, Sizes, model_columns
from tuner.tuning.space import Param, Space
from tuner.tuning.trial import Measured, Trial, config_key

MOST = 500


@pytest.fixture(scope="module")
def large() -> Space:
    """4,096 configurations, looked at as if the model took 500."""
    return Space.enumerate([Param(name, tuple(range(8))) for name in "abcd"])


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shortlist.__init__, "__defaults__", (MOST,))


def _slowness(config: Any) -> float:
    return 1 + sum((config[name] - best) ** 2 for name, best in zip("abcd", (3, 5, 2, 6), strict=True)) / 20


def _trials(search: Any, count: int, start: int = 0) -> list[Trial]:
    made = []
    for number in range(start, start + count):
        (config,) = search.ask(1)
        ms = _slowness(config)
        made.append(Trial(number, config, Measured(ms, ms, ms, 10)))
        search.tell(made[-1:])
    return made


@pytest.mark.parametrize("strategy", ["default", "model"])
def test_the_fastest_of_a_large_space_is_found_though_the_model_never_sees_all_of_it(large, short, strategy):
    search = STRATEGIES[strategy].make(large, np.random.default_rng(1), PriorKnowledge())
    found = [_slowness(trial.config) for trial in _trials(search, 60)]
    assert min(found) == 1.0                       # 1 of 4,096: random search expects it after 2,048 trials


@pytest.mark.parametrize("strategy", ["default", "model"])
def test_a_search_of_a_large_space_goes_on_after_a_stop_as_it_would_have(large, short, strategy):
    def make() -> Any:
        return STRATEGIES[strategy].make(large, np.random.default_rng(7), PriorKnowledge())

    whole, again = _trials(make(), 30), make()
    again.tell(whole[:13])
    assert [trial.config for trial in whole[13:]] == [trial.config for trial in _trials(again, 17, start=13)]


def test_a_shortlist_has_the_guess_the_neighbours_of_the_fastest_and_in_time_every_row(large):
    ledger, guess = Ledger(large), np.arange(len(large))[::-1].astype(float)
    rows = Shortlist(ledger, np.random.default_rng(0).permutation(len(large)), MOST)
    config = large.config(2048)
    ledger.take(2048)
    ledger.tell([Trial(0, config, Measured(1, 1, 1, 1))])
    seen: set[int] = set()
    for told in range(1, 40):
        rows.choose(guess, told)
        assert len(set(rows.rows.tolist())) == len(rows.rows) <= MOST
        assert set(range(len(large) - MOST // 5, len(large))) <= set(rows.rows.tolist())
        assert set(large.neighbours(2048)) <= set(rows.rows.tolist())
        seen |= set(rows.rows.tolist())
    assert len(seen) == len(large)
    outside = next(row for row in range(len(large)) if row not in set(rows.rows.tolist()))
    assert rows.place(outside) is None
    assert rows.append(outside) == len(rows.rows) - 1 == rows.place(outside)


def test_a_row_that_comes_in_late_is_expected_as_if_it_had_been_there():
    rng = np.random.default_rng(3)
    x, prior, theta = rng.random((30, 3)), rng.random(30), np.array([-1.0, -0.5, -4.0, -0.3, 0.2, 0.4])
    whole, late = Posterior(x, prior, theta, 0.5), Posterior(x[:28], prior[:28], theta, 0.5)
    for row in (4, 20, 11):
        whole.add(row)
        late.add(row)
    late.variance_with([7])                       # what is kept of a pending row has no column for those that come
    for row in (28, 29):
        late.extend(x[row], prior[row])
    for row in (7, 29):
        whole.add(row)
        late.add(row)
    y = rng.normal(size=5)
    assert late.mean(y) == pytest.approx(whole.mean(y))
    assert late.variance == pytest.approx(whole.variance)


def test_a_text_of_many_values_is_one_column_of_values_that_are_alike_or_not():
    configs = [{"KERNEL": f"k{n}", "LAYOUT": layout} for n in range(MOST_TEXTS + 1) for layout in ("a", "b", "c")]
    space = Space.listed(configs)
    x = model_columns(space, Sizes(space))
    assert x.shape == (len(configs), 3 + 1)       # a column for each layout, one for all kernels
    one, same, other = (space.row({"KERNEL": name, "LAYOUT": "a"}) for name in ("k1", "k1", "k9"))
    assert distances(x[one], x[same]).sum() == 0 and distances(x[one], x[other]).sum() == 1


@pytest.mark.slow
def test_thousands_of_kernels_by_name_are_searched(short):
    """As the space of a library is: every configuration another kernel, with what its name says beside it."""
    configs = [{"KERNEL": f"tile_{m}_{n}_{s}", "M": m, "N": n, "STAGES": s}
               for m in range(1, 17) for n in range(1, 17) for s in range(1, 9)]
    space = Space.listed(configs)
    search = STRATEGIES["default"].make(space, np.random.default_rng(0), PriorKnowledge())
    asked, best = set(), np.inf
    for number in range(80):
        (config,) = search.ask(1)
        ms = 1 + abs(config["M"] - 11) / 8 + abs(config["N"] - 5) / 8 + abs(config["STAGES"] - 4) / 8
        best = min(best, ms)
        asked.add(config_key(config))
        search.tell([Trial(number, config, Measured(ms, ms, ms, 10))])
    assert len(asked) == 80 and best < 1.15       # 7 of 2,048 are below
