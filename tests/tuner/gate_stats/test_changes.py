"""Change points on recorded runs: soon found, rarely false, exact where exactness is claimed."""

import math

import numpy as np
import pytest
from scipy import stats

from tests.public_timing import medians_us, samples
from tests.recordings import timing_runs
from tuner.gate.stats import changes
from tuner.gate.stats.changes import change_points, two_sided_p
from tuner.gate.stats.runs import KernelRuns, Run

RUNS = 5
FILES = sorted(medians_us())


def drawn(rng, file, builds, replace=True):
    return rng.choice(medians_us()[file], (builds, RUNS), replace=replace)


def first_found(series, at):
    """Builds after the step (counted from 1) until it is told; None: not within 8."""
    for after in range(1, 9):
        if any(abs(one.index - at) <= 1 for one in change_points(series[:at + after])):
            return after
    return None


@pytest.mark.slow
@pytest.mark.parametrize(("file", "step"), [
    pytest.param(file, step, marks=[pytest.mark.deep_only] * ((at + place) % 2))        # of each file one in `make test`
    for at, file in enumerate(FILES) for place, step in enumerate((1.02, 1 / 1.02))])
def test_a_step_of_2_percent_is_found_within_8_builds(file, step):
    rng, held = np.random.default_rng(11), 0
    for _ in range(12):
        at = int(rng.integers(2, 60))
        series = drawn(rng, file, at + 8)
        series[at:] *= step
        assert first_found(list(series), at) in (2, 3)
        (one,) = change_points(list(series))
        assert one.index == at and one.good == at - 1 and one.bad == at
        assert one.low < one.ratio < one.high and one.ratio == pytest.approx(step, abs=3e-4)
        assert one.slower == (step > 1) and one.p_value < 1e-5
        held += one.low <= step <= one.high
    assert held >= 9                                    # an interval of 95 %, of twelve


@pytest.mark.parametrize("file", FILES)
def test_identical_builds_have_no_change(file):
    """1,000 builds drawn at random, and the 200 that the file holds in the order of time (what drifts with time is in it)."""
    rng = np.random.default_rng(5)
    assert change_points(list(drawn(rng, file, 1000))) == []
    assert change_points(list(medians_us()[file].reshape(-1, RUNS))) == []


@pytest.mark.slow
@pytest.mark.parametrize("file", [FILES[0], pytest.param(FILES[1], marks=pytest.mark.deep_only)])
def test_nothing_false_is_told_as_builds_arrive(file):
    series = list(drawn(np.random.default_rng(7), file, 150))
    assert not any(change_points(series[:so_far]) for so_far in range(1, 151))


@pytest.mark.slow
def test_recorded_kernels_on_free_clocks_have_no_change():
    """The 13 configurations of timing_runs, one of them with real outlier runs: 300 builds of five of their 24 runs each."""
    rng, by_config = np.random.default_rng(1), {}
    for (_, op, config), line in timing_runs().items():
        by_config.setdefault((op, config), []).append(np.median(line["us"]))
    assert len(by_config) == 13
    told = [one for runs in by_config.values()
            for one in change_points([rng.choice(runs, RUNS, replace=False) for _ in range(300)])]
    assert told == []


def test_one_bad_build_and_one_bad_run_are_no_change():
    series = list(drawn(np.random.default_rng(2), FILES[0], 40))
    series[20] = series[20] * 1.05                     # a session that went wrong
    assert not any(change_points(series[:so_far]) for so_far in range(19, 26))          # nor while it is the newest
    for place in range(5, 35, 3):
        series[place] = [*series[place][:4], series[place][4] * 1.2]
    assert change_points(series) == []


def test_two_steps_and_their_sizes():
    series = list(drawn(np.random.default_rng(3), FILES[2], 60))
    for place in range(20, 60):
        series[place] = series[place] * (1.04 if place < 45 else 1.01)
    up, down = change_points(series)
    assert (up.index, down.index) == (20, 45)
    assert up.ratio == pytest.approx(1.04, abs=2e-4) and down.ratio == pytest.approx(1.01 / 1.04, abs=2e-4)
    assert (up.runs_before, up.runs_after) == (40, 40)
    assert up.after_us / up.before_us == pytest.approx(1.04, abs=5e-4)


