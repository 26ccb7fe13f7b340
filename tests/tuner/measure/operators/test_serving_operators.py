"""Paged decode attention and attention in fp8: right on the CPU (interpreted), compiled for GPUs that are not here."""

import pytest

from profiles.ingest.naming import names
from tests.tuner.measure.chosen import GPUS, about, cases_of_each, each_gpu, each_operator
from tests.tuner.measure.programs import RIGHT, code_of, facts_of, interpret
from tuner.tuning.operators import OPERATORS, fp8_attention, limits, paged_decode_attention

PAGED, FP8 = OPERATORS["paged_decode_attention"], OPERATORS["fp8_attention"]
SMALL = {"B": 3, "H": 6, "KV": 2, "N": 70, "D": 64, "PAGE": 16}
LOOP = {"num_warps": 2, "num_stages": 2}
# operator, shape, dtype, configuration: pages smaller and larger than a step, lengths that are no multiple of either
CASES = [
    *(("paged_decode_attention", SMALL, "fp16", {"KERNEL": kernel, "BN": keys, "SPLITS": splits, **LOOP})
      for kernel in ("blocks", "warps") for keys, splits in ((16, 1), (32, 4))),
    ("paged_decode_attention", {"B": 1, "H": 20, "KV": 1, "N": 300, "D": 128, "PAGE": 64}, "fp16",
     {"KERNEL": "blocks", "BN": 128, "SPLITS": 2, **LOOP}),
    ("fp8_attention", {"B": 1, "H": 3, "KV": 1, "N": 33, "D": 128, "causal": 1}, "fp8",
     {"KERNEL": "two stages", "BM": 32, "BN": 64, **LOOP}),
    *(("fp8_attention", {"B": 1, "H": 2, "KV": 1, "N": tokens, "D": 64, "causal": causal}, "fp8",
       {"KERNEL": kernel, "BM": rows, "BN": keys, **LOOP})
      for kernel, tokens, causal, rows, keys in (("two stages", 70, 0, 64, 32), ("tma", 70, 1, 32, 32), ("tma", 171, 0, 64, 128))),
]
DEEP = [            # larger shapes, and more of them
    *(("paged_decode_attention", {**SMALL, "B": 5, "H": 2, "PAGE": 32, "N": 101}, "fp16",
       {"KERNEL": kernel, "BN": 16, "SPLITS": 8, **LOOP}) for kernel in ("blocks", "warps")),
    ("paged_decode_attention", {"B": 2, "H": 20, "KV": 4, "N": 200, "D": 64, "PAGE": 16}, "fp16",
     {"KERNEL": "blocks", "BN": 16, "SPLITS": 16, **LOOP}),
    ("paged_decode_attention", {"B": 2, "H": 3, "KV": 3, "N": 33, "D": 256, "PAGE": 256}, "fp16",
     {"KERNEL": "warps", "BN": 16, "SPLITS": 1, **LOOP}),
    *(("fp8_attention", {"B": 2, "H": 4, "KV": 2, "N": tokens, "D": 64, "causal": causal}, "fp8",
       {"KERNEL": kernel, "BM": rows, "BN": keys, **LOOP})
      for kernel, tokens, causal, rows, keys in (
          ("two stages", 70, 1, 32, 32), ("two stages", 70, 0, 64, 32), ("two stages", 96, 1, 32, 64), ("tma", 70, 1, 32, 32),
          ("tma", 80, 1, 64, 32), ("tma", 171, 0, 64, 128), ("tma", 144, 1, 32, 128)))]
