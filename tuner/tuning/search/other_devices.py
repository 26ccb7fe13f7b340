"""Prior knowledge for the search of a recorded landscape: default, device, other recorded shapes."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.tuning.measure.landscape import Landscape
from tuner.tuning.operators import Limits, find, limits
from tuner.tuning.search.strategies.prior_knowledge import PastSearch, PriorKnowledge
from tuner.tuning.trial import Trial


def recorded_knowledge(landscape: Landscape, shape_index: int, history: Sequence[tuple[Landscape, int]] = ()) -> PriorKnowledge:
    """Return the prior knowledge of a recorded shape; nothing comes from its own outcomes."""
    one, gpu, dtype = landscape.at(shape_index), _gpu_limits(landscape), _dtype(landscape)
    operator, default = find(landscape.operator), None
    if operator is not None and gpu is not None and not operator.problems(one.shape, dtype):
        default = operator.default_in(landscape.space(shape_index), one.shape, dtype, gpu)
    return PriorKnowledge(landscape.operator, dict(one.shape), dtype, gpu, _toolkit(landscape), one.flops or 0, one.bytes or 0,
                          default, tuple(recorded_search(other, index) for other, index in history),
                          operator.fills_sm if operator else {})


def recorded_search(landscape: Landscape, shape_index: int) -> PastSearch:
    """Return every recorded trial of a shape, losers included."""
    one = landscape.at(shape_index)
    trials = [Trial(number, config, outcome) for number, (config, outcome) in enumerate(one.outcomes.values())]
    return PastSearch(landscape.operator, dict(one.shape), _dtype(landscape), _gpu_limits(landscape), _toolkit(landscape), trials,
                      one.flops or 0, one.bytes or 0)


def _gpu_limits(landscape: Landscape) -> Limits | None:
    if not landscape.gpu:
        return None
    sms = landscape.environment.get("sms")
    return limits(landscape.gpu, landscape.compute_capability, sms if isinstance(sms, int) else None)


def _dtype(landscape: Landscape) -> str:
    operator = find(landscape.operator)
    return landscape.dtype or (operator.dtypes[0] if operator else "")


def _toolkit(landscape: Landscape) -> str:
    names = (("cuda", "CUDA"), ("triton", "Triton"))
    return ", ".join(f"{name} {landscape.environment[key]}" for key, name in names if landscape.environment.get(key))
