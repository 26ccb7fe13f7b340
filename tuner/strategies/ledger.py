"""What was asked and what came of it, by row of the space: the memory that all parts of a search share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.space import Space
from tuner.trial import Config, Trial, config_key

Array = NDArray[np.float64]
FAILED_BEYOND = 0.2       # a rejected configuration counts as so much slower than the slowest, in log time
KNEE = 0.7                # log time over the best from where more slowness matters less: twice as slow is bad enough


class Ledger:
    """rows and log_ms: what was told, in order, inf where it was rejected; pending: asked and not yet told."""

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
        """Configurations asked or told."""
        return len(self.rows) + len(self.pending)

    @property
    def full(self) -> bool:
        return self.count >= len(self.space)

    def take(self, row: int) -> Config:
        self.seen[row] = True
        self.pending.append(row)
        return self.space.config(row)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Foreign configurations and second tellings are passed over."""
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
            self._spilled(row, trial.outcome.facts)

    def facts(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Static facts by config_key, of asked configurations that were compiled and not yet timed."""
        for row in self.pending:
            self._spilled(row, found.get(config_key(self.space.config(row)), {}))

    def _spilled(self, row: int, facts: Mapping[str, Any]) -> None:
        if isinstance(spills := facts.get("spills"), int | float):
            self.spills[row] = float(spills)

    def slowness(self, first: int | None = None) -> Array:
        """Log time over the best per told row (of the first only), bent at the knee: the slow half shall not shape a model."""
        return _slowness(np.array(self.log_ms[:first]))

    def fastest(self, most: int) -> list[int]:
        """Rows that ran, fastest first, the first told of equals."""
        order = np.argsort(np.array(self.log_ms), kind="stable")[:most].tolist()
        return [self.rows[i] for i in order if np.isfinite(self.log_ms[i])]


def slowness_of(trials: Sequence[Trial]) -> Array:
    """The same of trials that are over."""
    return _slowness(np.array([np.log(trial.median_ms) if trial.median_ms else np.inf for trial in trials]))


def _slowness(log_ms: Array) -> Array:
    """Log time over the best, flattened above the knee; what failed is slower than all that ran."""
    ran = np.isfinite(log_ms)
    if not ran.any():
        return np.zeros(len(log_ms))
    gaps = np.where(ran, log_ms, log_ms[ran].max() + FAILED_BEYOND) - log_ms[ran].min()
    return np.asarray(np.where(gaps > KNEE, KNEE + 0.5 * np.log1p(np.maximum(0, gaps - KNEE)), gaps))
