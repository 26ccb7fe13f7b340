"""What is known before a search: searches that come with Ridgepoint for a host that has no jobs, and a landscape's own.

searches.json.xz beside this: {"gpu", "compute_capability", "sms", "toolkit", "date", "operators": {name: [{"shape", "dtype",
"names", "rows": [[value of each name, …, median µs or null where it was rejected]]}]}}. It is made of docs/operators-ratios.json.xz
by `python -m tests.tuner.search.make_searches`; how it was measured stands in docs/operators.md.

Of a recorded landscape: default, device, other recorded shapes.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tuner.tuning.measure.landscape import Landscape
from tuner.tuning.operators import Limits, find, limits
from tuner.tuning.search.strategies.prior_knowledge import PastSearch, PriorKnowledge
from tuner.tuning.trial import Measured, Outcome, Reason, Rejected, Trial


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


FILE = Path(__file__).with_name("searches.json.xz")


@lru_cache(maxsize=1)
def _document() -> Mapping[str, Any]:
    document: dict[str, Any] = json.loads(lzma.decompress(FILE.read_bytes()))
    return document


def recorded_searches(prior: PriorKnowledge) -> list[PastSearch]:
    """Return the recorded searches of the operator that is searched; none of this shape and type on this GPU itself."""
    document = _document()
    recorded = document["operators"].get(prior.operator, ())
    operator = find(prior.operator) if recorded else None
    if operator is None:
        return []
    gpu = limits(document["gpu"], document["compute_capability"], document["sms"])
    here = prior.gpu is not None and prior.gpu.gpu == gpu.gpu
    return [PastSearch(operator.name, one["shape"], one["dtype"], gpu, document["toolkit"], _trials(one),
                       operator.flops(one["shape"]) or 0, operator.bytes(one["shape"], one["dtype"]) or 0)
            for one in recorded if not (here and (one["shape"], one["dtype"]) == (dict(prior.shape), prior.dtype))]


def _trials(search: Mapping[str, Any]) -> list[Trial]:
    return [Trial(number, dict(zip(search["names"], values, strict=True)), _outcome(us))
            for number, (*values, us) in enumerate(search["rows"])]


def _outcome(us: float | None) -> Outcome:
    return Rejected(Reason.COMPILE, "") if us is None else Measured(us / 1000, us / 1000, us / 1000, 1, {})
