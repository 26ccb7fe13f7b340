"""Configurations asked and told, by row of the space: the memory that all parts of a search share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Trial, config_key

Array = NDArray[np.float64]
FAILED_BEYOND = 0.2       # a rejected configuration counts as so much slower than the slowest, in log time
KNEE = 0.7                # log time over the best from where more slowness matters less: twice as slow is bad enough


class Ledger:
    """`rows`, `log_ms`: what was told in order, inf where rejected; `pending`: asked, not yet told."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.seen = np.zeros(len(space), dtype=bool)
        self.rows: list[int] = []
        self.log_ms: list[float] = []
        self.pending: list[int] = []
        self.spills: dict[int, float] = {}          # row -> bytes or registers spilled, where a compiler said so
        self._told: set[int] = set()

    @property
    def count(self) -> int:
        """Return how many configurations were asked or told."""
        return len(self.rows) + len(self.pending)

    @property
    def is_full(self) -> bool:
        """Return whether every row was asked or told."""
        return self.count >= len(self.space)

    def take(self, row: int) -> Config:
        """Mark `row` as asked and return its configuration."""
        self.seen[row] = True
        self.pending.append(row)
        return self.space.config(row)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Record trials; those outside the space and repeated ones are skipped."""
        for trial in trials:
            row = self.space.row(trial.config)
            if row is None or row in self._told:
                continue
            if row in self.pending:
                self.pending.remove(row)
            self._told.add(row)
            self.seen[row] = True
            self.rows.append(row)
            self.log_ms.append(float(np.log(trial.median_ms)) if trial.median_ms else np.inf)
            self._note_spills(row, trial.outcome.facts)

    def tell_facts(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Record static facts, by config_key, of asked configurations that were compiled, not yet timed."""
        for row in self.pending:
            self._note_spills(row, facts.get(config_key(self.space.config(row)), {}))

    def _note_spills(self, row: int, facts: Mapping[str, Any]) -> None:
        if isinstance(spills := facts.get("spills"), int | float):
            self.spills[row] = float(spills)

    def slowness(self, first: int | None = None) -> Array:
        """Return log time over the best per told row (the `first` only), flattened above KNEE."""
        return _slowness(np.array(self.log_ms[:first]))

    def fastest(self, most: int) -> list[int]:
        """Return up to `most` rows that ran, fastest first; of equals the first told."""
        order = np.argsort(np.array(self.log_ms), kind="stable")[:most].tolist()
        return [self.rows[i] for i in order if np.isfinite(self.log_ms[i])]


def slowness_of(trials: Sequence[Trial]) -> Array:
    """Return the slowness of finished trials, shape (n,)."""
    return _slowness(np.array([np.log(trial.median_ms) if trial.median_ms else np.inf for trial in trials]))


def _slowness(log_ms: Array) -> Array:
    """Return log time over the best, flattened above KNEE; failures are slower than all that ran."""
    ran = np.isfinite(log_ms)
    if not ran.any():
        return np.zeros(len(log_ms))
    gaps = np.where(ran, log_ms, log_ms[ran].max() + FAILED_BEYOND) - log_ms[ran].min()
    return np.asarray(np.where(gaps > KNEE, KNEE + 0.5 * np.log1p(np.maximum(0, gaps - KNEE)), gaps))
