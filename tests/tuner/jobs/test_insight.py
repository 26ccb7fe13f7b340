"""What trials tell, on trials whose truth is known."""

import itertools
import math
import random

import numpy as np
import pytest

from tuner.jobs.insight import explain_trials, milestones, time_spent
from tuner.tuning.trial import Measured, Reason, Rejected, Trial


def measured(number, config, ms, at_s=0.0, **facts):
    return Trial(number, config, Measured(ms, ms, ms, 1, facts), at_s)


def grid(time_of, **params):
    configs = [dict(zip(params, values, strict=True)) for values in itertools.product(*params.values())]
    return [measured(at, config, time_of(config)) for at, config in enumerate(configs)]


def test_a_full_grid_gives_the_textbooks_shares():
    """A balanced design without interaction: the sums of squares are those of the factors, computed here by hand."""
    a, b = {16: 0.0, 32: 1.0, 64: 0.5}, {2: 0.0, 4: 0.3}
    trials = grid(lambda c: math.exp(a[c["A"]] + b[c["B"]]), A=a, B=b, C=(1, 2, 3))
    found = explain_trials(trials)
    total = np.var(list(a.values())) + np.var(list(b.values()))
    shares = {effect.name: effect.share for effect in found.effects}
    assert [effect.name for effect in found.effects] == ["A", "B", "C"]
    assert shares["A"] == pytest.approx(np.var(list(a.values())) / total)
    assert shares["B"] == pytest.approx(np.var(list(b.values())) / total)
    assert shares["C"] == pytest.approx(0.0, abs=1e-9) and found.explained == pytest.approx(1.0)
    assert found.effects[0].best.value == 16 and found.effects[0].loss == pytest.approx(math.e)


def test_what_only_moves_along_gets_no_credit():
    """B mostly follows A, as a search that climbs would have it, and does nothing by itself."""
    chance = random.Random(4)
    trials = []
    for number in range(200):
        a = chance.choice((1, 2, 4))
        b = a if chance.random() < 0.9 else chance.choice((1, 2, 4))
        trials.append(measured(number, {"A": a, "B": b}, a * math.exp(chance.gauss(0, 0.05))))
    shares = {effect.name: effect.share for effect in explain_trials(trials).effects}
    assert shares["B"] < 0.01 and shares["A"] > 0.1


def test_pure_interaction_is_explained_by_no_parameter_alone():
    trials = grid(lambda c: math.exp(c["A"] * c["B"]), A=(-1, 1), B=(-1, 1), C=(0, 1, 2, 3))
    found = explain_trials(trials)
    assert found.explained == pytest.approx(0.0, abs=0.05)
    assert all(effect.share == pytest.approx(0.0, abs=0.05) for effect in found.effects)


def test_few_trials_and_failures_say_what_they_can():
    trials = [measured(0, {"A": 1, "kind": "x"}, 2.0), measured(1, {"A": 2, "kind": "x"}, 3.0),
              Trial(2, {"A": 4, "kind": "x"}, Rejected(Reason.SPILLS, "too many"))]
    found = explain_trials(trials)
    assert found.explained is None and all(effect.share is None for effect in found.effects)
    assert (found.measured, found.rejected) == (2, 1)
    a = found.effects[0]
    assert a.name == "A" and a.loss == 1.5 and [level.rejected for level in a.levels] == [0, 0, 1]
    assert a.levels[2].best_ms is None and found.effects[1].loss is None
    assert explain_trials([]).effects == ()


def test_where_the_time_went_is_summed_from_facts():
    trials = [measured(0, {"A": 1}, 1.0, gpu_s=2.0, compile_s=1.0, ended="settled"),
              measured(1, {"A": 2}, 5.0, gpu_s=1.0, compile_s=3.0, ended="raced", racing={"saved_s": 4.0},
                       throttled={"discarded": 3}),
              Trial(2, {"A": 3}, Rejected(Reason.SPILLS, "", {"compile_s": 2.0}))]
    told = time_spent(trials, 10.0)
    assert (told.gpu_s, told.compile_s, told.busy) == (3.0, 6.0, 0.3)
    assert (told.raced, told.raced_saved_s, told.throttled) == (1, 4.0, 3)
    assert (told.compiled_only, told.compiled_saved_s, told.saved_s) == (1, 1.5, 5.5)      # one trial at the mean of 2 and 1
    silent = time_spent([measured(0, {"A": 1}, 1.0)], 10.0)
    assert silent.gpu_s is None and silent.busy is None and silent.saved_s is None and silent.raced == 0


def test_how_soon_counts_failures_as_trials():
    trials = [Trial(0, {"A": 0}, Rejected(Reason.COMPILE), 1.0), measured(1, {"A": 1}, 1.08, 2.0), measured(2, {"A": 2}, 1.0, 5.0)]
    assert [(each.trials, each.seconds) for each in milestones(trials, 1.0)] == [(2, 2.0), (3, 5.0), (3, 5.0), (3, 5.0)]
    assert milestones(trials, 0.5)[0].trials is None
