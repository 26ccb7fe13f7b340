"""What is known before the first trial: the problem, the device, and measurements elsewhere.

A strategy works without any of it. Nothing here may come from the operator and shape that is searched, but the shape
itself, the operator's own default configuration and what its work costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.tuning.operators.limits import Limits
from tuner.tuning.trial import Config, Trial, Value

Shape = Mapping[str, int]


@dataclass(frozen=True)
class PastSearch:
    """All trials of another shape, GPU, toolkit or operator, losers included."""

    operator: str
    shape: Shape
    dtype: str
    gpu: Limits | None
    toolkit: str                       # "CUDA 13.0, Triton 3.6"; empty when unknown
    trials: Sequence[Trial]
    flops: int = 0                     # of the algorithm at that shape; 0: not known
    bytes: int = 0


@dataclass(frozen=True)
class PriorKnowledge:
    """What is known of the search at hand; None, empty and 0 mean unknown."""

    operator: str = ""
    shape: Shape = field(default_factory=dict)
    dtype: str = ""
    gpu: Limits | None = None
    toolkit: str = ""
    flops: int = 0                     # of the algorithm at this shape
    bytes: int = 0
    default: Config | None = None      # the operator's own
    past: Sequence[PastSearch] = ()
    fills_sm: Mapping[str, Sequence[Value]] = field(default_factory=dict)      # as in the operator's record


def size_dims(shape: Mapping[str, object]) -> dict[str, float]:
    """Return the dimensions of a shape that are sizes; a recording may name other things too."""
    return {name: float(size) for name, size in shape.items()
            if isinstance(size, int | float) and not isinstance(size, bool) and 1 <= size < float("inf")}