ERRORS = """
import torch
from tests.tuner.measure.interpreted import patch_language_once, round_to_fp8
from tuner.tuning.kernels.fp8_attention import PROBLEMS
from tuner.tuning.measure import accuracy
patch_language_once()
round_to_fp8()
weights = torch.exp2(torch.rand(1 << 20, dtype=torch.float64)).float()                 # even in their logarithm
lost = (weights.to(torch.float8_e4m3fn).float() - weights) / weights
assert 2.6e-2 < lost.square().mean().sqrt() < 2.7e-2 and lost.abs().max() <= 2**-4
problem = PROBLEMS["fp8_attention"]({"B": 1, "H": 2, "KV": 2, "N": 512, "D": 64, "causal": 0}, "fp8", torch.device("cpu"), 3)
config = {"KERNEL": "two stages", "BM": 128, "BN": 128, "num_warps": 4, "num_stages": 2}
_, drawn = accuracy.check_config(problem, config, 1, 4e-2)
assert drawn.right and 5e-3 < drawn.relative_error < 2.65e-2, drawn                   # few large weights: the largest is exact
problem.q_scales.fill_(0.2)
problem.launch(config)
even = accuracy.compare_output(problem.out, problem.reference(), 4e-2)
assert 2.4e-2 < even.relative_error < 2.9e-2, even                                     # many alike: what the bound is made of
problem.v_scales.mul_(3.0)
problem.k_scales.mul_(1.5)
problem.launch(config)
scaled = accuracy.compare_output(problem.out, problem.reference(), 4e-2)
assert scaled.right, scaled                                        # each scale is where it belongs
problem.v.fill_(1.0)
problem.v_scales.fill_(1.0)
problem.launch(config)
wrong = problem.out.float() - 1                              # what weights became, over the sum of what they were
assert wrong.abs().max() <= 2**-4 and wrong.mean().abs() < 3e-3, (wrong.abs().max(), wrong.mean())
for kernel in ("two stages", "tma"):
    problem = PROBLEMS["fp8_attention"]({"B": 1, "H": 2, "KV": 2, "N": 41, "D": 64, "causal": 0}, "fp8", torch.device("cpu"), 3)
    problem.launch({**config, "KERNEL": kernel})
    first = problem.out.clone()
    for garbage in (448.0, -448.0, torch.nan):                                         # beyond the tokens
        problem.k[:, :, 41:] = problem.v[..., 41:] = garbage
        problem.launch({**config, "KERNEL": kernel})
        assert torch.equal(first, problem.out), (kernel, garbage)
print("all right")
"""
LENGTHS = """
import json, sys, torch
from tests.tuner.measure.interpreted import patch_language_once
from tuner.tuning.kernels.decode.paged import PROBLEMS, UNUSED, spread_lengths
from tuner.tuning.measure import accuracy
from tuner.tuning.operators.paged_decode_attention import lengths
patch_language_once()
shape = {"B": 4, "H": 4, "KV": 2, "N": 80, "D": 64, "PAGE": 16}
assert spread_lengths(4, 80).tolist() == lengths(shape) == [20, 40, 60, 80]
assert spread_lengths(3, 70).tolist() == lengths({**shape, "B": 3, "N": 70}) == [24, 47, 70]
problem = PROBLEMS["paged_decode_attention"](shape, "fp16", torch.device("cpu"), 3)
drawn = [(problem.lengths.tolist(), problem.table.tolist()) for seed in (1, 1, 2) for _ in [problem.refill(seed)]]
assert drawn[0] == drawn[1] != drawn[2]
used = problem.table[problem.table != UNUSED]
assert sorted(used.tolist()) == list(range(len(problem.k))) and len(used) == 2 + 3 + 4 + 5       # each block of the pool once
tokens, lists, kernels = json.loads(sys.argv[1])
problem = PROBLEMS["paged_decode_attention"]({**shape, "N": tokens}, "fp16", torch.device("cpu"), 3)
for asked in lists:
    problem.lengths.copy_(torch.tensor(asked))
    for row, length in enumerate(asked):
        problem.table[row] = torch.arange(tokens // 16) + row                                    # pages may be shared
        problem.table[row, -(-length // 16):] = UNUSED
    reference = problem.reference()
    assert not reference[[row for row, length in enumerate(asked) if not length]].any()
    for kernel, splits in kernels:
        config = {"KERNEL": kernel, "BN": 16, "SPLITS": splits, "num_warps": 2, "num_stages": 2}
        results = []
        for _ in range(2):                          # the counts are back at zero, the parts are added up in the same order
            problem.out.fill_(torch.nan)
            problem.launch(config)
            results.append(problem.out.clone())
        verdict = accuracy.compare_output(results[0], reference, 5e-3)
        assert verdict.right and torch.equal(*results), (asked, config, verdict)
print("all right")
"""


@pytest.mark.torch
@pytest.mark.parametrize("cases", [*cases_of_each(CASES), *cases_of_each(DEEP, deep=True)])
def test_every_way_of_every_kernel_is_right(cases):
    assert interpret(RIGHT, cases) == "all right\n"


