"""Racing on raw samples that others recorded: most of the measuring time saved, the winner kept; and its two bounds."""

import math
import random
from pathlib import Path

import pytest

from bench.search.race_replay import load_samples, replay_race, run_duels
from tuner.tuning.measure.statistics import LOOKS, LostRace, Noise, Race, reference_ms

SPACES = sorted((Path(__file__).resolve().parents[2] / "data" / "public_spaces").glob("*.json.xz"))
RUNS = 12


def test_the_six_public_spaces_are_here():
    assert len(SPACES) == 6


@pytest.mark.slow
@pytest.mark.parametrize("path", [pytest.param(path, id=path.name.split(".")[0], marks=[pytest.mark.deep_only] * (at % 3 > 0))
                                  for at, path in enumerate(SPACES)])          # of three each: make test-deep takes all
def test_four_fifths_of_the_measuring_time_are_saved_and_no_winner_is_lost(path):
    """`python -m bench racing` has the long version."""
    samples = load_samples(path)
    runs = [replay_race(samples, seed) for seed in range(RUNS)]
    assert sum(run.saved for run in runs) / RUNS >= 0.80
    assert sum(run.lost for run in runs) == 0
    assert max(run.slower_by for run in runs) == 0
    lost, run = run_duels(samples, 1, 600)
    assert lost <= 0.01 * run + 2 * math.sqrt(0.01 * run)         # the stated risk, with two deviations of 600 draws


def test_without_its_margins_the_race_would_lose_what_is_faster(monkeypatch):
    """The check above can fail: dropped at the first sample above the incumbent, many a faster one is lost on the same data."""
    monkeypatch.setattr(Noise, "exceeds", lambda self, look, margin: 0.0)
    lost, run = run_duels(load_samples(SPACES[0]), 1, 600)
    assert lost > 0.1 * run


def test_one_sample_far_above_is_enough_and_a_close_one_never_loses():
    noise = Noise()
    for _ in range(10):
        noise.learn([1.0] * 20)
    far = Race(1.0, noise, 0.01)
    lost = far.lost([8.0])
    assert isinstance(lost, LostRace) and lost.samples == 1 and 0 < lost.probability <= 0.01
    close = Race(1.0, noise, 0.01)
    assert close.lost([1.2, 1.1, 0.999]) is None and close.next_look is None
    assert close.lost([1.2, 1.1, 0.999] + [5.0] * 40) is None


def test_a_noisy_session_needs_a_wider_margin():
    quiet, noisy = Noise(), Noise()
    for _ in range(20):
        quiet.learn([1.0] * 30)
        noisy.learn([1.9] + [1.0] * 29)
    assert Race(1.0, quiet, 0.01).lost([1.9]) is not None
    assert Race(1.0, noisy, 0.01).lost([1.9]) is None


def test_the_sign_bound_holds_without_knowing_the_noise():
    """Ten samples, all above: 2⁻¹⁰ × looks ≤ risk, whatever the margin."""
    noise = Noise()
    for _ in range(50):
        noise.learn([3.0, *[1.0] * 29])                    # the moments allow nothing at this margin
    race = Race(1.0, noise, 0.01)
    lost = race.lost([1.001] * 12)
    assert lost is not None and lost.samples == 12 and lost.probability == pytest.approx(len(LOOKS) / 2 ** 12)


def test_false_drops_stay_under_the_risk_for_heavy_tails():
    """Identical configurations with log-normal noise and 5 % outliers of up to twice the time: 4,000 races."""
    rng = random.Random(7)

    def run() -> list[float]:
        return [math.exp(rng.gauss(0, 0.02)) * (rng.uniform(1, 2) if rng.random() < 0.05 else 1) for _ in range(30)]

    noise = Noise()
    for _ in range(15):
        noise.learn(run())
    lost = 0
    for _ in range(4000):
        incumbent = run()
        lost += Race(reference_ms(incumbent, sorted(incumbent)[15]), noise, 0.01).lost(run()) is not None
    assert lost <= 40


def test_the_incumbent_is_taken_at_the_upper_end_of_its_interval():
    assert reference_ms([], 2.0) == 2.0
    assert reference_ms([1.0, 1.0, 1.0, 1.5], 1.0) == 1.5
    assert reference_ms([float(i) for i in range(1, 21)], 10.5) == 15.0


@pytest.mark.parametrize("median", [0.0, -1.0, math.nan])
def test_an_incumbent_without_a_time_is_refused(median):
    with pytest.raises(ValueError, match="positive"):
        Race(median, Noise(), 0.01)
