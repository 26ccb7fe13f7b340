"""The guard against the default: intervals that hold what they promise, and verdicts."""

import math
import random

import pytest

from tuner.cache.default_check import Verdict, check_default, median_interval


@pytest.mark.parametrize(("n", "places"), [(5, None), (6, (0, 5)), (8, (0, 7)), (9, (1, 7)), (20, (5, 14)), (50, (17, 32))])
def test_ranks_of_the_interval_are_those_of_the_binomial(n, places):
    """Against the table of the sign test (Conover, table A3: n = 20 gives ranks 6 and 15, n = 50 ranks 18 and 33)."""
    assert median_interval(range(n)) == places


def test_the_interval_holds_the_median_as_often_as_it_says():
    rng = random.Random(5)
    held = sum(low <= 0 <= high for low, high in (
        median_interval([rng.expovariate(1) - math.log(2) for _ in range(25)]) for _ in range(2000)))
    assert 0.95 <= held / 2000 <= 0.985


def samples(rng, ms, n=50, spread=0.01):
    return {"median_ms": ms, "facts": {"samples_ms": [ms * rng.lognormvariate(0, spread) for _ in range(n)]}}


def test_identical_code_is_called_faster_in_few_of_many():
    rng = random.Random(1)
    verdicts = [check_default(samples(rng, 1.0), samples(rng, 1.0)).verdict for _ in range(1000)]
    assert verdicts.count(Verdict.FASTER) + verdicts.count(Verdict.SLOWER) <= 50
    faster = [check_default(samples(rng, 1.0), samples(rng, 1.03)).verdict for _ in range(200)]
    assert faster.count(Verdict.FASTER) >= 198


def test_paired_rounds_see_what_drift_hides():
    """Both drift by 10 %; each round the winner is 2 % faster."""
    drift = [1 + 0.0125 * i for i in range(8)]
    winner = {"median_ms": 1.04, "round_ms": drift}
    default = {"median_ms": 1.06, "round_ms": [1.02 * ms for ms in drift]}
    found = check_default(winner, default)
    assert found.verdict == Verdict.FASTER and found.low == pytest.approx(1.02) and "paired" in found.how
    unpaired = check_default({"median_ms": 1.04, "samples_ms": drift}, {"median_ms": 1.06, "samples_ms": default["round_ms"]})
    assert unpaired.verdict == Verdict.EQUAL


@pytest.mark.parametrize(("default", "verdict", "gain"), [
    ({"median_ms": 1.2}, Verdict.FASTER, 1.2 / 1.01 - 1), ({"median_ms": 1.005}, Verdict.EQUAL, 0),
    ({"median_ms": 0.9}, Verdict.SLOWER, 0),
    (None, Verdict.UNMEASURED, None), ({"median_ms": 0}, Verdict.UNMEASURED, None), ({"median_ms": "1"}, Verdict.UNMEASURED, None)])
def test_where_only_medians_are_known(default, verdict, gain):
    found = check_default({"median_ms": 1.0}, default)
    assert found.verdict == verdict
    assert found.gain == (None if gain is None else pytest.approx(gain))
