"""A Gaussian process over the rows of a space, grown one observation at a time.

Covariance: a product of Matérn 5/2 kernels over the columns, plus the sum of the same kernels over single columns, so
that a column's own effect is learned from few trials (Duvenaud et al., Additive Gaussian Processes, NIPS 2011), plus a
linear term along the prior. Hyperparameters: maximum a posteriori (Rasmussen and Williams, Gaussian Processes for
Machine Learning, 5.4.1). Growing the Cholesky factor by a row makes a proposal over N rows after n trials cost O(nN).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

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
        if (kept := self._ahead.get(row)) is not None:
            return kept
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
        known = self._whitened[:n, row].copy()
        covariance = self._covariance(row)
        pivot = np.sqrt(max(covariance[row] + self._noise - known @ known, JITTER))
        self._factor[n, :n], self._factor[n, n] = known, pivot
        self._whitened[n] = (covariance - known @ self._whitened[:n]) / pivot
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
