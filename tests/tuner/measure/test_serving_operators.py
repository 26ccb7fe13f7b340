"""Paged decode attention: right on the CPU (interpreted), compiled for GPUs that are not here."""

import json

import pytest

from tests.tuner.measure.test_model_code import code_of
from tests.tuner.measure.test_rowwise import COMPILED, GPUS, RIGHT, python
from tuner.operators import OPERATORS, limits
from tuner.operators.paged_decode_attention import smem_bytes

PAGED = OPERATORS["paged_decode_attention"]
SMALL = {"B": 3, "H": 6, "KV": 2, "N": 70, "D": 64, "PAGE": 16}
LOOP = {"num_warps": 2, "num_stages": 2}
CASES = [     # operator, shape, dtype, configuration: pages smaller and larger than a step, lengths that are no multiple of either
    *(("paged_decode_attention", shape, "fp16", {"KERNEL": kernel, "BN": keys, "SPLITS": splits, **LOOP})
      for kernel in ("blocks", "warps")
      for shape, keys, splits in ((SMALL, 16, 1), (SMALL, 32, 4), ({**SMALL, "B": 5, "H": 2, "PAGE": 32, "N": 101}, 16, 8))),
    ("paged_decode_attention", {"B": 1, "H": 20, "KV": 1, "N": 300, "D": 128, "PAGE": 64}, "fp16",
     {"KERNEL": "blocks", "BN": 128, "SPLITS": 2, **LOOP}),
    ("paged_decode_attention", {"B": 2, "H": 3, "KV": 3, "N": 33, "D": 256, "PAGE": 256}, "fp16",
     {"KERNEL": "warps", "BN": 16, "SPLITS": 1, **LOOP})]
LENGTHS = """
import torch
from tuner.kernels.paged_decode_attention import PROBLEMS, UNUSED, spread_lengths
from tuner.measure import accuracy
from tuner.operators.paged_decode_attention import lengths
shape = {"B": 4, "H": 4, "KV": 2, "N": 80, "D": 64, "PAGE": 16}
assert spread_lengths(4, 80).tolist() == lengths(shape) == [20, 40, 60, 80]
assert spread_lengths(3, 70).tolist() == lengths({**shape, "B": 3, "N": 70}) == [24, 47, 70]
problem = PROBLEMS["paged_decode_attention"](shape, "fp16", torch.device("cpu"), 3)
drawn = [(problem.lengths.tolist(), problem.table.tolist()) for seed in (1, 1, 2) for _ in [problem.refill(seed)]]
assert drawn[0] == drawn[1] != drawn[2]
used = problem.table[problem.table != UNUSED]
assert sorted(used.tolist()) == list(range(len(problem.k))) and len(used) == 2 + 3 + 4 + 5       # each block of the pool once
for asked in ([0, 1, 16, 80], [0, 0, 0, 0], [17, 0, 15, 33]):
    problem.lengths.copy_(torch.tensor(asked))
    problem.table[:] = torch.arange(14).repeat(2)[:20].reshape(4, 5).int()                       # pages may be shared
    for row, length in enumerate(asked):
        problem.table[row, -(-length // 16):] = UNUSED
    reference = problem.reference()
    assert not reference[[row for row, length in enumerate(asked) if not length]].any()
    for kernel in ("blocks", "warps"):
        for splits in (1, 4):
            config = {"KERNEL": kernel, "BN": 16, "SPLITS": splits, "num_warps": 2, "num_stages": 2}
            for _ in range(2):                      # the counts are back at zero, the parts are added up in the same order
                problem.out.fill_(torch.nan)
                problem.launch(config)
                verdict = accuracy.compare_output(problem.out, reference, 5e-3)
                assert verdict.right, (asked, config, verdict)
                first = problem.out.clone() if _ == 0 else first
                assert torch.equal(first, problem.out)
print("all right")
"""


@pytest.mark.torch
def test_every_way_of_every_kernel_is_right():
    pytest.importorskip("triton")
    assert python(RIGHT, CASES, TRITON_INTERPRET="1") == "all right\n"