def test_a_change_below_the_floor_is_not_told_however_sure():
    series = list(drawn(np.random.default_rng(4), FILES[0], 60))
    series[30:] = [build * 1.005 for build in series[30:]]           # 25 standard deviations of a run
    assert change_points(series) == []
    (one,) = change_points(series, floor=0.003)
    assert one.index == 30


def test_builds_that_were_not_measured_widen_the_range():
    series = list(drawn(np.random.default_rng(6), FILES[1], 30))
    series[15:] = [build * 1.03 for build in series[15:]]
    series[13], series[14], series[15] = [], [], []
    (one,) = change_points(series)
    assert (one.good, one.bad, one.index) == (12, 16, 16)


@pytest.mark.slow
def test_the_range_of_a_noisy_change_holds_the_truth():
    """Session noise of 1 % and a step of 2 %: the place is uncertain, and the range says so; at least 90 % hold it."""
    rng, held, wide, found = np.random.default_rng(8), 0, 0, 0
    for _ in range(60):
        series = [10 * math.exp(rng.normal() * 0.01) * np.exp(rng.normal(size=RUNS) * 0.003) * (1.02 if place >= 25 else 1.0)
                  for place in range(50)]
        for one in change_points(series):
            found += 1
            held += one.good < 25 <= one.bad
            wide += one.bad - one.good > 1
    assert found >= 40 and wide >= 10
    assert held >= 0.9 * found


def test_samples_runs_and_medians_say_the_same():
    rng = np.random.default_rng(9)
    rows = samples()[FILES[0]][rng.integers(0, 1000, (20, RUNS))]
    rows[10:] *= 1.03
    by_median = change_points(list(np.median(rows, axis=2)))
    as_runs = [KernelRuns("gemm", runs=[Run(str(number), us) for number, us in enumerate(build)]) for build in rows]
    assert by_median == change_points([list(build) for build in rows]) == change_points(as_runs)
    assert [one.index for one in by_median] == [10]


def test_the_rank_test_is_scipys_exact_one_and_stays_exact_with_ties():
    rng = np.random.default_rng(10)
    a, b = rng.normal(size=7), rng.normal(size=9)
    assert two_sided_p(a, b) == pytest.approx(stats.mannwhitneyu(a, b, method="exact").pvalue)
    ties = two_sided_p(np.array([1.0, 1, 1, 2, 2]), np.array([3.0, 3, 3, 3, 3]))
    assert ties == pytest.approx(2 / math.comb(10, 5))               # complete separation


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0, True, "12"])
def test_a_time_that_is_none_is_refused_with_its_place(bad):
    with pytest.raises(ValueError, match="build 3: a time is not a finite number above zero"):
        change_points([[1.0, 1.0]] * 3 + [[1.0, bad]])


@pytest.mark.parametrize("series", [[], [[1.0]], [[1.0], [2.0], [1.0]], [[], [], [], []], [[5.0]] * 50])
def test_too_little_or_too_equal_says_nothing(series):
    assert change_points(series) == []


def test_one_run_per_build_needs_more_builds():
    rng = np.random.default_rng(12)
    series = [[value] for value in rng.choice(medians_us()[FILES[0]], 40)]
    for place in range(20, 40):
        series[place] = [series[place][0] * 1.02]
    assert change_points(series[:24]) == []             # 20 and 4 runs: 1 in 10,626 at best
    assert [one.index for one in change_points(series)] == [20]


def all_segmentations(count):
    """Starts of segments of MIN_BUILDS builds and more, in every way."""
    yield []
    for last in range(changes.MIN_BUILDS, count - changes.MIN_BUILDS + 1):
        for before in all_segmentations(last):
            yield [*before, last]


@pytest.mark.parametrize("seed", range(12))
def test_no_other_segments_cost_less(seed):
    """Of all that there are."""
    rng = np.random.default_rng(seed)
    count, noise = int(rng.integers(4, 15)), 0.01
    medians = rng.normal(0, noise, count)
    for _ in range(seed % 4):
        medians[rng.integers(0, count):] += rng.normal(0, 0.04)

    def cost(starts):
        parts = np.split(medians, starts)
        return sum(((part - part.mean()) ** 2).sum() + 2 * np.log(count) * noise ** 2 for part in parts)

    found = changes.propose_changes(medians, noise)
    possible = list(all_segmentations(count))
    assert found in possible and cost(found) <= min(map(cost, possible)) + 1e-12
