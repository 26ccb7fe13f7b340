"""The default search: its bars on what an H200 recorded, what it may not know, and the parts it is made of."""

import math
import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.search.arena import arenas, play, random_trials_to_within, strategy_player, trials_to_within
from tests.scale import DEEP
from tests.tuner.search.conformance import bowl, bowl_outcome
from tuner.tuning.measure.landscape import Landscape
from tuner.tuning.measure.replay import ReplayRunner
from tuner.tuning.search import recorded_searches
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.search.strategies import STRATEGIES, tell_facts
from tuner.tuning.search.strategies.composed import interpolate, past_winners, related_searches, rule_weights, similarity
from tuner.tuning.search.strategies.ledger import Ledger
from tuner.tuning.search.strategies.model import Hyperparameters, Posterior, fit_size
from tuner.tuning.search.strategies.prior import doublings_outside, guess_slowness, rule_terms
from tuner.tuning.search.strategies.prior_knowledge import PastSearch, PriorKnowledge
from tuner.tuning.search.strategies.roles import Role, Sizes, roles
from tuner.tuning.space import Param, Space
from tuner.tuning.trial import Measured, Reason, Rejected, Trial, config_key

DATA = Path(__file__).parents[2] / "data"
SHAPES = [(landscape, index) for path in sorted((DATA / "h200/landscapes").glob("*.json.gz"))
          for landscape in [Landscape.load(path)] for index in range(len(landscape.shapes))]
SEEDS = 10


def best_ms(landscape, index):
    return min(o.median_ms for _, o in landscape.at(index).outcomes.values() if isinstance(o, Measured))


def trials_to_5_pct(landscape, index, known, seed, runner=None, strategy="default"):
    """Everything that was told counts: failures and the operator's own configuration too."""
    good = 1.05 * best_ms(landscape, index)
    runner = runner or ReplayRunner(landscape, index)
    for trial in tune(landscape.space(index), strategy, runner, Budget(), seed, known=known):
        if trial.median_ms is not None and trial.median_ms <= good:
            return trial.number + 1
    raise AssertionError("the best was never tried")


def expected_of_random(landscape, index):
    """Draws without replacement until the first of the good ones: (N + 1) / (good + 1)."""
    good = 1.05 * best_ms(landscape, index)
    outcomes = [o for _, o in landscape.at(index).outcomes.values()]
    return (len(outcomes) + 1) / (sum(isinstance(o, Measured) and o.median_ms <= good for o in outcomes) + 1)


def medians(known_of):
    return [statistics.median(trials_to_5_pct(landscape, index, known_of(landscape, index), seed) for seed in range(SEEDS))
            for landscape, index in SHAPES]


@pytest.mark.slow
def test_cold_bars():
    """Median ≤ 6 where random expects ≥ 30, worst of all searches ≤ 20, eight times fewer than random over all."""
    runs = [[trials_to_5_pct(landscape, index, recorded_searches.recorded_knowledge(landscape, index), n)
             for n in range(2 * SEEDS if DEEP else SEEDS)]
            for landscape, index in SHAPES]
    found, random = [statistics.median(each) for each in runs], [expected_of_random(*shape) for shape in SHAPES]
    assert all(n <= 6 for n, r in zip(found, random, strict=True) if r >= 30), found
    assert max(map(max, runs)) <= 20, runs
    assert math.exp(statistics.mean(math.log(r / n) for n, r in zip(found, random, strict=True))) >= 8, found


def strange_names(arena, order):
    """The same space, its parameters in another order and called p0, p1, …"""
    params = [arena.space.params[place] for place in order]
    names = {param.name: f"p{place}" for place, param in enumerate(params)}
    space = Space([Param(names[param.name], param.values) for param in params], arena.space.rows[:, order], {})
    default = {names[name]: value for name, value in arena.known.default.items()}
    return replace(arena, space=space, known=replace(arena.known, default=default))


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_bar_without_a_name_that_says_anything(reverse):
    """What is a tile, a warp or a stage is told from the values, in any order."""
    ratios = []
    for arena in (arena for path in sorted((DATA / "h200/landscapes").glob("*.json.gz")) for arena in arenas(path)):
        places = list(range(len(arena.space.params)))
        strange, best = strange_names(arena, places[::-1] if reverse else places), float(np.nanmin(arena.ms))
        runs = [play(strange, strategy_player("default"), seed, trials=len(places) * 60, until_ms=1.05 * best) for seed in range(5)]
        found = statistics.median(n if n is not None else math.inf for n in trials_to_within(runs, best))
        ratios.append(random_trials_to_within(arena.ms) / found)
    assert statistics.geometric_mean(ratios) >= 5 and min(ratios) >= 0.8, ratios