@pytest.mark.torch
def test_sequences_of_any_length_and_pages_anywhere():
    """Empty ones too; lengths at a page's edges; entries of the table beyond the length name no block."""
    pytest.importorskip("triton")
    assert python(LENGTHS, None, TRITON_INTERPRET="1") == "all right\n"


@pytest.mark.torch
def test_they_compile_for_three_architectures_with_resource_facts(tmp_path):
    pytest.importorskip("triton")
    wanted = []
    for capability, gpu in GPUS.items():
        shape, dtype, device = PAGED.presets[0], PAGED.dtypes[0], limits(gpu, capability)
        space = PAGED.space(shape, dtype, device)
        configs = [PAGED.default_config(shape, dtype, device), *PAGED.published_starts(space, shape, dtype, device)]
        wanted.append((capability, PAGED.name, shape, dtype, configs))
    lines = [json.loads(line) for line in python(COMPILED, wanted, TRITON_CACHE_DIR=str(tmp_path)).splitlines()]
    assert len(lines) == sum(len(configs) for *_, configs in wanted) >= 15
    for (_, _, facts), config in zip(lines, (config for *_, configs in wanted for config in configs), strict=True):
        assert facts["spills"] == 0 and facts["blocks_per_sm"] >= 2, (config, facts)
        assert facts["smem_bytes"] <= smem_bytes(config, 16, 128, 2), (config, facts)


@pytest.mark.torch
def test_pages_are_loaded_ahead_and_warps_alone_do_not_wait_for_each_other(tmp_path):
    """In the loop: 16-byte copies ahead, no sum or maximum across warps; `blocks` passes both through shared memory."""
    pytest.importorskip("triton")
    config = {"BN": 16, "SPLITS": 1, "num_warps": 4, "num_stages": 3}
    cases = ((PAGED.name, PAGED.presets[0], {**config, "KERNEL": kernel}) for kernel in ("warps", "blocks"))
    alone, together = code_of(tmp_path, *cases)
    for facts in (alone, together):
        assert {"cp.async.cg", "ldmatrix"} <= set(facts["words"]) and facts["spills"] == 0 and facts["registers"] <= 168
    assert alone["barriers"] == [2] and together["barriers"][0] >= 6         # 2: for the copies


@pytest.mark.parametrize("gpu", ["NVIDIA H200", "NVIDIA A100-SXM4-80GB", "Tesla T4", "some future GPU"])
def test_spaces_hold_default_and_published_designs(gpu):
    device = limits(gpu)
    for shape in (*PAGED.presets, {**SMALL, "B": 1, "N": 16, "PAGE": 256}, {**SMALL, "B": 4096, "N": 1 << 20}):
        space = PAGED.space(shape, "bf16", device)
        published = PAGED.published_starts(space, shape, "bf16", device)
        assert PAGED.default_config(shape, "bf16", device) in space and len(set(map(str, published))) == len(published)
        assert published == PAGED.starts(shape, "bf16", device) or device.smem_bytes < 100_000
        assert shape not in PAGED.presets or len(space) >= 20


def test_splits_fill_the_gpu_where_sequences_are_few():
    device, shape = limits("NVIDIA H200"), {"B": 1, "H": 32, "KV": 8, "N": 32768, "D": 128, "PAGE": 16}
    few, many = (PAGED.starts({**shape, "B": sequences}, "bf16", device)[0] for sequences in (1, 256))
    assert few["SPLITS"] * 8 >= 2 * device.sms and many["SPLITS"] <= 2


def test_costs_count_the_tokens_that_there_are():
    shape = {"B": 2, "H": 4, "KV": 2, "N": 33, "D": 64, "PAGE": 16}                      # 17 and 33 tokens, 2 and 3 pages
    assert PAGED.flops(shape) == 4 * 4 * 64 * 50
    assert PAGED.bytes(shape, "bf16") == 2 * 2 * 64 * (2 * 50 + 2 * 4) + 4 * (2 + 5)


def test_heads_that_do_not_go_together_are_refused_at_their_field():
    assert list(PAGED.problems({**SMALL, "KV": 4}, "bf16")) == ["KV"]
    assert list(PAGED.problems({**SMALL, "PAGE": 48}, "bf16")) == ["PAGE"]
