"""Rows of a large space that a model looks at: it keeps numbers for every one of them and every trial.

A space of up to MOST rows is looked at whole. Of a larger one a shortlist takes its place, drawn anew whenever the model is fitted
anew: the neighbours of the fastest, what the guess holds for fastest, and the next of a random order, until the whole space had
its turn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tuner.tuning.search.strategies.ledger import Ledger

Array = NDArray[np.float64]
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
        kept = np.concatenate([np.array(near[:self._most // 2], dtype=np.int64), np.argpartition(guess, best)[:best]])
        room = self._most - len(kept)
        begin = told * room % len(self._order)               # the same for a search that goes on after a stop
        self.rows = np.unique(np.concatenate([kept, np.roll(self._order, -begin)[:room]]))

    def place(self, row: int) -> int | None:
        """Return where a row of the space stands in the list, None where it does not."""
        if self.is_whole:
            return row
        found = np.flatnonzero(self.rows == row)
        return int(found[0]) if len(found) else None

    def append(self, row: int) -> int:
        """Take in a row that was asked elsewhere; return its place."""
        self.rows = np.append(self.rows, row)
        return len(self.rows) - 1

    def _fastest(self, told: int) -> list[int]:
        log_ms = np.array(self._ledger.log_ms[:told])
        order = np.argsort(log_ms, kind="stable")[:FASTEST]
        return [self._ledger.rows[at] for at in order if np.isfinite(log_ms[at])]