@pytest.mark.deep_only
@pytest.mark.slow
def test_bar_with_history_of_the_other_shapes():
    def known(landscape, index):
        others = [(landscape, i) for i in range(len(landscape.shapes)) if i != index]
        return recorded_searches.recorded_knowledge(landscape, index, others)

    found, cold = medians(known), medians(lambda landscape, index: recorded_searches.recorded_knowledge(landscape, index))
    assert statistics.median(found) <= 3, found
    assert all(with_history <= without for with_history, without in zip(found, cold, strict=True)), (found, cold)


@pytest.mark.slow
def test_an_operator_nobody_knows_keeps_the_bars():
    """No default configuration, no work, no meaning in any tile's name: warps and stages are what is left to guess by."""
    found = []
    for landscape, index in SHAPES[:6:2] + SHAPES[6::2]:
        space = landscape.space(index)
        names = {p.name: p.name if p.name.startswith("num_") else f"p{i}" for i, p in enumerate(space.params)}
        strange = Space.listed([{names[k]: v for k, v in config.items()} for config in space.configs()])
        counts = []
        for seed in range(SEEDS):
            search = STRATEGIES["default"].make(strange, np.random.default_rng(seed), PriorKnowledge("strange", gpu=None))
            number, good = 0, False
            while not good:
                (asked,) = search.ask(1)
                config = {name: asked[names[name]] for name in names}
                outcome = landscape.at(index).outcomes[config_key(config)][1]
                search.tell([Trial(number, asked, outcome)])
                number += 1
                good = isinstance(outcome, Measured) and outcome.median_ms <= 1.05 * best_ms(landscape, index)
            counts.append(number)
        found.append(statistics.median(counts))
    assert max(found) <= 60, found
    assert statistics.median(found) <= 20, found


def test_nothing_known_comes_from_the_scored_shape():
    """Whatever was measured at a shape, the search of it starts from the same knowledge and with the same question."""
    landscape = Landscape.load(DATA / "h200/landscapes/matmul.json.gz")
    recorded = landscape.at(0)
    slower = {key: (config, Measured(1 / o.median_ms, 1, 1, 1)) for key, (config, o) in recorded.outcomes.items()}
    shapes = [replace(recorded, outcomes=slower), *landscape.shapes[1:]]
    other = replace(landscape, shapes=shapes)
    for history in ([], [1, 2]):
        ours = recorded_searches.recorded_knowledge(landscape, 0, [(landscape, i) for i in history])
        theirs = recorded_searches.recorded_knowledge(other, 0, [(other, i) for i in history])
        assert ours == theirs
        asked = [STRATEGIES["default"].make(x.space(0), np.random.default_rng(3), k).ask(4)
                 for x, k in ((landscape, ours), (other, theirs))]
        assert asked[0] == asked[1]


@pytest.mark.slow
def test_misleading_history_does_not_trap_the_search():
    """The history says the opposite of the truth (best and worst swapped): still within the cold bar."""
    landscape = Landscape.load(DATA / "h200/landscapes/matmul.json.gz")
    past = recorded_searches.recorded_search(landscape, 1)
    lies = [Trial(t.number, t.config, Measured(1 / t.median_ms, 1, 1, 1)) for t in past.trials]
    known = replace(recorded_searches.recorded_knowledge(landscape, 0), past=(replace(past, trials=lies),))
    assert statistics.median(trials_to_5_pct(landscape, 0, known, seed) for seed in range(SEEDS)) <= 60


