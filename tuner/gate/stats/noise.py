"""What the noise of a kernel's own runs can do: resampled comparisons with itself, and a candidate that is only noisier.

The rank test asks whether the runs of both builds are alike. Runs ten times as wide about the same middle are not, and five of
them all lie above a quiet baseline once in 32 comparisons, whatever the level that is asked for. So where the candidate's spread is
`WIDER` times the baseline's, the slowdown must also stand out from the candidate's own spread: Student's t of its runs against the
baseline's level, at the kernel's level. Spreads are median absolute deviations: a single bad run makes no build noisy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.distributions import rank_sum_p, t_quantile, t_tail

# Drift: a kernel that got slower over many builds, none of which was slow enough for a gate. Compared with a pinned baseline.
#
# The builds next to the pinned one against the newest ones. Told only where the newest are surely slower by more than `floor`:
# the exact rank test on fresh runs and Student's t on builds' medians must both reject that the ratio is `floor` or less, and
# the rise must be no single step. With no drift the true ratio is 1, so that the test's own risk is the chance that noise makes
# up the floor.

ENDS = 5                    # builds on each side: one build alone may have had a bad session
LEAST_BUILDS = 2 * ENDS
MOST_RUNS = 40              # of a side
ALPHA = 1e-3                # of each look at one series
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Drift:
    """Newest builds against the pinned ones; ratios of times, 1.03 is 3 % slower."""

    ratio: float
    low: float              # lower end: by so much at least, with the risk ALPHA
    high: float
    p_value: float
    before_us: float
    after_us: float
    per_build: float        # trend: 0.001 is 0.1 % a build


def find_drift(series: Sequence[Sequence[float]], floor: float, alpha: float = ALPHA) -> Drift | None:
    """Return the drift of a series of run medians (µs) of builds, the pinned ones first; None where there is none.

    Builds without runs are left out by the caller.
    """
    if len(series) < LEAST_BUILDS:
        return None
    if _log_medians(series[-ENDS:]).mean() - _log_medians(series[:ENDS]).mean() <= math.log1p(floor):
        return None                             # most looks end here
    medians = _log_medians(series)
    old, new = _runs(series[:ENDS]), _runs(series[-ENDS:])
    p = max(rank_sum_p(new - math.log1p(floor), old), _builds_p(medians[:ENDS], medians[-ENDS:], floor))
    if p > alpha or _is_one_step(medians):
        return None
    shift, error = float(np.median(new[:, None] - old[None, :])), _standard_error(medians[:ENDS], medians[-ENDS:])
    slope = float(np.polyfit(np.arange(len(medians)), medians, 1)[0])
    return Drift(math.exp(shift), math.exp(shift - 2 * error), math.exp(shift + 2 * error), p, float(np.exp(np.median(old))),
                 float(np.exp(np.median(new))), math.expm1(slope))


def _log_medians(builds: Sequence[Sequence[float]]) -> Floats:
    medians: Floats = np.log(np.array([np.median(build) for build in builds], dtype=np.float64))
    return medians


def _runs(builds: Sequence[Sequence[float]]) -> Floats:
    count = max(1, MOST_RUNS // len(builds))
    times: Floats = np.log(np.array([us for build in builds for us in build[:count]], dtype=np.float64))
    return times


def _standard_error(a: Floats, b: Floats) -> float:
    return math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / len(a))


def _builds_p(a: Floats, b: Floats, floor: float) -> float:
    """One-sided p of Student's t on builds' medians: runs of one build share a session."""
    error = max(_standard_error(a, b), 1e-9)
    return float(t_tail((b.mean() - a.mean() - math.log1p(floor)) / error, 2 * ENDS - 2))


def _is_one_step(medians: Floats) -> bool:
    """Whether one step explains the medians better than a line does: then one build did it, and the series tells of it."""
    places = np.arange(len(medians))
    line = medians - np.polyval(np.polyfit(places, medians, 1), places)
    total, count = float(((medians - medians.mean()) ** 2).sum()), len(medians)
    ends = np.arange(1, count)
    sums = np.cumsum(medians - medians.mean())[:-1]
    step = total - float((sums ** 2 * count / (ends * (count - ends))).max())
    return step < float((line ** 2).sum())


DRAWS = 200                 # beside a verdict
MOST_PAIRS = 50_000         # of runs, above which one look at the residuals is as good as many draws of them
MOST_RATIOS = 1_000_000     # of all draws; with many runs fewer draws do


def residuals(*sides: Floats) -> Floats:
    """Return logarithms of each side's runs about their own median, shape (all runs,).

    Made wider by what the medians took: what noise alone does.
    """
    logs = np.concatenate([np.log(side / np.median(side)) for side in sides])
    widened: Floats = logs * (len(logs) / max(1, len(logs) - len(sides))) ** 0.5
    return widened


def resampled_ratios(logs: Floats, candidates: int, baselines: int, draws: int = DRAWS, seed: int = 0,
                     again: bool = True) -> Floats:
    """Return ratios of random splits of `logs` into two builds, shape (draws, candidates × baselines).

    Sorted along the second axis.

    `again`: with repetition. Fewer draws where a split has many pairs. The same seed makes the same splits, in whatever order the
    runs come.
    """
    pairs_each = candidates * baselines
    draws = 1 if pairs_each > MOST_PAIRS else min(draws, max(20, MOST_RATIOS // pairs_each))
    chosen = np.sort(logs)[_draws(len(logs), candidates + baselines, draws, seed, again)]
    pairs = (chosen[:, :candidates, None] - chosen[:, None, candidates:]).reshape(draws, -1)
    result: Floats = np.exp(np.sort(pairs, axis=1))
    return result


@lru_cache(maxsize=32)
def _draws(runs: int, size: int, draws: int, seed: int, again: bool) -> NDArray[np.int64]:
    generator = np.random.default_rng(seed)
    if again:
        return generator.integers(0, runs, (draws, size))
    return np.argsort(generator.random((draws, runs)), axis=1)[:, :size]


WIDER = 3.0                 # times as much do the candidate's runs differ; identical normal runs, 5 against 10, seldom do
NORMAL = 1.4826             # of the median absolute deviation to the standard deviation


def why_only_noisier(candidate: Floats, baseline: Floats, ratio: float, level: float) -> str:
    """Return why a slowdown by `ratio` is not proven by runs as noisy as these; "" where it is."""
    own, other = _spread(candidate), _spread(baseline)
    if len(candidate) < 2 or own <= WIDER * other:
        return ""
    needed = t_quantile(1 - level, len(candidate) - 1) * own / len(candidate) ** 0.5
    if np.log(ratio) > needed:
        return ""
    return (f"the candidate's runs differ by {own * 100:.2g} % and the baseline's by {other * 100:.2g} %, so it may only be "
            "noisier, not slower")


def _spread(values: Floats) -> float:
    """Standard deviation as a fraction; n / (n − 0.8) for few runs (Croux and Rousseeuw, 1992)."""
    logs = np.log(values)
    return NORMAL * float(np.median(np.abs(logs - np.median(logs)))) * len(values) / max(len(values) - 0.8, 0.2)


# ---- complete separation by far more than the noise ----

LARGE = 1.25                # times lie between the nearest runs of both builds
FEWEST_SPREAD = 8           # runs of both builds that say how far a kernel's runs lie apart
LEAST_SPREAD = 0.005        # of a kernel's runs that is believed: few runs may agree by chance, or read one step of a timer


def separated_p(slower: Floats, faster: Floats, known: Floats | None = None) -> float:
    """Return p of runs that are completely apart, one-sided, by Student's t of their logarithms with one spread; 1 of others.

    An exact test of 5 against 10 runs says no more than 1 in 3,003 of a kernel that takes twice as long. `known`: residuals of
    runs of an earlier level of the kernel, as logarithms, which say more of its spread. The larger of the spreads counts.
    """
    free = len(slower) + len(faster) - 2
    if min(len(slower), len(faster)) < 3 or slower.min() <= faster.max():
        return 1.0
    high, low = np.log(slower), np.log(faster)
    squares = float(((high - high.mean()) ** 2).sum() + ((low - low.mean()) ** 2).sum())
    variance = max(squares / free, float(high.var(ddof=1)), float(low.var(ddof=1)), LEAST_SPREAD**2)
    if known is not None and len(known) > 1:
        more = len(known) - 1
        variance, free = max(variance, (squares + float((known**2).sum())) / (free + more)), free + more
    error = math.sqrt(variance * (1 / len(high) + 1 / len(low)))
    return t_tail(float(high.mean() - low.mean()) / error, free)


def two_speeds_p(slower: int, faster: int) -> float:
    """Return how often so many runs of one build at random speeds are completely apart, at worst: two speeds, one for each side.

    slower, faster: runs. aᵃ bᵇ / (a + b)ᵃ⁺ᵇ, the largest over the share of slow runs; Student's t knows nothing of it.
    """
    runs = slower + faster
    return (slower / runs) ** slower * (faster / runs) ** faster if slower and faster else 1.0


def is_far_apart(slower: Floats, faster: Floats) -> bool:
    """Return whether the nearest runs of both builds lie LARGE apart."""
    return bool(slower.min() >= LARGE * faster.max())
