"""Sampling with a timer that plays back what it is told: when it ends, what is thrown away, what a race saves."""

import itertools
import math

import pytest

from tests.tuner.measure.chosen import WITHOUT_TORCH

pytest.importorskip("torch", reason=WITHOUT_TORCH)
pytest.importorskip("triton", reason=WITHOUT_TORCH)

from tuner.tuning.measure import timing
from tuner.tuning.measure.policy import Policy
from tuner.tuning.measure.statistics import Noise, Race

pytestmark = pytest.mark.torch


class Scripted:
    """Plays `values` (ms) in a circle, and one reading per batch."""

    def __init__(self, values, readings=({},)):
        self.values, self.readings, self.at, self.batches = values, itertools.cycle(readings), 0, []

    def samples(self, launch, count):
        taken = [self.values[(self.at + i) % len(self.values)] for i in range(count)]
        self.at += count
        self.batches.append(count)
        self.now = next(self.readings)
        return taken

    def about(self):
        return {}

    def reading(self):
        return self.now


def measure(timer, race=None, **policy):
    pauses = []
    sampler = timing.Sampler(timer, Policy(warmup=0, **policy), pauses.append)
    times = sampler.measure(lambda: None, race)
    return times, pauses


@pytest.mark.parametrize(("values", "n", "ended"), [
    ([1.0], 10, "settled"), ([1.0, 2.0], 50, "max_samples"), ([200.0], 5, "max_ms")])
def test_sampling_stops_when_settled_or_spent(values, n, ended):
    times, _ = measure(Scripted(values))
    assert (len(times.samples_ms), times.ended) == (n, ended)
    assert math.isclose(timing.Times((3.0, 1.0, 2.0), "").as_json()["p90_ms"], 2.8)


def test_a_slow_configuration_leaves_the_race_after_one_sample_and_says_what_that_saved():
    noise = Noise()
    noise.learn([1.0] * 10)
    race = Race(1.0, noise, 0.01)
    times, _ = measure(Scripted([9.0]), race)
    assert times.ended == "raced" and len(times.samples_ms) == 1 and times.lost.probability <= 0.01
    facts = timing.race_savings(times, race, Policy())
    assert facts["samples"] == 1 and facts["instead_of"] == 10 and facts["incumbent_ms"] == 1.0
    assert facts["saved_s"] == pytest.approx(9 * times.sampling_s, abs=1e-6)


def test_what_would_have_been_cut_short_by_its_limit_is_not_counted_as_saved():
    noise = Noise()
    noise.learn([1.0] * 10)
    race = Race(1.0, noise, 0.01)
    times, _ = measure(Scripted([400.0]), race)
    assert timing.race_savings(times, race, Policy())["instead_of"] == 5           # max_ms ends it at its first batch


def test_an_equal_configuration_is_measured_to_its_end_in_the_looks_of_the_race():
    timer = Scripted([1.0])
    times, _ = measure(timer, Race(1.0, Noise(), 0.01))
    assert times.ended == "settled" and times.lost is None
    assert timer.batches[0] == 1 and sum(timer.batches) >= 10


def test_throttled_batches_are_taken_again_and_reported():
    hot = {"sm_clock_mhz": 1900, "temperature_c": 90, "throttle": ["thermal (hardware)"]}
    fine = {"sm_clock_mhz": 1950, "temperature_c": 70, "throttle": ["power cap"]}
    times, pauses = measure(Scripted([1.0] * 5 + [3.0] * 5, [fine, hot]), min_samples=10)
    assert set(times.samples_ms) == {1.0} and times.ended == "settled"
    throttled = times.facts["throttled"]
    assert throttled["discarded"] == 5 and throttled["reasons"] == ["thermal (hardware)"] and not throttled["kept"]
    assert pauses == [0.25]
    clocks = times.facts["clocks"]
    assert clocks["temperature_c"] == {"min": 70, "median": 70, "max": 90} and clocks["readings"] == 3
    assert clocks["throttle"] == ["power cap", "thermal (hardware)"]


def test_a_gpu_that_never_cools_is_measured_all_the_same_and_says_so():
    hot = {"sm_clock_mhz": 1200, "throttle": ["power brake"]}
    times, pauses = measure(Scripted([1.0], [hot]))
    assert len(pauses) == 4 and len(times.samples_ms) == 10
    assert times.facts["throttled"] == {"discarded": 20, "reasons": ["power brake"], "kept": True}


def test_a_clock_far_below_the_sessions_highest_does_not_count():
    readings = [{"sm_clock_mhz": 1980}, {"sm_clock_mhz": 1200}, {"sm_clock_mhz": 1970}]
    times, _ = measure(Scripted([1.0] * 5 + [1.6] * 5 + [1.0] * 5, readings))
    assert set(times.samples_ms) == {1.0}
    assert times.facts["throttled"]["reasons"] == ["SM clock below 75% of the session's highest"]


def test_a_power_cap_is_reported_and_its_samples_count():
    """Even at a clock that would not count without it: a large product runs at 1.3 of 1.98 GHz on an H200."""
    readings = [{"sm_clock_mhz": 1980, "throttle": []}, {"sm_clock_mhz": 1300, "throttle": ["power cap"]}]
    times, pauses = measure(Scripted([1.0], readings))
    assert not pauses and "throttled" not in times.facts and times.facts["clocks"]["throttle"] == ["power cap"]


def test_interleaved_rounds_pair_up_and_turn_round():
    class Order(Scripted):
        def __init__(self):
            super().__init__([1.0])
            self.seen = []

        def samples(self, launch, count):
            self.seen.append(launch())
            return [float(launch()) + self.seen.count(launch()) / 100] * count

        def reading(self):
            return {}

    timer = Order()
    taken = timing.Sampler(timer, Policy(warmup=0, rounds=3)).measure_in_turn([lambda: 1, lambda: 2])
    assert timer.seen == [1, 2, 2, 1, 1, 2]
    assert [times.round_ms for times in taken] == [(1.01, 1.02, 1.03), (2.01, 2.02, 2.03)]
    assert all(len(times.samples_ms) == 15 and times.facts["rounds"] == 3 for times in taken)


@pytest.mark.parametrize(("given", "words"), [
    ({"kind": "hot"}, "kind must be one of"), ({"risk": 0.9}, "risk must be"), ({"rounds": 0}, "at least 1"),
    ({"retries": 3}, "there is no 'retries'"), ({"batch": "5"}, "batch must be of type int"), ({"warmup": True}, "warmup must be")])
def test_a_policy_that_makes_no_sense_is_refused_with_words(given, words):
    with pytest.raises(ValueError, match=words):
        Policy.read(given)


def test_a_policy_is_recorded_whole():
    recorded = Policy.read({"kind": "graph", "max_ms": 100}).as_json()
    assert recorded["kind"] == "graph" and recorded["max_ms"] == 100.0 and recorded["risk"] == 0.01
    assert "graph of launches" in recorded["timer"]
