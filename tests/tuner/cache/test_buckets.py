"""Bucket policies: the grid, its edges, distances, and what may never be rounded."""

import math

import pytest

from tuner.cache.buckets import BUCKETS, STEPS, Buckets, bucket, bucket_distance, bucket_edges, off_centre


@pytest.mark.parametrize("steps", STEPS)
def test_each_value_falls_on_its_grid_and_stays_there(steps):
    policy = Buckets(steps_per_doubling=steps)
    for value in (*range(1, 700), 4095, 4096, 5793, 11008, 131071):
        grid = policy.of(value)
        assert policy.on_grid(grid), (steps, value, grid)
        if value > 16 and steps:
            apart = abs(math.log2(grid / value))
            assert apart <= 0.5 / steps + 0.05, (steps, value, grid)      # half a step, and what rounding to whole numbers adds
        else:
            assert grid == value


@pytest.mark.parametrize("steps", [1.0, 2.0, 4.0, 0.5])
def test_the_edges_of_a_bucket_are_in_it_and_the_next_ones_are_not(steps):
    policy = Buckets(steps_per_doubling=steps)
    for value in (50, 96, 1024, 4100, 11008):
        low, high = bucket_edges(value, policy)
        assert low <= value <= high
        assert policy.of(low) == policy.of(high) == policy.of(value)
        assert policy.of(high + 1) != policy.of(value)
        assert low - 1 <= policy.exact_up_to or policy.of(low - 1) != policy.of(value)


def test_a_dimension_that_the_code_depends_on_is_never_rounded_nor_bridged():
    assert bucket({"D": 80, "N": 500}, ["D"]) == "D=80 N=512"
    assert bucket_distance("D=64 N=512", "D=128 N=512", ["D"]) is None
    assert bucket_distance("D=64 N=512", "D=64 N=2048", ["D"]) == 2


def test_policies_change_what_shares_a_bucket():
    assert bucket({"M": 2900}) == bucket({"M": 5700}) == "M=4096"
    half = Buckets(steps_per_doubling=2)
    assert bucket({"M": 2900}, (), half) == "M=2896" and bucket({"M": 5700}, (), half) == "M=5793"
    every = Buckets(steps_per_doubling=0)
    assert bucket({"M": 2900}, (), every) == "M=2900"
    assert bucket_distance("M=2900", "M=5800", (), every) == 1


def test_a_policy_is_data_and_says_what_it_does():
    assert Buckets.from_json(BUCKETS.as_json()) == BUCKETS
    assert "nearest power of two" in BUCKETS.text and "4 powers of two away" in BUCKETS.text
    assert "its own bucket only" in Buckets(max_distance=0).text
    for wrong in ({"steps_per_doubling": 3}, {"exact_up_to": -1}, {"max_distance": 41}):
        with pytest.raises(ValueError):
            Buckets(**wrong)


def test_off_centre():
    assert off_centre({"M": 4096, "N": 2048}, "M=4096 N=2048") == 0
    assert off_centre({"M": 2048 * 1.0, "N": 2048}, "M=4096 N=2048") == 1