def test_batches_cost_little():
    """Eight compiled ahead: nothing is asked twice, and the good one still comes early."""
    landscape = Landscape.load(DATA / "h200/landscapes/matmul.json.gz")
    space, good, told = landscape.space(3), 1.05 * best_ms(landscape, 3), 0
    search = STRATEGIES["default"].make(space, np.random.default_rng(1), recorded_searches.recorded_knowledge(landscape, 3))
    waiting, seen = search.ask(8), set()
    while True:
        config = waiting.pop(0)
        assert config_key(config) not in seen
        seen.add(config_key(config))
        outcome = landscape.at(3).outcomes[config_key(config)][1]
        search.tell([Trial(told, config, outcome)])
        told += 1
        if isinstance(outcome, Measured) and outcome.median_ms <= good:
            break
        waiting += search.ask(1)
    assert told <= 60


@pytest.mark.slow
@pytest.mark.deep_only          # a time: make bench-tuner says it as well
def test_a_long_search_of_a_large_space_takes_seconds():
    """Trials over 17,956 rows; 300 take about 5 s of one core. The bound leaves room for slow machines."""
    landscape = Landscape.load(next((DATA / "public_spaces").glob("gemm*")))
    space, outcomes = landscape.space(0), landscape.at(0).outcomes
    search = STRATEGIES["default"].make(space, np.random.default_rng(0))
    started = time.process_time()
    for number in range(300):
        (config,) = search.ask(1)
        search.tell([Trial(number, config, outcomes[config_key(config)][1])])
    assert time.process_time() - started < 40


@pytest.mark.parametrize("strategy", ["default", "model"])
def test_a_resumed_model_goes_on_as_the_interrupted_one_would_have(strategy):
    """Across several refits of the hyperparameters, with failures among the trials."""
    landscape = Landscape.load(DATA / "h200/landscapes/attention.json.gz")
    space, known = landscape.space(1), recorded_searches.recorded_knowledge(landscape, 1, [(landscape, 0)])

    def on(search, done, until):
        while len(done) < until:
            (config,) = search.ask(1)
            done.append(Trial(len(done), config, landscape.at(1).outcomes[config_key(config)][1]))
            search.tell(done[-1:])
        return [t.config for t in done]

    whole = on(STRATEGIES[strategy].make(space, np.random.default_rng(5), known), [], 30)
    first = STRATEGIES[strategy].make(space, np.random.default_rng(5), known)
    done = []
    on(first, done, 17)
    again = STRATEGIES[strategy].make(space, np.random.default_rng(5), known)
    again.tell(done)
    assert on(again, done, 30) == whole


def test_the_operators_own_configuration_is_first():
    space = bowl()
    search = STRATEGIES["default"].make(space, np.random.default_rng(0), PriorKnowledge(default={"a": 8, "b": 0, "mode": "x"}))
    assert search.ask(1) == [{"a": 8, "b": 0, "mode": "x"}]
    known = PriorKnowledge(default={"a": 3, "b": 0, "mode": "x"})
    elsewhere_valid = STRATEGIES["default"].make(space, np.random.default_rng(0), known)
    assert elsewhere_valid.ask(1)[0] in list(space.configs())


def test_static_facts_of_what_was_compiled_change_what_comes_next():
    """At the next fit: after the same four trials the questions differ where the other four were seen to spill."""
    landscape = Landscape.load(DATA / "h200/landscapes/matmul.json.gz")
    asked = []
    for spills in (0, 4096):
        search = STRATEGIES["model"].make(landscape.space(0), np.random.default_rng(0), PriorKnowledge())
        waiting = search.ask(8)
        tell_facts(search, {config_key(config): {"spills": spills, "registers": 255} for config in waiting[4:]})
        search.tell([Trial(i, c, landscape.at(0).outcomes[config_key(c)][1]) for i, c in enumerate(waiting[:4])])
        asked.append(search.ask(6))
    assert asked[0] != asked[1]


# the parts


