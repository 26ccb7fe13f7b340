"""What is said of public traces that others made, judged by eye one by one: `docs/needed.md` says why each is right."""

from __future__ import annotations

import pytest

from profiles.analysis.trace.needed.topic import needed_result
from tests.profiles.ingest.corpus import mostly_deep
from tests.profiles.needed.natural import frame, needs

# file of tests/data/corpus/kineto -> kinds but for `passes`, which every run has that is not compiled
SAID = {
    "hta_alexnet_a100_critical_path.json.gz": set[str](),
    "hta_gpu_user_annotation_gp100.json.gz": {"zeroed_gradients"},
    "hta_nccl_data_a100_rank0of2.json.gz": {"layouts"},
    "hta_sampled_rank-0_of128.json.gz": set(),
    "hta_triton_example_a100.json.gz": set(),
    "kineto_tbplugin_resnet50_v100_1623143089861.pt.trace.json.gz": {"tensor_by_tensor", "zeroed_gradients"},
    "sglang_mi300_qwen3-8b_decode.json.gz": set(),
    "tracelens_h100_qwen1.5-0.5b.json.gz": {"repeated_keys"},
    "tracelens_h100_timesformer.json.gz": {"scores_in_memory"},
    "tracelens_mi300_qwen1.5-0.5b.json.gz": set(),
    "tracelens_mi300_torch_compile_triton.json.gz": set(),
    "vllm_mi300_decode_full_graph_execution.json.gz": set(),
}


@pytest.mark.parametrize("file", mostly_deep(
    sorted(SAID), "alexnet_a100_critical_path.json.gz", "gp100.json.gz", "hta_triton_example_a100.json.gz",
    "h100_qwen1.5-0.5b.json.gz", "qwen3-8b_decode.json.gz", "torch_compile_triton.json.gz", "full_graph_execution.json.gz"))
def test_nothing_else_is_said_of_a_public_trace(file: str) -> None:
    name = f"corpus/kineto/{file}"
    result = needed_result(frame(name), needs(name))
    assert {finding.rule for finding in result.findings} - {"passes"} == SAID[file]
