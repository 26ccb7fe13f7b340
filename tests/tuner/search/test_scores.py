"""The score of search methods: published budgets, the ends of the scale, and the leaderboard that the command prints."""

from __future__ import annotations

import io
import itertools
import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from bench import tuner as bench_tuner
from bench.search.arena import (
    Arena,
    Distribution,
    Run,
    arenas,
    fit_falling,
    play,
    random_trials_to_within,
    score,
    standardised_curve,
    strategy_player,
    trials_to_within,
)
from tuner.management.commands import leaderboard

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def convolution(db) -> Arena:
    """With the database: an operator of that name could be a team's."""
    return _convolution()


@lru_cache(maxsize=1)
def _convolution() -> Arena:
    return next(arenas(DATA / "public_spaces" / "convolution_milo_W7800_T4.json.xz"))


def test_the_budget_is_the_published_one(convolution):
    """reference figures of the methodology's own program: 40 evaluations for convolution on the W7800, 95 %"""
    assert convolution.distribution.trials_to(0.95) == 40
    assert len(convolution.space) == 4362
    assert convolution.distribution.times()[-1] == pytest.approx(40 * convolution.distribution.trial_s)


def test_random_search_scores_nothing_and_an_oracle_nearly_one(convolution):
    distribution = convolution.distribution
    runs = [play(convolution, strategy_player("random"), seed) for seed in range(60)]
    assert abs(score(runs, distribution)) < 0.15
    best = int(np.nanargmin(convolution.ms))
    oracle = Run(np.array([distribution.times()[0]]), np.array([convolution.ms[best]]))
    assert score([oracle], distribution) == pytest.approx(1.0)
    worst = Run(np.array([distribution.times()[0]]), np.array([np.nanmax(convolution.ms)]))
    assert score([worst], distribution) < -1


def test_a_search_that_costs_time_scores_less(convolution):
    runs = [play(convolution, strategy_player("local"), seed) for seed in range(10)]
    slow = [Run(run.time_s * 3, run.ms) for run in runs]
    assert score(slow, convolution.distribution) < score(runs, convolution.distribution)
    assert np.all(standardised_curve(runs, convolution.distribution) <= 1)


def test_expected_random_trials_are_those_of_every_order():
    ms = np.array([1.0, 1.04, 2.0, np.nan, 3.0])
    firsts = [min(order.index(0), order.index(1)) + 1 for order in itertools.permutations(range(5))]
    assert random_trials_to_within(ms) == pytest.approx(np.mean(firsts)) == pytest.approx(2.0)


def test_trials_to_within_counts_failures_and_says_never():
    runs = [Run(np.arange(3.0), np.array([np.nan, 2.0, 1.05])), Run(np.arange(2.0), np.array([2.0, 1.06]))]
    assert trials_to_within(runs, 1.0) == [3, None]
    assert np.isnan(runs[0].best[0]) and runs[0].best[-1] == 1.05


def test_the_mean_time_of_a_trial_counts_failures():
    ms, cost_s = np.array([1.0, 2.0, np.nan, np.nan]), np.array([2.0, 4.0, 1.0, 1.0])
    assert Distribution.of(ms, cost_s).trial_s == pytest.approx(3.0 + 0.5 * 1.0)
    with pytest.raises(ValueError, match="no configuration"):
        Distribution.of(np.array([np.nan]), np.array([1.0]))


def test_a_search_ends_with_its_clock(convolution):
    run = play(convolution, strategy_player("random"), 0, trials=7)
    assert len(run.ms) == 7 and np.all(np.diff(run.time_s) > 0)
    best = float(np.nanmin(convolution.ms))
    hit = play(convolution, strategy_player("local"), 1, trials=4362, until_ms=best * 1.05)
    assert hit.ms[-1] <= best * 1.05 and not np.any(hit.ms[:-1] <= best * 1.05)


@pytest.fixture
def board(db, tmp_path, monkeypatch):
    """A leaderboard of two methods on two real spaces, as `make bench-tuner` writes it."""
    tasks = [bench_tuner.Task(f"tests/data/{path}", 0, method, "now", 2) for path in (
        "h200/landscapes/softmax.json.gz", "public_spaces/convolution_milo_W7800_T4.json.xz") for method in ("random", "local")]
    document = bench_tuner._document([bench_tuner.measure(task) for task in tasks], 2)
    path = tmp_path / "leaderboard.json"
    path.write_text(json.dumps(document))
    monkeypatch.setattr(leaderboard, "LEADERBOARD", path)
    return document


def test_the_command_prints_what_was_measured(board):
    out = io.StringIO()
    call_command("leaderboard", stdout=out)
    for method in board["methods"]:
        assert method["title"] in out.getvalue() and f"{method['mean_score']:+6.2f}" in out.getvalue()
    out = io.StringIO()
    call_command("leaderboard", "--json", stdout=out)
    assert json.loads(out.getvalue()) == board


def test_without_a_leaderboard_the_command_says_how_to_make_one(tmp_path, monkeypatch):
    monkeypatch.setattr(leaderboard, "LEADERBOARD", tmp_path / "none.json")
    with pytest.raises(CommandError, match="make bench-tuner"):
        call_command("leaderboard")


def test_the_report_names_every_space_and_method(board):
    text = bench_tuner._page(board)
    assert text.count("| softmax") == 1 and "| random |" in text.replace("random | local", "random |")
    assert all(method["method"] in text for method in board["methods"])


def test_the_mean_curve_never_rises_and_is_the_least_squares_one():
    """Pool adjacent violators by hand: 5, (4 and 6 at one time → 5), 1, 3 → 5, 5, 2, 2; outside the points it stays."""
    x, y = np.array([1.0, 2.0, 2.0, 3.0, 5.0]), np.array([5.0, 4.0, 6.0, 1.0, 3.0])
    assert fit_falling(x, y, np.array([0.0, 1.0, 2.0, 2.5, 3.0, 4.0, 9.0])) == pytest.approx([5, 5, 5, 3.5, 2, 2, 2])