def test_posterior_is_the_textbook_one():
    """Row by row it comes to what solving the whole system at once gives (Rasmussen and Williams, algorithm 2.1)."""
    rng = np.random.default_rng(0)
    x, prior = rng.random((40, 3)), rng.random(40)
    theta, slope = np.array([-1.0, -0.5, -4.0, -0.3, 0.2, 0.4]), 0.5
    rows, y = [3, 17, 8, 30, 25], rng.normal(size=5)
    gaps = np.abs(x[:, None] - x[None]) / np.exp(theta[3:])

    def matern(r):
        return (1 + math.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-math.sqrt(5) * r)

    k = (math.exp(-1) * matern(np.sqrt((gaps**2).sum(-1))) + math.exp(-0.5) / 3 * matern(gaps).sum(-1) + 1
         + slope * np.outer(prior, prior))
    inner = np.linalg.inv(k[np.ix_(rows, rows)] + (math.exp(-4) + 1e-9) * np.eye(5))
    posterior = Posterior(x, prior, theta, slope, room=2)      # grows twice
    for row in rows[:4]:
        posterior.add(row)
    ahead = posterior.variance_with(rows[4:])
    posterior.add(rows[4])
    assert posterior.mean(y) == pytest.approx(k[:, rows] @ inner @ y)
    expected = np.diag(k) - np.einsum("ij,jk,ik->i", k[:, rows], inner, k[:, rows])
    assert posterior.variance == pytest.approx(expected, abs=1e-9)
    assert ahead == pytest.approx(expected, abs=1e-9)


def test_gradient_of_the_hyperparameters_is_the_slope_of_the_cost():
    rng = np.random.default_rng(1)
    x, y = rng.random((12, 2)), rng.normal(size=12)
    hyper, theta = Hyperparameters(2), rng.normal(size=5) * 0.3 - 1
    gaps, line = np.abs(x[:, None] - x[None]), np.ones((12, 12))
    gradient = hyper._cost(theta, gaps, y, line)[1]
    for i in range(5):
        step = np.eye(5)[i] * 1e-5
        slope = (hyper._cost(theta + step, gaps, y, line)[0] - hyper._cost(theta - step, gaps, y, line)[0]) / 2e-5
        assert gradient[i] == pytest.approx(slope, rel=1e-4, abs=1e-6)


def test_sizes_of_fits_grow_by_a_quarter():
    assert [fit_size(n) for n in (0, 3, 4, 5, 6, 9, 12, 14, 15)] == [0, 0, 4, 4, 6, 8, 12, 12, 15]


@pytest.mark.parametrize(("params", "expected"), [
    ({"BM": (16, 128), "BN": (32, 64), "BK": (32, 64), "GM": (8, 16), "num_warps": (2, 4), "num_stages": (2, 3)},
     "TILE TILE DEPTH GROUP WARPS STAGES"),
    ({"BLOCK_SIZE_M": (16, 64), "BLOCK_SIZE_K": (32, 64), "GROUP_SIZE_M": (1, 8), "NUM_WARPS": (4, 8), "SPLIT_K": (1, 4)},
     "TILE DEPTH GROUP WARPS SPLIT"),
    ({"block_size_x": (32, 64), "tile_size_y": (1, 4), "use_shmem": (0, 1)}, "THREADS WORK OTHER"),
    ({"XBLOCK": (1, 64), "RBLOCK": (64, 1024), "num_warps": (2, 4)}, "TILE TILE WARPS"),
    ({"layout": ("a", "b"), "scale": (0.5, 1.0), "num_warps": (1, 2)}, "OTHER OTHER WARPS"),
    ({"a": (64, 128, 256), "b": (32, 64, 128), "c": (16, 32, 64), "d": (2, 4, 8), "e": (2, 3, 4), "f": (0, 1)},
     "TILE TILE DEPTH WARPS STAGES OTHER"),
    ({"a": (1, 2, 3, 4), "b": (1, 2, 4, 8), "c": (1, 2, 4, 8, 16)}, "STAGES PROGRAMS WARPS"),
    ({"a": (32, 64, 96, 128), "b": (1, 2, 4), "c": (1, 2, 3, 4)}, "OTHER OTHER OTHER"),           # Triton has no 96
    ({"a": (16, 32, 64), "b": (8, 16, 32), "c": (8, 16, 32), "d": (1, 2, 4)}, "OTHER OTHER OTHER OTHER"),
])
def test_roles_are_told_from_names_and_values(params, expected):
    found = roles([Param(name, values) for name, values in params.items()])
    assert found == [Role[name] for name in expected.split()]


