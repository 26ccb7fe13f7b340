"""What is known before the first trial: what is tuned, where, and what was measured elsewhere.

A strategy works without any of it. Nothing here may come from the operator and shape that is searched, but the shape
itself, the operator's own default configuration and what its work costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.operators.limits import Limits
from tuner.trial import Config, Trial

Shape = Mapping[str, int]


@dataclass(frozen=True)
class Past:
    """All trials, losers too, of another shape, GPU or toolkit, or of another operator."""

    operator: str
    shape: Shape
    dtype: str
    gpu: Limits | None
    toolkit: str                       # "CUDA 13.0, Triton 3.6"; empty when unknown
    trials: Sequence[Trial]
    flops: int = 0                     # of the algorithm at that shape; 0: not known
    bytes: int = 0


@dataclass(frozen=True)
class Known:
    """Of the search at hand. `None`, empty and 0: not known."""

    operator: str = ""
    shape: Shape = field(default_factory=dict)
    dtype: str = ""
    gpu: Limits | None = None
    toolkit: str = ""
    flops: int = 0                     # of the algorithm at this shape
    bytes: int = 0
    default: Config | None = None      # the operator's own
    past: Sequence[Past] = ()


def sides(shape: Mapping[str, object]) -> dict[str, float]:
    """The dimensions of a shape that are sizes; a recording may name other things beside them."""
    return {name: float(size) for name, size in shape.items()
            if isinstance(size, int | float) and not isinstance(size, bool) and 1 <= size < float("inf")}
