"""Searches that come with Ridgepoint: what was measured at other shapes of its own operators, for a host that has no jobs yet.

searches.json.xz beside this: {"gpu", "compute_capability", "sms", "toolkit", "date", "operators": {name: [{"shape", "dtype",
"names", "rows": [[value of each name, …, median µs or null where it was rejected]]}]}}. It is made of docs/operators-ratios.json.xz
by `python -m tests.tuner.search.make_searches`; how it was measured stands in docs/operators.md.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from tuner.tuning.operators import find, limits
from tuner.tuning.search.strategies.prior_knowledge import PastSearch, PriorKnowledge
from tuner.tuning.trial import Measured, Outcome, Reason, Rejected, Trial

FILE = Path(__file__).with_name("searches.json.xz")


@lru_cache(maxsize=1)
def _document() -> Mapping[str, Any]:
    document: dict[str, Any] = json.loads(lzma.decompress(FILE.read_bytes()))
    return document


def recorded_searches(known: PriorKnowledge) -> list[PastSearch]:
    """Return the recorded searches of the operator that is searched; none of this shape and type on this GPU itself."""
    document = _document()
    recorded = document["operators"].get(known.operator, ())
    operator = find(known.operator) if recorded else None
    if operator is None:
        return []
    gpu = limits(document["gpu"], document["compute_capability"], document["sms"])
    here = known.gpu is not None and known.gpu.gpu == gpu.gpu
    return [PastSearch(operator.name, one["shape"], one["dtype"], gpu, document["toolkit"], _trials(one),
                       operator.flops(one["shape"]) or 0, operator.bytes(one["shape"], one["dtype"]) or 0)
            for one in recorded if not (here and (one["shape"], one["dtype"]) == (dict(known.shape), known.dtype))]


def _trials(search: Mapping[str, Any]) -> list[Trial]:
    return [Trial(number, dict(zip(search["names"], values, strict=True)), _outcome(us))
            for number, (*values, us) in enumerate(search["rows"])]


def _outcome(us: float | None) -> Outcome:
    return Rejected(Reason.COMPILE, "") if us is None else Measured(us / 1000, us / 1000, us / 1000, 1, {})