def test_where_values_leave_two_readings_the_guess_is_their_mean():
    values = {"PER_SM": (1, 2, 4, 8), "num_warps": (1, 2, 4, 8), "STEPS": (1, 2, 3)}
    space = Space.enumerate([Param(name, each) for name, each in values.items()])
    order = {"a": "num_warps", "b": "PER_SM", "c": "STEPS"}
    swapped = Space.enumerate([Param(name, values[other]) for name, other in order.items()])
    known = PriorKnowledge(shape={"R": 8192, "C": 4096})
    mean, told = guess_slowness(swapped, known, Sizes(swapped)), guess_slowness(space, known, Sizes(space))
    of = {tuple(config.values()): value for config, value in zip(space.configs(), told, strict=True)}
    both = np.array([of[a, b, c] + of[b, a, c] for a, b, c in (tuple(config.values()) for config in swapped.configs())]) / 2
    assert mean == pytest.approx(both - both.min()) and np.ptp(mean) > 0
    assert Sizes(space).instead() is None


def test_sides_of_cuda_blocks_that_are_no_powers_of_two_are_guessed_slower():
    sides = (32, 48, 64, 96, 112, 128)
    space = Space.enumerate([Param("block_size_x", sides), Param("tile_size_x", (1, 2, 3, 4))])
    terms = rule_terms(space, PriorKnowledge(), Sizes(space))["sides that divide few problems"]
    by = {tuple(config.values()): term for config, term in zip(space.configs(), terms, strict=True)}
    assert by[32, 1] == by[128, 4] == 0 and by[48, 1] == by[64, 3] == pytest.approx(0.15 * math.log2(3))
    assert by[112, 1] == pytest.approx(0.15 * math.log2(7)) and by[96, 3] == pytest.approx(0.3 * math.log2(3))
    powers = Space.enumerate([Param("block_size_x", (32, 64)), Param("tile_size_x", (1, 2))])
    assert "sides that divide few problems" not in rule_terms(powers, PriorKnowledge(), Sizes(powers))


def test_doublings_outside_a_range():
    assert doublings_outside(np.array([4, 8, 20, 32, 128]), 8, 32).tolist() == [1, 0, 0, 0, 2]
    assert doublings_outside(np.array([1.0, 1e9]), 0, 1e9).tolist() == [0, 0]


def trial(number, ms, **config):
    return Trial(number, config, Rejected(Reason.CRASH) if ms is None else Measured(ms, ms, ms, 1))


def test_slowness_bends_above_the_knee_and_failures_are_slower_than_all():
    ledger = Ledger(Space.listed([{"a": i} for i in range(4)]))
    ledger.tell([trial(0, 2.0, a=0), trial(1, 1.0, a=1), trial(2, None, a=2), trial(3, math.e**3, a=3), trial(4, 9, b=1)])
    slowness = ledger.slowness()
    assert slowness[:2] == pytest.approx([math.log(2), 0])
    assert slowness[3] == pytest.approx(0.7 + 0.5 * math.log1p(2.3))
    assert slowness[2] > slowness[3]
    assert ledger.fastest(9) == [1, 0, 3]
    assert ledger.is_full


def test_pasts_of_this_operator_nearest_shape_first_and_their_winners():
    space = Space.listed([{"a": 1}, {"a": 2}, {"a": 4}])
    far = PastSearch("op", {"N": 64}, "", None, "", [trial(0, 1.0, a=4), trial(1, 2.0, a=8)])
    near = PastSearch("op", {"N": 2048}, "", None, "", [trial(0, 1.0, a=8), trial(1, 2.0, a=2), trial(2, 3.0, a=1)])
    foreign = PastSearch("other", {"N": 1024}, "", None, "", [trial(0, 1.0, a=1)])
    unlike = PastSearch("op", {"N": 1024}, "", None, "", [trial(0, 1.0, b=1)])
    known = PriorKnowledge("op", {"N": 1024}, past=(far, foreign, unlike, near))
    found = related_searches(space, known)
    assert [p.shape["N"] for p in found] == [2048, 64]
    assert past_winners(space, found) == [{"a": 2}, {"a": 4}, {"a": 1}]       # a=8 is not valid here
    assert 0 < similarity(far, known) < similarity(near, known) < 1


