"""What a comparison of this noise is worth: its false-alarm rate and the smallest slowdown it shows, from A/A history.

Runs of identical code are split by chance into a "baseline" and a "candidate" and judged with the gate's own interval.
Scaling the candidate's samples by 1 + d scales all pairs' ratios, so each split has one smallest d that it would call
SLOWER; the 95 % quantile of those is the detectable slowdown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.distributions import cutoff
from tuner.gate.stats.noise import resampled_ratios, residuals
from tuner.gate.stats.plan import METRICS
from tuner.gate.stats.results import LENIENCE
from tuner.gate.stats.rule import Rule
from tuner.gate.stats.runs import KernelRuns
from tuner.gate.stats.sides import make_side

Floats = NDArray[np.float64]

POWER = 0.95                # of the comparisons call the detectable slowdown SLOWER
FEWEST_RUNS = 5             # of identical code that say anything about its noise


@dataclass(frozen=True)
class Calibration:
    """One kernel on one machine, compared with itself."""

    key: str
    op: str
    shape: Any
    config: Any
    runs: int
    cv: float | None                    # of run medians, as a fraction (0.004 is 0.4 %)
    cv_p95: float | None
    slower: float | None                # share of comparisons of identical code that end SLOWER; None: too few runs
    ambiguous: float | None             # … that end AMBIGUOUS, before any re-run
    detectable: float | None            # smallest slowdown called SLOWER in 95 % of comparisons: 0.034 is 3.4 %
    says: str
    draws: int = 0                      # comparisons that were made: fewer than asked for where each has many pairs of runs


def calibrate(runs: Sequence[KernelRuns], rule: Rule | None = None, *, kernels: int | None = None, baseline_runs: int = 10,
              candidate_runs: int = 5, draws: int = 1000, seed: int = 0) -> list[Calibration]:
    """Compare identical runs with each other, kernel by kernel: false alarms, and the slowdown that is seen.

    `kernels`: of the suite whose correction counts (None: all of `runs`).

    Splits are drawn without repetition where there are enough runs for one, else with repetition from what is there.
    """
    rule = rule or Rule()
    level = rule.alpha / (kernels or max(1, len(runs)))
    return [_calibrate(kernel, rule, level, baseline_runs, candidate_runs, draws, seed) for kernel in runs]


def comparison_power(baseline: Floats, candidate: Floats, rule: Rule, level: float) -> tuple[float | None, float | None]:
    """Return (false alarms, detectable slowdown) of a comparison's p50; None: too few runs to say.

    False alarms: the baseline's own runs against each other. Detectable: both builds' runs about their own medians.
    """
    n_c, n_b = len(candidate), len(baseline)
    if n_b < FEWEST_RUNS or not n_c:
        return None, None
    own = np.log(baseline / np.median(baseline))
    alarms = float(np.mean(slower_mask(resampled_ratios(own, n_c, n_b), n_c, n_b, level, rule.floor, rule.target)))
    return alarms, _detectable(resampled_ratios(residuals(baseline, candidate), n_c, n_b), n_c, n_b, level, rule)


def _calibrate(kernel: KernelRuns, rule: Rule, level: float, n_b: int, n_c: int, draws: int, seed: int) -> Calibration:
    ready = make_side([kernel])
    runs = len(ready.runs)
    if runs < FEWEST_RUNS:
        return Calibration(kernel.key, kernel.op, kernel.shape, kernel.config, runs, None, None, None, None, None,
                           f"{runs} runs of identical code say too little: {FEWEST_RUNS} or more are needed")
    again = runs < n_b + n_c
    pairs = resampled_ratios(np.log(ready.p50), n_c, n_b, draws, seed, again)
    called = slower_mask(pairs, n_c, n_b, level, rule.floor, rule.target)
    unsure = ~called & ~pass_mask(pairs, n_c, n_b, rule.floor, rule.target, rule.beta)
    detectable = _detectable(pairs, n_c, n_b, level, rule)
    if ready.p95 is not None:
        tails = resampled_ratios(np.log(ready.p95), n_c, n_b, draws, seed, again)
        # each at half its level: safe beside the joint test of the gate
        called |= slower_mask(tails, n_c, n_b, level / METRICS, rule.floor_p95, rule.target_p95)
        unsure = (unsure | ~pass_mask(tails, n_c, n_b, rule.floor_p95, rule.target_p95, rule.beta)) & ~called
    cv, cv95 = _cv(ready.p50), None if ready.p95 is None else _cv(ready.p95)
    rates = float(np.mean(called)), float(np.mean(unsure))
    says = (f"{runs} runs of identical code vary by {cv * 100:.2g} %; {n_c} against {n_b} of them end SLOWER in "
            f"{rates[0] * 100:.2g} % and AMBIGUOUS in {rates[1] * 100:.2g} % of {len(pairs):,} comparisons; ")
    says += "so few runs can call nothing SLOWER" if detectable is None else \
        f"a slowdown of {detectable * 100:.2g} % or more is called SLOWER in {POWER:.0%} of them"
    return Calibration(kernel.key, kernel.op, kernel.shape, kernel.config, runs, cv, cv95, *rates, detectable, says, len(pairs))


def slower_mask(pairs: Floats, n_c: int, n_b: int, level: float, floor: float, target: float) -> NDArray[np.bool_]:
    """Return which comparisons, a row of sorted ratios each, one number calls SLOWER, shape (comparisons,)."""
    k = cutoff(n_c, n_b, level)
    if not k:
        return np.zeros(len(pairs), dtype=bool)
    result: NDArray[np.bool_] = (pairs[:, k - 1] > 1) & (np.median(pairs, axis=1) > 1 + floor) & (pairs[:, -k] >= 1 + target)
    return result


def pass_mask(pairs: Floats, n_c: int, n_b: int, floor: float, target: float, beta: float) -> NDArray[np.bool_]:
    """Return which comparisons pass, shape (comparisons,).

    By the exact bound, or nothing seen above the floor by an estimate that would rarely miss the target (as `decide` has it).
    """
    high = cutoff(n_c, n_b, beta)
    estimates = np.median(pairs, axis=1)
    exact = (pairs[:, -high] < 1 + target) if high else np.zeros(len(pairs), dtype=bool)
    spread = float(np.quantile(estimates, LENIENCE * beta))
    result: NDArray[np.bool_] = exact | ((estimates <= 1 + floor) & (estimates / spread < 1 + target))
    return result


def _detectable(pairs: Floats, n_c: int, n_b: int, level: float, rule: Rule) -> float | None:
    high = cutoff(n_c, n_b, level)
    low = cutoff(n_c, n_b, level / METRICS) or high        # the p95 is looked at too wherever the runs allow it
    if not high:
        return None
    conditions = 1 / pairs[:, low - 1], (1 + rule.floor) / np.median(pairs, axis=1), (1 + rule.target) / pairs[:, -high]
    needed = np.max(conditions, axis=0)
    # rounded up to hundredths of a per cent: runs that tie are not told apart by just so much
    return max(rule.floor, math.ceil((float(np.quantile(needed, POWER)) - 1) * 1e4 + 1e-6) / 1e4)


def _cv(values: Floats) -> float:
    return float(np.std(values, ddof=1) / np.mean(values))