@pytest.mark.torch
@about(FP8.name)
def test_what_rounding_the_weights_costs():
    assert interpret(ERRORS) == "all right\n"


# tokens, lengths, (kernel, parts): at a page's edges; of 12 and 32 parts the first sums are added up in bunches, and those
FEW = (144, ([0, 1, 16, 143],), (("blocks", 1), ("warps", 12)))
ALL = (288, ([0, 1, 16, 288], [0, 0, 0, 0], [17, 144, 15, 271]),
       [(kernel, splits) for kernel in ("blocks", "warps") for splits in (1, 4, 32)])


@pytest.mark.torch
@about(PAGED.name)
@pytest.mark.parametrize("cases", [FEW, pytest.param(ALL, marks=pytest.mark.deep_only)], ids=["few", "all"])
def test_sequences_of_any_length_and_pages_anywhere(cases):
    """Empty ones too; lengths at a page's edges; entries of the table beyond the length name no block."""
    assert interpret(LENGTHS, cases) == "all right\n"


@pytest.mark.torch
@pytest.mark.parametrize(("name", "capability"), each_gpu((PAGED.name, FP8.name)))
def test_the_default_configuration_compiles_with_resource_facts(name, capability, binaries):
    operator, device = OPERATORS[name], limits(GPUS[capability], capability)
    shape, dtype = operator.presets[0], operator.dtypes[0]
    configs = [operator.default_config(shape, dtype, device)] if len(operator.space(shape, dtype, device)) else []
    assert configs or (name, capability) == (FP8.name, "8.0")
    check(name, capability, shape, dtype, configs, binaries)


@pytest.mark.torch
@pytest.mark.deep_only
@pytest.mark.parametrize("capability", GPUS)
@pytest.mark.parametrize("name", each_operator(PAGED.name, FP8.name))
def test_published_designs_compile_with_resource_facts(name, capability, binaries):
    operator, device = OPERATORS[name], limits(GPUS[capability], capability)
    shape, dtype = operator.presets[0], operator.dtypes[0]
    configs = operator.published_starts(operator.space(shape, dtype, device), shape, dtype, device)
    assert len(configs) >= 3 or (name, capability) == (FP8.name, "8.0")
    check(name, capability, shape, dtype, configs, binaries)


def check(name, capability, shape, dtype, configs, binaries):
    for config, facts in zip(configs, facts_of(binaries, capability, name, shape, dtype, configs), strict=True):
        counted = (paged_decode_attention.smem_bytes(config, 16, 128, 2) if name == PAGED.name
                   else fp8_attention.smem_bytes(config, 128, capability == "9.0"))
        assert facts["spills"] == 0 and facts["blocks_per_sm"] >= 1, (config, facts)
        assert facts["smem_bytes"] <= counted, (config, facts)


@pytest.mark.torch
@about(PAGED.name)
def test_pages_are_loaded_ahead_and_warps_alone_do_not_wait_for_each_other(binaries):
    """In the loop: 16-byte copies ahead, no sum or maximum across warps; `blocks` passes both through shared memory."""
    config = {"BN": 16, "SPLITS": 1, "num_warps": 4, "num_stages": 3}
    cases = ((PAGED.name, PAGED.presets[0], {**config, "KERNEL": kernel}) for kernel in ("warps", "blocks"))
    alone, together = code_of(binaries, *cases)
    for facts in (alone, together):
        assert {"cp.async.cg", "ldmatrix"} <= set(facts["words"]) and facts["spills"] == 0 and facts["registers"] <= 168
    assert alone["barriers"] == [2] and together["barriers"][0] >= 6         # 2: for the copies


@pytest.mark.torch
@about(FP8.name)
@pytest.mark.parametrize("head", [64, pytest.param(128, marks=pytest.mark.deep_only)])
def test_fp8_goes_from_scores_to_values_without_moving(head, binaries):
    """Both products read shared memory as the loads left it, weights come from registers, and no product waits for another."""
    shape = {"B": 2, "H": 32, "KV": 8, "N": 4096, "D": head, "causal": 1}
    tile = {"BM": 128, "BN": 128, "num_warps": 8, "num_stages": 2}
    cases = [{**tile, "KERNEL": "two stages"}, {**tile, "KERNEL": "tma"},
             {**tile, "KERNEL": "overlapped", "num_warps": 4, "num_stages": 3}]
    assert all(config in FP8.space(shape, "fp8", limits("NVIDIA H200")) for config in cases)
    for config, facts in zip(cases, code_of(binaries, *((FP8.name, shape, config) for config in cases)), strict=True):
        loads = "cp.async.cg" if config["KERNEL"] == "two stages" else "cp.async.bulk.tensor.5d.shared"
        assert {loads, "wgmma.mma_async"} <= set(facts["words"]) and facts["from_registers"] >= 2 * 128 // 32, (config, facts)
        assert not facts["warned"] and facts["spills"] == 0, (config, facts)
        assert facts["smem_bytes"] <= fp8_attention.smem_bytes(config, head, True), (config, facts)