def test_rules_that_held_for_other_operators_gain_weight_and_others_lose_it():
    """Made-up pasts: time follows 2 × one rule and nothing else. The searched operator's own trials have no say."""
    space = Space.enumerate((Param("BLOCK", (64, 128, 256, 512, 1024, 2048)), Param("num_warps", (1, 2, 4, 8)),
                             Param("num_stages", (1, 2, 3, 4, 6, 8))))
    known = PriorKnowledge("mine", {"R": 4096, "C": 4096}, flops=10**8, bytes=10**8)
    made = rule_terms(space, known, Sizes(space))
    rule = "elements of a thread"
    trials = [Trial(i, config, Measured(math.exp(2 * made[rule][i]), 1, 1, 1)) for i, config in enumerate(space.configs())]
    other = PastSearch("other", {"R": 4096, "C": 4096}, "", None, "", trials, 10**8, 10**8)
    weights = rule_weights(replace(known, past=(other,)))
    assert weights.keys() == made.keys()
    assert rule_weights(known) == {} and rule_weights(replace(known, past=(replace(other, operator="mine"),))) == {}
    flat = [Trial(i, config, Measured(1.0, 1, 1, 1)) for i, config in enumerate(space.configs())]
    without = rule_weights(replace(known, past=(replace(other, trials=flat),)))
    assert without[rule] < weights[rule] <= 3
    assert without["loads under way"] < 1


def test_a_strange_recording_is_searched_too():
    """Dimensions that are no sizes, texts and flags among the values, another kind of value in the history."""
    configs = [{"num_warps": w, "BLOCK": b, "layout": t, "flag": f} for w in (1, 2) for b in (16, 64)
               for t in "abc" for f in (False, True)]
    space = Space.listed(configs)
    shape = {"N": -4, "dtype": "fp16", "causal": True, "scale": float("nan")}
    trials = [Trial(i, {**c, "layout": 7 if c["layout"] == "a" else c["layout"]}, Measured(1.0 + i, 1, 1, 1))
              for i, c in enumerate(configs)]
    past = (PastSearch("op", {"N": "many"}, "", None, "", trials), PastSearch("far", {}, "", None, "", trials))
    known = PriorKnowledge("op", shape, past=past)
    search = STRATEGIES["default"].make(space, np.random.default_rng(0), known)
    count = 0
    while configs := search.ask(1):
        search.tell([Trial(count, configs[0], Measured(1.0, 1, 1, 1))])
        count += 1
    assert count == len(space)


def test_a_past_without_a_single_success_says_nothing():
    space = bowl()
    failures = [Trial(i, config, Rejected(Reason.CRASH)) for i, config in enumerate(space.configs())]
    known = PriorKnowledge("op", past=(PastSearch("op", {}, "", None, "", failures),))
    search = STRATEGIES["default"].make(space, np.random.default_rng(0), known)
    asked = []
    while configs := search.ask(3):
        asked += configs
        search.tell([Trial(0, config, bowl_outcome(config)) for config in configs])
    assert len(asked) == len(space)


def test_what_was_recorded_elsewhere_is_interpolated_from_the_nearest_and_fades():
    """Against the sums by hand: 1/distance of the four nearest, the recorded value where there is one."""
    at = np.array([[0.0, 0.0], [0.3, 0.0], [0.0, 0.4], [0.5, 0.5], [1.0, 1.0], [0.9, 1.0]])
    values = np.array([1.0, -2.0, 3.0, 0.5, 100.0, -100.0])
    here = np.array([[0.0, 0.0], [0.1, 0.1], [0.3, 0.35]])
    expected = []
    for place in here:
        distance = np.sqrt(((at - place) ** 2).sum(axis=1))
        near = np.argsort(distance)[:4]
        mean = values[near[0]] if distance[near[0]] == 0 else np.average(values[near], weights=1 / distance[near])
        expected.append(mean * math.exp(-2 * distance[near[0]]))
    assert interpolate(at, values, here) == pytest.approx(expected)
    assert interpolate(at[:1], values[:1], here[:2]) == pytest.approx([1.0, math.exp(-2 * math.sqrt(0.02))])
