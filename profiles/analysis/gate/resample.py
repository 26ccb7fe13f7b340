"""Comparisons of a kernel with itself, drawn from the runs that are there: how far an estimate moves when nothing changed."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DRAWS = 200                 # beside a verdict
MOST_PAIRS = 50_000         # of runs, above which one look at the residuals is as good as many draws of them
MOST_RATIOS = 1_000_000     # of all draws; with many runs fewer draws do


def residuals(*sides: Floats) -> Floats:
    """Logarithms of each side's runs about their own median, made wider by what the medians took: what noise alone does."""
    logs = np.concatenate([np.log(each / np.median(each)) for each in sides])
    widened: Floats = logs * (len(logs) / max(1, len(logs) - len(sides))) ** 0.5
    return widened


def ratios(logs: Floats, candidates: int, baselines: int, draws: int = DRAWS, seed: int = 0, again: bool = True) -> Floats:
    """(draws, candidates × baselines) ratios of random splits of `logs` into two builds, sorted along the second axis.

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
