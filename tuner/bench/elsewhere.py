"""What a search of a recorded landscape may know: its operator's default, its device, and other recorded shapes."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.bench.landscape import Landscape
from tuner.operators import Limits, find, limits
from tuner.strategies import Known, Past
from tuner.trial import Trial


def known(landscape: Landscape, shape_index: int, history: Sequence[tuple[Landscape, int]] = ()) -> Known:
    """Nothing of it comes from the outcomes of this shape."""
    one, gpu, dtype = landscape.at(shape_index), _gpu(landscape), _dtype(landscape)
    operator, default = find(landscape.operator), None
    if operator is not None and gpu is not None and not operator.problems(one.shape, dtype):
        default = operator.default_in(landscape.space(shape_index), one.shape, dtype, gpu)
    return Known(landscape.operator, dict(one.shape), dtype, gpu, _toolkit(landscape), one.flops or 0, one.bytes or 0,
                 default, tuple(past(other, index) for other, index in history))


def past(landscape: Landscape, shape_index: int) -> Past:
    """Every recorded trial of a shape, losers too."""
    one = landscape.at(shape_index)
    trials = [Trial(number, config, outcome) for number, (config, outcome) in enumerate(one.outcomes.values())]
    return Past(landscape.operator, dict(one.shape), _dtype(landscape), _gpu(landscape), _toolkit(landscape), trials,
                one.flops or 0, one.bytes or 0)


def _gpu(landscape: Landscape) -> Limits | None:
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
