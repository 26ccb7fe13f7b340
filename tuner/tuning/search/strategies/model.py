"""Bayesian optimisation: a Gaussian process of log time and its largest expected improvement.

What is guessed or was learned elsewhere is the process's mean. The trials decide how far it holds: its slope is
uncertain, and what it leaves unexplained is what the process learns (Jones et al., Efficient Global Optimization, 1998).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController

from tuner.tuning.search.strategies.ledger import Ledger
from tuner.tuning.search.strategies.prior import guess_slowness
from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge
from tuner.tuning.search.strategies.roles import Sizes, model_columns
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Trial

# A Gaussian process over the rows of a space, grown one observation at a time.
#
# Covariance: a product of Matérn 5/2 kernels over the columns, plus the sum of the same kernels over single columns, so
# that a column's own effect is learned from few trials (Duvenaud et al., Additive Gaussian Processes, NIPS 2011), plus a
# linear term along the prior. Hyperparameters: maximum a posteriori (Rasmussen and Williams, Gaussian Processes for
# Machine Learning, 5.4.1). Growing the Cholesky factor by a row makes a proposal over N rows after n trials cost O(nN).

Array = NDArray[np.float64]

ROOT5 = np.sqrt(5.0)
JITTER = 1e-9
# log of: product variance, additive variance, noise variance, then a length scale per column (columns lie in 0 … 1)
PRODUCT, ADDITIVE, NOISE, LENGTHS = 0, 1, 2, 3
CENTRE = {PRODUCT: np.log(0.2), ADDITIVE: np.log(0.2), NOISE: np.log(2e-3)}
WIDTH = {PRODUCT: 1.0, ADDITIVE: 1.0, NOISE: 1.0}
LENGTH_CENTRE, LENGTH_WIDTH = np.log(0.6), 1.0


def distances(x: Array, y: Array) -> Array:
    """Return how far columns are apart, 0 to 1: columns lie in 0 … 1, or count values that are alike or not (0, 1, 2, …)."""
    return np.asarray(np.minimum(np.abs(x - y), 1.0))


class Hyperparameters:
    """Log hyperparameters with their prior and their cost on observations."""

    def __init__(self, columns: int) -> None:
        self.centre = np.array([CENTRE[PRODUCT], CENTRE[ADDITIVE], CENTRE[NOISE], *[LENGTH_CENTRE] * columns])
        self.width = np.array([WIDTH[PRODUCT], WIDTH[ADDITIVE], WIDTH[NOISE], *[LENGTH_WIDTH] * columns])

    def fit(self, x: Array, y: Array, prior: Array, slope_variance: float, steps: int) -> Array:
        """Return the maximum a posteriori, searched from the centre: repeatable."""
        gaps = distances(x[:, None, :], x[None, :, :])
        line = slope_variance * np.outer(prior, prior) + 1.0          # and an unknown constant
        optimum = minimize(self._cost, self.centre, args=(gaps, y, line), jac=True, method="L-BFGS-B",
                           bounds=[(c - 4 * w, c + 4 * w) for c, w in zip(self.centre, self.width, strict=True)],
                           options={"maxiter": steps})
        return np.asarray(optimum.x)

    def _cost(self, theta: Array, gaps: Array, y: Array, line: Array) -> tuple[float, Array]:
        """Return the negative log posterior and its gradient."""
        n, columns = len(y), gaps.shape[2]
        scaled = gaps / np.exp(theta[LENGTHS:])
        squared = scaled**2
        distance = np.sqrt(squared.sum(axis=2))
        fall = np.exp(-ROOT5 * distance)
        product = np.exp(theta[PRODUCT]) * (1 + ROOT5 * distance + 5 / 3 * distance**2) * fall
        single_fall = np.exp(-ROOT5 * scaled)
        share = np.exp(theta[ADDITIVE]) / columns
        singles = share * (1 + ROOT5 * scaled + 5 / 3 * squared) * single_fall
        additive = singles.sum(axis=2)
        noise = np.exp(theta[NOISE])
        covariance = product + additive + line
        covariance[np.diag_indices(n)] += noise + JITTER
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse = solve_triangular(factor, np.eye(n), lower=True)
        precision = inverse.T @ inverse
        alpha = precision @ y
        off = (theta - self.centre) / self.width
        cost = 0.5 * y @ alpha + np.log(np.diag(factor)).sum() + 0.5 * off @ off
        outer = 0.5 * (np.outer(alpha, alpha) - precision)
        gradient = np.empty_like(theta)
        gradient[PRODUCT] = (outer * product).sum()
        gradient[ADDITIVE] = (outer * additive).sum()
        gradient[NOISE] = noise * np.trace(outer)
        steep = np.exp(theta[PRODUCT]) * 5 / 3 * (1 + ROOT5 * distance) * fall
        by_length = squared * (steep[:, :, None] + share * 5 / 3 * (1 + ROOT5 * scaled) * single_fall)
        gradient[LENGTHS:] = np.einsum("ij,ijk->k", outer, by_length)
        return float(cost), off / self.width - gradient


class Posterior:
    """Mean and variance at every row, given values at some rows."""

    def __init__(self, x: Array, prior: Array, theta: Array, slope_variance: float, room: int = 64) -> None:
        self._x, self._prior, self._slope = x, prior, slope_variance
        self._lengths = np.exp(theta[LENGTHS:])
        self._product, self._share = np.exp(theta[PRODUCT]), np.exp(theta[ADDITIVE]) / max(1, x.shape[1])
        self._noise = np.exp(theta[NOISE]) + JITTER
        self._scaled, self._unlike = x / self._lengths, 1 / self._lengths
        self._ahead: dict[int, Array] = {}               # covariances of rows that are not known yet
        self._whitened = np.empty((room, len(x)))        # L⁻¹ K(observed, every row)
        self._factor = np.zeros((room, room))            # L of K(observed, observed) + noise
        self.rows: list[int] = []
        self.variance = self._product + self._share * x.shape[1] + 1.0 + slope_variance * prior**2

    def _covariance(self, row: int) -> Array:
        """Return the covariance of `row` with every row, shape (N,)."""
        if (vector := self._ahead.get(row)) is not None:
            return vector
        gaps = np.minimum(np.abs(self._scaled - self._scaled[row]), self._unlike)
        squared = gaps**2
        distance = np.sqrt(squared.sum(axis=1))
        product = self._product * (1 + ROOT5 * distance + 5 / 3 * distance**2) * np.exp(-ROOT5 * distance)
        singles = ((1 + ROOT5 * gaps + 5 / 3 * squared) * np.exp(-ROOT5 * gaps)).sum(axis=1)
        return np.asarray(product + self._share * singles + 1.0 + self._slope * self._prior * self._prior[row])

    def add(self, row: int) -> None:
        """Condition on `row`."""
        n = len(self.rows)
        if n == len(self._factor):
            self._whitened = np.concatenate([self._whitened, np.empty_like(self._whitened)])
            grown = np.zeros((2 * n, 2 * n))
            grown[:n, :n] = self._factor
            self._factor = grown
        column = self._whitened[:n, row].copy()
        covariance = self._covariance(row)
        pivot = np.sqrt(max(covariance[row] + self._noise - column @ column, JITTER))
        self._factor[n, :n], self._factor[n, n] = column, pivot
        self._whitened[n] = (covariance - column @ self._whitened[:n]) / pivot
        self.variance = np.maximum(self.variance - self._whitened[n]**2, 1e-12)
        self.rows.append(row)

    def extend(self, x: Array, prior: float) -> None:
        """Append a row, with its columns of shape (columns,): it is expected as if it had been there from the beginning."""
        n, new = len(self.rows), len(self._x)
        self._ahead.clear()                              # they lack the new row
        self._x, self._prior = np.concatenate([self._x, x[None]]), np.append(self._prior, prior)
        self._scaled = np.concatenate([self._scaled, (x / self._lengths)[None]])
        self._whitened = np.concatenate([self._whitened, np.zeros((len(self._whitened), 1))], axis=1)
        own = self._product + self._share * len(x) + 1.0 + self._slope * prior**2
        if n:
            column = solve_triangular(self._factor[:n, :n], self._covariance(new)[self.rows], lower=True)
            self._whitened[:n, new] = column
            own = max(own - column @ column, 1e-12)
        self.variance = np.append(self.variance, own)

    def mean(self, y: Array) -> Array:
        """Return the mean at every row for values `y` at the added rows, shape (N,)."""
        n = len(self.rows)
        return np.asarray(solve_triangular(self._factor[:n, :n], y, lower=True) @ self._whitened[:n])

    def variance_with(self, pending: Sequence[int]) -> Array:
        """Return the variance at every row as if `pending` rows were known too, shape (N,).

        Taking their mean for their value leaves the mean as it is (Ginsbourger et al., 2010)."""
        if not pending:
            return np.asarray(self.variance)
        self._ahead = {row: self._covariance(row) for row in pending}      # asked for again until their times are known
        ahead = copy.copy(self)
        ahead.rows, ahead._whitened, ahead._factor = list(self.rows), self._whitened.copy(), self._factor.copy()
        for row in pending:
            ahead.add(row)
        return np.asarray(ahead.variance)


# ---- rows of a large space that a model looks at ----
# A model keeps numbers for every one of them and every trial. A space of up to MOST rows is looked at whole. Of a larger one a
# shortlist takes its place, drawn anew whenever the model is fitted anew: the neighbours of the fastest, what the guess holds for
# fastest, and the next of a random order, until the whole space had its turn.

Rows = NDArray[np.int64]

MOST = 20_000             # rows; a model of so many proposes in some tens of milliseconds on one core
BEST_GUESSED = 4_000
FASTEST = 16              # told rows whose neighbours come in


class Shortlist:
    """Rows in order, and the place of each among them."""

    def __init__(self, ledger: Ledger, order: Rows, most: int = MOST) -> None:
        self._ledger, self._order, self._most = ledger, order, most
        self.rows: Rows = np.arange(len(order))

    @property
    def is_whole(self) -> bool:
        """Return whether every row of the space is looked at."""
        return len(self._order) <= self._most

    def choose(self, guess: Array, told: int) -> None:
        """Draw the list anew from the first `told` trials and the guess, shape (N,); it holds asked rows where it meets them."""
        if self.is_whole:
            return
        best = min(BEST_GUESSED, self._most // 5)
        near = [row for fast in self._fastest(told) for row in self._ledger.space.neighbours(fast)]
        rows = np.concatenate([np.array(near[:self._most // 2], dtype=np.int64), np.argpartition(guess, best)[:best]])
        room = self._most - len(rows)
        begin = told * room % len(self._order)               # the same for a search that goes on after a stop
        self.rows = np.unique(np.concatenate([rows, np.roll(self._order, -begin)[:room]]))

    def place(self, row: int) -> int | None:
        """Return where a row of the space stands in the list, None where it does not."""
        if self.is_whole:
            return row
        indexes = np.flatnonzero(self.rows == row)
        return int(indexes[0]) if len(indexes) else None

    def append(self, row: int) -> int:
        """Take in a row that was asked elsewhere; return its place."""
        self.rows = np.append(self.rows, row)
        return len(self.rows) - 1

    def _fastest(self, told: int) -> list[int]:
        log_ms = np.array(self._ledger.log_ms[:told])
        order = np.argsort(log_ms, kind="stable")[:FASTEST]
        return [self._ledger.rows[index] for index in order if np.isfinite(log_ms[index])]


# ---- Bayesian optimisation ----


STARTS = 3                # spread rows before the model speaks, where nothing is guessed
SPREAD_SAMPLE = 256       # rows that compete to be the most distant
FIRST_FIT = 4             # told trials from which hyperparameters are fitted …
FIT_AGAIN = 1.25          # … and again whenever there are so many times more
FIT_TRIALS = 120          # the fastest that a fit looks at
FIT_STEPS = 30
SLOPE_VARIANCE = 0.6      # of the slope on the mean around 1
SPILL_COST = 0.5          # log time that a storm of spills is expected to cost …
SPILL_STORM = 8           # … which is 2 to the power of this; fewer cost less
SPILL_REACH = 0.1         # distance over all columns at which another configuration's spills count e times less
SPILL_DOUBT = 0.3         # weight of "does not spill" where no compiled configuration is near


# One thread: sums do not depend on the machine's cores, so a seed gives the same trials everywhere; and the matrices are
# too small to share out.
BLAS = ThreadpoolController().select(user_api="blas")


class Proposer:
    """Proposes rows of a ledger's space that are likely to improve on the best told.

    fits    hyperparameters follow the trials; a proposer that keeps the first ones never believes from a few trials that
            a column does not matter, or matters alike everywhere
    """

    def __init__(self, ledger: Ledger, x: Array, prior: Array, rng: np.random.Generator, fits: bool = True) -> None:
        self._ledger, self._x, self._prior = ledger, x, prior
        self._mean = prior                                 # the prior, and what compilers said since
        self._hyper, self._fits = Hyperparameters(x.shape[1]), fits
        self._posterior: Posterior | None = None
        self._fitted = -1                                  # told trials that the hyperparameters come from
        self._tie = rng.random(len(prior)) * 1e-6
        self._order = rng.permutation(len(prior))
        self._list = Shortlist(ledger, self._order)
        self._guessed = bool(np.ptp(prior)) if len(prior) else False

    def row(self) -> int:
        """Return the untried row with the largest expected improvement."""
        if not self._guessed and self._ledger.count < STARTS:
            return self._farthest_row()
        with BLAS.limit(limits=1):
            mean, deviation, best = self._expectation()
        rows = self._list.rows
        gain = _log_expected_improvement((best - mean) / deviation) + np.log(deviation) + self._tie[rows]
        mask = self._ledger.seen[rows]
        return int(rows[np.argmax(np.where(mask, -np.inf, gain))]) if not mask.all() else self._farthest_row()

    def surprise(self) -> float:
        """Return the variance of the told trials around what was expected before any."""
        rows = self._ledger.rows
        return float(np.var(self._ledger.slowness() - self._prior[rows])) if rows else 0.0

    def _expectation(self) -> tuple[Array, Array, float]:
        """Return mean and deviation of the slowness at every row of the list, and the best told."""
        rows = self._ledger.rows
        slowness = self._ledger.slowness()
        posterior = self._grow_posterior()
        pending = [self._place(posterior, row) for row in self._ledger.pending]
        rest = slowness - self._mean[rows]
        centre = float(rest.mean()) if rows else 0.0
        mean = self._mean[self._list.rows] + centre + (posterior.mean(rest - centre) if rows else 0.0)
        best = float(slowness.min()) if rows else float(mean[~self._ledger.seen[self._list.rows]].min())
        return mean, np.sqrt(posterior.variance_with(pending)), best

    def _grow_posterior(self) -> Posterior:
        """Return the posterior; hyperparameters come from the first `fit` trials only, so a resume agrees."""
        ledger_rows = self._ledger.rows
        fit = fit_size(len(ledger_rows))
        if self._posterior is None or fit != self._fitted:
            self._fitted = fit
            self._mean = self._prior + self._spill_penalty(fit)
            self._list.choose(self._mean, fit)
            rows = self._list.rows
            self._posterior = Posterior(self._x[rows], self._mean[rows], self._fit_hyperparameters(fit), SLOPE_VARIANCE)
        for row in ledger_rows[len(self._posterior.rows):]:
            self._posterior.add(self._place(self._posterior, row))
        return self._posterior

    def _place(self, posterior: Posterior, row: int) -> int:
        """Return where the posterior has a row of the space; one that another part of the search asked for comes in."""
        place = self._list.place(row)
        if place is None:
            posterior.extend(self._x[row], float(self._mean[row]))
            place = self._list.append(row)
        return place

    def _fit_hyperparameters(self, fit: int) -> Array:
        if not fit or not self._fits:
            return self._hyper.centre
        slowness = self._ledger.slowness(fit)
        use = np.argsort(slowness, kind="stable")[:FIT_TRIALS]
        rows = np.array(self._ledger.rows)[use]
        rest = slowness[use] - self._mean[rows]
        return self._hyper.fit(self._x[rows], rest - rest.mean(), self._mean[rows], SLOPE_VARIANCE, FIT_STEPS)

    def _spill_penalty(self, fit: int) -> Array | float:
        """Return what to add where configurations like the row were compiled to code that spills."""
        known_rows = [*self._ledger.rows[:fit], *self._ledger.pending]
        rows = [row for row in known_rows if row in self._ledger.spills]
        spilled = np.minimum(1, np.log2(1 + np.array([self._ledger.spills[row] for row in rows])) / SPILL_STORM)
        if not spilled.any():
            return 0.0
        weighted, weights = np.zeros(len(self._x)), np.zeros(len(self._x))
        for row, share in zip(rows, spilled, strict=True):
            weight = np.exp(-distances(self._x, self._x[row]).sum(axis=1) / SPILL_REACH)
            weighted, weights = weighted + weight * share, weights + weight
        return np.asarray(SPILL_COST * weighted / (weights + SPILL_DOUBT))

    def _farthest_row(self) -> int:
        """Return, of the first untried rows of a random order, the one farthest from all asked."""
        ledger = self._ledger
        untried = self._order[~ledger.seen[self._order]][:SPREAD_SAMPLE]
        rows = ledger.rows + ledger.pending
        if not rows:
            return int(untried[0])
        distance = distances(self._x[untried][:, None, :], self._x[rows][None]).sum(axis=2).min(axis=1)
        return int(untried[np.argmax(distance)])


def fit_size(told: int) -> int:
    """Return the largest of 4, 6, 8, 10, 12, 15, … not above `told`; 0 below the first."""
    size, following = 0, FIRST_FIT
    while following <= told:
        size, following = following, max(following + 2, int(following * FIT_AGAIN))
    return size


def _log_expected_improvement(z: Array) -> Array:
    """Return log(z Φ(z) + φ(z)), by φ(z) / z² far below zero (Ament et al., NeurIPS 2023)."""
    density = -0.5 * z**2 - 0.5 * np.log(2 * np.pi)
    near = z > -6
    value = np.exp(density) + z * ndtr(z)
    far = density - 2 * np.log(np.maximum(np.abs(z), 1.0))
    return np.asarray(np.where(near, np.log(np.maximum(value, 1e-300)), far))


class ModelSearch:
    """A proposer alone, starting from the guess for any kernel."""

    def __init__(self, space: Space, rng: np.random.Generator, prior: PriorKnowledge) -> None:
        sizes = Sizes(space)
        self._ledger = Ledger(space)
        self._proposer = Proposer(self._ledger, model_columns(space, sizes), guess_slowness(space, prior, sizes), rng)

    def ask(self, n: int) -> list[Config]:
        configs: list[Config] = []
        while len(configs) < n and not self._ledger.is_full:
            configs.append(self._ledger.take(self._proposer.row()))
        return configs

    def tell(self, trials: Sequence[Trial]) -> None:
        self._ledger.tell(trials)

    def tell_facts(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        self._ledger.tell_facts(facts)
