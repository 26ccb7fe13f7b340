"""Searches that come with Ridgepoint: made of what was recorded, of other shapes alone, and of use to a search that knows none."""

from __future__ import annotations

import json
import lzma

from tests.tuner.search.make_searches import make_searches
from tuner.tuning.operators import limits
from tuner.tuning.search.recorded_searches import FILE, recorded_searches
from tuner.tuning.search.strategies.composed import similarity
from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge

H200, A100 = limits("NVIDIA H200", "9.0", 132), limits("NVIDIA A100-SXM4-80GB", "8.0", 108)
SHAPE = {"M": 4096, "N": 4096, "K": 4096}


def test_they_are_those_of_the_document() -> None:
    assert json.loads(lzma.decompress(FILE.read_bytes())) == json.loads(json.dumps(make_searches()))


def test_none_is_of_what_is_searched_and_another_gpu_or_type_counts_less() -> None:
    here = PriorKnowledge("matmul", SHAPE, "bf16", H200)
    found = recorded_searches(here)
    assert SHAPE not in [past.shape for past in found if past.dtype == "bf16"] and {past.operator for past in found} == {"matmul"}
    elsewhere = recorded_searches(PriorKnowledge("matmul", SHAPE, "bf16", A100))
    assert len(elsewhere) == len(found) + 1
    past = found[0]
    assert similarity(past, here) > similarity(past, PriorKnowledge("matmul", SHAPE, "bf16", A100))
    fp16, fp8 = (similarity(past, PriorKnowledge("matmul", SHAPE, dtype, H200)) for dtype in ("fp16", "fp8"))
    assert fp8 < fp16 < similarity(past, here)              # as many bytes take about as long
    assert any(trial.median_ms is None for trial in past.trials) and min(filter(None, (t.median_ms for t in past.trials))) > 0


def test_a_kernel_of_somebody_else_has_none() -> None:
    assert recorded_searches(PriorKnowledge("their_own_kernel", SHAPE, "bf16", H200)) == []
