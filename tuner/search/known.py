"""What a search may know of an operator before its first trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.operators.limits import Limits
from tuner.operators.operator import Operator
from tuner.search.strategies.prior_knowledge import PriorKnowledge


def of_operator(operator: Operator, shape: Mapping[str, int], dtype: str, gpu: Limits, **more: Any) -> PriorKnowledge:
    """Return the prior knowledge of an operator at one shape. `more`: fields of PriorKnowledge, before those of the operator."""
    return PriorKnowledge(**{"operator": operator.name, "shape": dict(shape), "dtype": dtype, "gpu": gpu,
                             "flops": operator.flops(shape), "bytes": operator.bytes(shape, dtype),
                             "fills_sm": operator.fills_sm, **more})
