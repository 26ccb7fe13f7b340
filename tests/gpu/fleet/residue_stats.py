"""Losses with intervals out of many processes: which process, not which block, is what varies, so processes are what is counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workers.agent.controller import _t

BASE = "none"


@dataclass(frozen=True)
class Cell:
    """One process: the generation that it ran in beside others, its variant, ln of the time of a step."""

    generation: int
    variant: str
    log_step: float


@dataclass(frozen=True)
class Loss:
    loss_pct: float
    low_pct: float
    high_pct: float
    spread_pct: float               # of one process about what its generation and variant say
    processes: int
    freedom: int


def losses(cells: Sequence[Cell]) -> dict[str, Loss]:
    """Return what steps of each variant take longer than those of BASE, in %, with 95 % intervals.

    Least squares of ln(step) = generation + variant: a drift between generations cancels, processes that died are simply missing,
    and the spread of processes is pooled over all variants. {} where too few processes are left to tell a spread.
    """
    variants = sorted({cell.variant for cell in cells} - {BASE})
    generations = sorted({cell.generation for cell in cells if cell.variant == BASE})
    own = [cell for cell in cells if cell.generation in generations]
    columns = len(generations) + len(variants)
    freedom = len(own) - columns
    if not generations or freedom < 1:
        return {}
    design, value = np.zeros((len(own), columns)), np.array([cell.log_step for cell in own])
    for at, cell in enumerate(own):
        design[at, generations.index(cell.generation)] = 1
        if cell.variant != BASE:
            design[at, len(generations) + variants.index(cell.variant)] = 1
    counts = {variant: sum(cell.variant == variant for cell in own) for variant in variants}
    solved, _, rank, _ = np.linalg.lstsq(design, value, rcond=None)
    if rank < columns:                  # a variant that ran in no generation with a base
        told = [variant for variant in variants if counts[variant]]
        return losses([cell for cell in own if cell.variant in (BASE, *told)]) if told != variants else {}
    spread = math.sqrt(float(((value - design @ solved) ** 2).sum()) / freedom)
    covariance = np.linalg.inv(design.T @ design)
    found = {}
    for at, variant in enumerate(variants, len(generations)):
        half = _t(freedom) * spread * math.sqrt(float(covariance[at, at]))
        middle = float(solved[at])
        loss_pct, low_pct, high_pct = (100 * math.expm1(each) for each in (middle, middle - half, middle + half))
        found[variant] = Loss(loss_pct, low_pct, high_pct, 100 * spread, counts[variant], freedom)
    return found
