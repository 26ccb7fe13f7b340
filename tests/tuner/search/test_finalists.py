"""Who wins: equal sets by an exact test over paired rounds, ties by registers and portability, a library in the same rounds."""

import itertools
import random

import pytest

from tuner.tuning.measure.statistics import Entry, capability_count, sign_flip_p, standings
from tuner.tuning.search.finalists import choose_finalists, measure_finalists
from tuner.tuning.trial import Measured, Reason, Rejected, Trial


def rounds(mean, noise, seed, drift=None):
    rng = random.Random(seed)
    drift = drift or [1.0] * 8
    return [mean * factor * (1 + rng.gauss(0, noise)) for factor in drift]


def entry(ms, noise=0.001, seed=1, **facts):
    own = rounds(ms, noise, seed)
    return Entry(sorted(own)[4], own, facts)


def test_the_sign_flip_test_is_exact():
    assert sign_flip_p([1.0] * 8) == 2 ** -8
    assert sign_flip_p([0.0] * 6) == 1.0
    values = [0.3, -0.1, 0.2, 0.5, -0.4, 0.1]
    patterns = itertools.product((-1, 1), repeat=6)
    sums = [sum(sign * abs(value) for sign, value in zip(signs, values, strict=True)) for signs in patterns]
    assert sign_flip_p(values) == pytest.approx(sum(one >= sum(values) - 1e-12 for one in sums) / 64)


def test_a_difference_of_two_percent_is_seen_and_one_of_a_fifth_of_a_percent_is_a_tie():
    found = standings([entry(1.0, seed=1), entry(1.02, seed=2), entry(1.002, seed=3)])
    assert [one.equal for one in found] == [True, False, True]
    assert found[1].p < 0.05 and found[1].slower_by == pytest.approx(0.02, abs=0.005)
    assert "sign flips, p = 0.0" in found[1].why and "identical code differ" in found[2].why


def test_drift_that_hits_all_rounds_alike_hides_nothing():
    drift = [1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35]
    a, b = rounds(1.0, 0.001, 1, drift), rounds(1.02, 0.001, 2, drift)
    found = standings([Entry(sorted(a)[4], a), Entry(sorted(b)[4], b)])
    assert not found[1].equal


def test_noise_keeps_them_in_one_set():
    found = standings([entry(1.0, 0.05, 4), entry(1.01, 0.05, 5)])
    assert all(one.equal for one in found)


def test_the_truly_fastest_is_called_slower_at_most_as_often_as_stated():
    """Seven identical finalists at 2 % noise, 400 sessions: each of them is dropped in 5 % of the sessions at most."""
    sessions = ([entry(1.0, 0.02, session * 10 + i) for i in range(7)] for session in range(400))
    dropped = sum(not one.equal for session in sessions for one in standings(session))
    assert 0 < dropped <= 0.05 * 7 * 400


def test_recorded_values_have_no_rounds_and_say_so():
    found = standings([Entry(1.0), Entry(1.009), Entry(1.02)])
    assert [one.equal for one in found] == [True, True, False] and found[1].p is None
    assert "without rounds a tie is 1%" in found[2].why


def test_portability_counts_the_architectures_whose_shared_memory_suffices():
    assert capability_count(40_000) > capability_count(150_000) > capability_count(230_000) >= 0
    assert capability_count(None) == 0


def trial(number, ms, **facts):
    return Trial(number, {"a": number}, Measured(ms, ms, ms, 10, facts))


class Machine:
    """Finalists with paired rounds; some kill the session."""

    def __init__(self, medians, facts=None, deadly=()):
        self.medians, self.facts, self.deadly, self.calls = medians, facts or {}, deadly, []

    def finalists(self, configs):
        self.calls.append([config["a"] for config in configs])
        if any(config["a"] in self.deadly for config in configs):
            return [(config, Rejected(Reason.CRASH, "illegal access")) for config in configs]
        return [(config, Measured(ms, ms, ms, 40, {
            "round_ms": rounds(ms, 0.0005, config["a"]), "library_ms": 1.2, **self.facts.get(config["a"], {})}))
            for config in configs for ms in [self.medians[config["a"]]]]


def test_ties_are_broken_by_registers_then_portability():
    trials = [trial(i, 1.0) for i in range(4)]
    facts = {0: {"registers": 200, "smem_bytes": 1000}, 1: {"registers": 120, "smem_bytes": 200_000},
             2: {"registers": 120, "smem_bytes": 20_000}, 3: {"registers": 32, "smem_bytes": 0}}
    machine = Machine({0: 1.0, 1: 1.001, 2: 1.002, 3: 1.05}, facts)
    found = measure_finalists(machine, trials)
    assert [one.config["a"] for one in found] == [2, 1, 0, 3]
    assert [one.tie for one in found] == [True, True, True, False]
    assert found[0].library == pytest.approx(1.2 / 1.002)
    row = found[0].as_json()
    assert row["registers"] == 120 and row["why"] and row["library"] == found[0].library


def test_recorded_values_break_no_ties():
    """They were not compared round by round: the fastest wins, whatever its registers."""
    class Replay(Machine):
        def finalists(self, configs):
            return [(config, Measured(self.medians[config["a"]], 1.0, 1.0, 20, self.facts[config["a"]])) for config in configs]

    facts = {0: {"registers": 200}, 1: {"registers": 32}}
    found = measure_finalists(Replay({0: 1.0, 1: 1.001}, facts), [trial(0, 1.0), trial(1, 1.001)])
    assert [one.config["a"] for one in found] == [0, 1] and found[1].tie


def test_a_configuration_that_lost_its_race_is_no_finalist():
    trials = [trial(0, 1.0), trial(1, 0.9, ended="raced"), trial(2, 1.05), trial(3, 2.0)]
    assert choose_finalists(trials, {"a": 3}) == [{"a": 0}, {"a": 2}, {"a": 3}]


def test_what_the_cache_serves_is_measured_beside_them_and_wins_only_where_it_was_tried():
    machine = Machine({0: 1.0, 1: 1.05, 7: 0.9})
    found = measure_finalists(machine, [trial(0, 1.0), trial(1, 1.05)], in_force={"a": 7})
    assert machine.calls == [[0, 1, 7]] and [(one.config["a"], one.tie) for one in found] == [(0, False), (1, False), (7, True)]
    assert measure_finalists(machine, [trial(0, 1.0), trial(7, 1.2)], in_force={"a": 7})[0].config == {"a": 7}
    assert machine.calls[-1] == [0, 7], "too slow when it was tried, and measured again all the same"
    assert measure_finalists(machine, [], in_force={"a": 7}) == []


def test_one_that_kills_the_session_does_not_take_the_others_along():
    machine = Machine({0: 1.0, 1: 1.001, 2: 1.03}, deadly={1})
    found = measure_finalists(machine, [trial(0, 1.0), trial(1, 1.0), trial(2, 1.03)])
    assert [one.config["a"] for one in found] == [0, 2, 1]
    assert isinstance(found[-1].outcome, Rejected) and found[-1].as_json()["reason"] == "crash"
    assert machine.calls[-1] == [0, 2]


def test_nothing_measured_means_no_finalists():
    assert measure_finalists(Machine({}), [Trial(0, {"a": 0}, Rejected(Reason.COMPILE))]) == []
