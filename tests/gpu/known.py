"""What a search may know of an operator before its first trial."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import Operator
from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge
from tuner.tuning.trial import Config


def of_operator(operator: Operator, shape: Mapping[str, int], dtype: str, gpu: Limits,
                default: Config | None = None) -> PriorKnowledge:
    """Return the prior knowledge of an operator at one shape, without any past."""
    return PriorKnowledge(operator.name, dict(shape), dtype, gpu, flops=operator.flops(shape), bytes=operator.bytes(shape, dtype),
                          default=default, fills_sm=operator.fills_sm)
