"""Which configurations of a space are compiled when a file is checked, and for whose limits the space is counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.tuning.operators.limits import Limits
from tuner.tuning.space import Space

GPU = Limits("H100", "9.0", 232_448, 132)       # whose limits the space is counted with
SAMPLES = 2                                     # configurations compiled beside the default, of a file of few kernels
FEW_KERNELS = 4


def choose_samples(default: Mapping[str, Any], space: Space, count: int) -> list[dict[str, Any]]:
    """Return the default, where there is one, and up to `count` other configurations spread over the space."""
    chosen = [dict(default)] if default else []
    for index in range(count):
        if len(space):
            config = dict(space.config((2 * index + 1) * len(space) // (2 * count)))
            if config not in chosen:
                chosen.append(config)
    return chosen