def test_each_gpu_is_offered_the_fp8_kernels_it_can_run():
    shape = {"B": 2, "H": 32, "KV": 8, "N": 4096, "D": 128, "causal": 1}

    def kernels(gpu, **changed):
        return {config["KERNEL"] for config in FP8.space({**shape, **changed}, "fp8", limits(gpu)).configs()}

    assert kernels("NVIDIA H200") == {"two stages", "tma", "overlapped"} and kernels("NVIDIA B200") == {"two stages", "tma"}
    assert kernels("NVIDIA L40S") == {"two stages"} and not kernels("NVIDIA A100-SXM4-80GB")
    for gpu in ("NVIDIA H200", "NVIDIA L40S"):
        for each in (*FP8.presets, {**shape, "N": 1000}):
            space = FP8.space(each, "fp8", limits(gpu))
            assert FP8.default_config(each, "fp8", limits(gpu)) in space and FP8.published_starts(space, each, "fp8", limits(gpu))


@pytest.mark.parametrize("gpu", ["NVIDIA H200", "NVIDIA A100-SXM4-80GB", "Tesla T4", "some future GPU"])
def test_spaces_hold_default_and_published_designs(gpu):
    device = limits(gpu)
    for shape in (*PAGED.presets, {**SMALL, "B": 1, "N": 16, "PAGE": 256}, {**SMALL, "B": 4096, "N": 1 << 20}):
        space = PAGED.space(shape, "bf16", device)
        published = PAGED.published_starts(space, shape, "bf16", device)
        assert PAGED.default_config(shape, "bf16", device) in space and len(set(map(str, published))) == len(published)
        assert len(published) >= 3 or device.smem_bytes < 100_000
        assert shape not in PAGED.presets or len(space) >= 20


def test_splits_fill_the_gpu_where_sequences_are_few():
    device, shape = limits("NVIDIA H200"), {"B": 1, "H": 32, "KV": 8, "N": 32768, "D": 128, "PAGE": 16}
    few, many = (PAGED.starts({**shape, "B": sequences}, "bf16", device)[0] for sequences in (1, 256))
    assert few["SPLITS"] * 8 >= 2 * device.sms and many["SPLITS"] <= 2


def test_costs_count_the_tokens_that_there_are():
    shape = {"B": 2, "H": 4, "KV": 2, "N": 33, "D": 64, "PAGE": 16}                      # 17 and 33 tokens, 2 and 3 pages
    assert PAGED.flops(shape) == 4 * 4 * 64 * 50
    heads = {"B": 2, "H": 4, "KV": 2, "N": 33, "D": 64, "causal": 1}
    assert FP8.flops(heads) == 2 * 2 * 4 * 33 * 33 * 64
    assert FP8.bytes(heads, "fp8") == 2 * 33 * 64 * (4 + 2 + 2 + 2 * 4) + 4 * 2 * (4 + 2 + 2)
    assert PAGED.bytes(shape, "bf16") == 2 * 2 * 64 * (2 * 50 + 2 * 4) + 4 * (2 + 5)


def test_heads_that_do_not_go_together_are_refused_at_their_field():
    assert list(PAGED.problems({**SMALL, "KV": 4}, "bf16")) == ["KV"]
    assert list(PAGED.problems({**SMALL, "PAGE": 48}, "bf16")) == ["PAGE"]
    assert list(FP8.problems({"B": 1, "H": 4, "KV": 3, "N": 64, "D": 64, "causal": 0}, "fp8")) == ["KV"]


def test_profiles_know_their_kernels_as_attention():
    own = [kernel for operator in (PAGED, FP8) for kernel in operator.kernel_names]
    assert len(own) == 7 and {names.operator_of(kernel) for kernel in own} == {"attention"}
