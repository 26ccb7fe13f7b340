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
    "hta_mi250_minitoy_rocm62.json.gz": set(),
    "hta_nccl_data_a100_rank0of2.json.gz": {"layouts"},
    "hta_sampled_rank-0_of128.json.gz": set(),
    "hta_sampled_rank-1_of128.json.gz": set(),
    "hta_triton_example_a100.json.gz": set(),
    "kineto_tbplugin_resnet50_v100_1623143089861.pt.trace.json.gz": {"tensor_by_tensor", "zeroed_gradients"},
    "sglang_mi300_qwen3-8b_decode.json.gz": set(),
    "tracelens_h100_qwen1.5-0.5b.json.gz": {"repeated_keys"},
    "tracelens_h100_timesformer.json.gz": {"scores_in_memory"},
    "tracelens_mi300_qwen1.5-0.5b.json.gz": {"shared_operand"},
    "tracelens_mi300_torch_compile_triton.json.gz": set(),
    "vllm_mi300_decode_full_graph_execution.json.gz": set(),
}
# recordings of this project that do one thing on purpose, and nothing of the kinds but what stands here
OURS = {
    "recorded/tensor_cores.json.gz": set[str](),            # random numbers cast right before their products
    "causes/serial_copies.json.gz": set(),                  # 16 MiB in, products, 16 MiB out, eight times
    "causes/shapes.json.gz": {"uneven_sizes"},              # a product with 2,047 columns among benchmarks of one product
    "causes/fault_synchronisation.json.gz": set(),
    "h200/kineto_layer.json.gz": set(),
    "captured/h200_running_5_steps.json.gz": {"remade_weights"},        # autocast
}


@pytest.mark.parametrize("file", mostly_deep(
    sorted(SAID), "alexnet_a100_critical_path.json.gz", "gp100.json.gz", "hta_triton_example_a100.json.gz",
    "h100_qwen1.5-0.5b.json.gz", "qwen3-8b_decode.json.gz", "torch_compile_triton.json.gz", "full_graph_execution.json.gz"))
def test_nothing_else_is_said_of_a_public_trace(file: str) -> None:
    name = f"corpus/kineto/{file}"
    result = needed_result(frame(name), needs(name))
    assert {finding.rule for finding in result.findings} - {"passes"} == SAID[file]


@pytest.mark.parametrize("file", OURS)
def test_nothing_else_is_said_of_a_recording_of_one_thing(file: str) -> None:
    assert {finding.rule for finding in needed_result(frame(file), needs(file)).findings} - {"passes"} == OURS[file]
