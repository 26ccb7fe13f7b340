"""Operators of whole models beside products and norms: right on the CPU (interpreted), compiled for GPUs that are not here.

Triton's interpreter computes products in fp16 alone, so the kernels with a product are tried in that.
"""

import pytest

from tests.tuner.measure.chosen import GPUS, about, cases_of_each, each_gpu, each_operator
from tests.tuner.measure.programs import RIGHT, facts_of, interpret
from tuner.tuning.operators import OPERATORS, limits

NAMES = ("cross_entropy", "embedding", "rotary", "top_k", "conv2d", "int4_matmul", "fp8_block_matmul")
LOOP = {"num_warps": 4, "num_stages": 2}
IMAGE = {"B": 2, "H": 9, "W": 7, "C": 20, "F": 35, "KS": 3, "S": 2, "P": 1}
ALIGNED = {**IMAGE, "C": 24, "F": 40, "S": 1}                                 # rows of 16 bytes: what TMA reads
PIXELS = {"BM": 32, "BN": 32, "BK": 16, "GM": 8, **LOOP}
COUNTED = {"KERNEL": "threshold", "BLOCK": 512, "ROWS": 1, "SPLIT": 1, "num_warps": 4}
VECTOR = {"KERNEL": "vector", "BM": 1, "BN": 128, "BK": 16, "GM": 8, "num_warps": 4, "num_stages": 1}
WORDS = {"KERNEL": "words", "BN": 256, "GM": 8, "num_warps": 4, "num_stages": 3}
UNPACKED = {"BM": 64, "BK": 64, "GM": 8, "num_warps": 4, "num_stages": 3, "SPLIT_K": 1}
# operator, shape, dtype, configuration: each way of each kernel, tiles that do not divide the shape
CASES = [
    ("cross_entropy", {"R": 5, "C": 300}, "bf16", {"BLOCK": 512, "SPLIT": 1, "ROWS": 2, **LOOP}),
    ("cross_entropy", {"R": 5, "C": 300}, "fp16", {"BLOCK": 64, "SPLIT": 1, "ROWS": 1, **LOOP}),
    ("cross_entropy", {"R": 5, "C": 300}, "fp32", {"BLOCK": 64, "SPLIT": 4, "ROWS": 1, **LOOP}),
    ("embedding", {"T": 7, "V": 50, "C": 300}, "bf16", {"ROWS": 2, "BLOCK": 128, "num_warps": 4}),
    ("rotary", {"T": 7, "H": 5, "D": 32}, "bf16", {"TOKENS": 2, "HEADS": 2, "num_warps": 4}),
    ("rotary", {"T": 7, "H": 5, "D": 64}, "fp16", {"TOKENS": 1, "HEADS": 8, "num_warps": 4}),
    ("top_k", {"R": 3, "C": 50, "K": 4}, "bf16", {"BLOCK": 64, "ROWS": 2, "SPLIT": 1, "num_warps": 4}),
    ("top_k", {"R": 2, "C": 100, "K": 7}, "fp16", {"BLOCK": 64, "ROWS": 1, "SPLIT": 1, "num_warps": 4}),
    ("top_k", {"R": 1, "C": 200, "K": 3}, "fp32", {"BLOCK": 64, "ROWS": 1, "SPLIT": 2, "num_warps": 4}),
    ("top_k", {"R": 5, "C": 300, "K": 1}, "bf16", {"BLOCK": 512, "ROWS": 2, "SPLIT": 1, "num_warps": 4}),
    ("top_k", {"R": 3, "C": 300, "K": 1}, "fp32", {"BLOCK": 64, "ROWS": 1, "SPLIT": 4, "num_warps": 4}),
    ("top_k", {"R": 1, "C": 150, "K": 9}, "fp32", {**COUNTED, "BLOCK": 64, "SPLIT": 2}),
    ("top_k", {"R": 3, "C": 65, "K": 1}, "fp16", {**COUNTED, "BLOCK": 256}),
    ("conv2d", IMAGE, "fp16", {**PIXELS, "KERNEL": "gather"}),
    ("conv2d", {**IMAGE, "C": 32, "KS": 1, "S": 1, "P": 0}, "fp16", {**PIXELS, "BK": 32, "GM": 1}),       # older: without a kernel
    ("conv2d", {**IMAGE, "C": 1, "KS": 1, "S": 4, "P": 0}, "fp16", {**PIXELS, "KERNEL": "gather"}),
    ("conv2d", {**IMAGE, "B": 1, "H": 14, "W": 15, "C": 3, "KS": 7, "P": 3}, "fp16", {**PIXELS, "BK": 64, "KERNEL": "flat"}),
    *(("conv2d", {**ALIGNED, **shape}, "fp16", {**PIXELS, "KERNEL": kernel})
      for kernel in ("gather", "boxes", "boxes, persistent")
      for shape in ({"H": 8, "W": 6, "C": 32, "S": 2}, {"W": 6, "C": 32, "KS": 1, "S": 3, "P": 0},
                    {"B": 1, "H": 8, "W": 8, "C": 32, "KS": 2, "S": 4, "P": 3})),
    *(("conv2d", {**ALIGNED, "C": 40, "F": 72, "KS": 1, "P": 0}, "fp16", {**PIXELS, "KERNEL": f"product, {kernel}"})
      for kernel in ("tma", "persistent")),
    ("int4_matmul", {"M": 5, "N": 70, "K": 256}, "fp16", {"BM": 16, "BN": 32, "BK": 32, "GM": 8, "SPLIT_K": 1, **LOOP}),
    ("int4_matmul", {"M": 1, "N": 72, "K": 256}, "bf16", {**VECTOR, "BM": 1, "BN": 64, "BK": 16, "SPLIT_K": 2}),
    ("int4_matmul", {"M": 9, "N": 264, "K": 512}, "fp16", {**WORDS, "BM": 16, "BK": 64, "SPLIT_K": 4}),
    *(("int4_matmul", {"M": 70, "N": 264, "K": 256}, "fp16", {**UNPACKED, "BN": columns, "KERNEL": f"unpacked, {kernel}"})
      for kernel, columns in (("tma", 128), ("persistent", 256))),
    ("fp8_block_matmul", {"M": 20, "N": 140, "K": 256}, "fp8", {"BM": 16, "BN": 64, "BK": 64, "GM": 8, **LOOP}),
]
DEEP = [            # larger shapes, and more of them
    ("top_k", {"R": 5, "C": 300, "K": 8}, "bf16", {"BLOCK": 512, "ROWS": 2, "SPLIT": 1, "num_warps": 4}),
    ("top_k", {"R": 5, "C": 300, "K": 7}, "fp16", {"BLOCK": 64, "ROWS": 1, "SPLIT": 1, "num_warps": 4}),
    ("top_k", {"R": 3, "C": 300, "K": 7}, "fp32", {"BLOCK": 64, "ROWS": 1, "SPLIT": 4, "num_warps": 4}),
    ("top_k", {"R": 1, "C": 66000, "K": 2}, "bf16", {"BLOCK": 2048, "ROWS": 1, "SPLIT": 1, "num_warps": 4}),
    ("top_k", {"R": 5, "C": 777, "K": 64}, "bf16", COUNTED),
    ("top_k", {"R": 2, "C": 777, "K": 33}, "fp32", {**COUNTED, "BLOCK": 256, "SPLIT": 4}),
    ("top_k", {"R": 1, "C": 70001, "K": 50}, "fp16", {**COUNTED, "BLOCK": 4096, "SPLIT": 8}),
    ("conv2d", IMAGE, "fp16", {**PIXELS, "KERNEL": "flat"}),
    ("conv2d", {**IMAGE, "H": 12, "W": 12, "C": 1, "KS": 11, "S": 1, "P": 8}, "fp16", {**PIXELS, "BM": 128, "KERNEL": "flat"}),
    *(("conv2d", {**ALIGNED, **shape}, "fp16", {**PIXELS, "KERNEL": kernel})
      for kernel in ("gather", "boxes", "boxes, persistent") for shape in ({}, {"B": 3, "KS": 5, "P": 0})),
    ("int4_matmul", {"M": 20, "N": 64, "K": 512}, "fp16", {"BM": 16, "BN": 32, "BK": 64, "GM": 8, "SPLIT_K": 2, **LOOP}),
    ("int4_matmul", {"M": 1, "N": 200, "K": 512}, "fp16", {**VECTOR, "SPLIT_K": 4}),
    ("int4_matmul", {"M": 3, "N": 72, "K": 256}, "bf16", {**VECTOR, "BM": 4, "BN": 64, "BK": 8, "SPLIT_K": 1}),
    ("int4_matmul", {"M": 33, "N": 520, "K": 640}, "fp16", {**WORDS, "BM": 16, "BK": 32, "SPLIT_K": 1}),
    *(("int4_matmul", {"M": 70, "N": 264, "K": 256}, "fp16", {**UNPACKED, "BN": 64, "KERNEL": f"unpacked, {kernel}"})
      for kernel in ("persistent", "tiles")),
]
LOSSES = """
import torch
from tests.tuner.measure.interpreted import patch_language_once
from tuner.tuning.kernels.cross_entropy import PROBLEMS
patch_language_once()
loss = PROBLEMS["cross_entropy"]({"R": 3, "C": 200}, "fp32", torch.device("cpu"), 1)
loss.x[:, 64:] = -torch.inf                             # classes that a mask left out: a whole block of them
loss.x[0] = 60000.0
loss.targets.clamp_(max=63)
for config in ({"BLOCK": 64, "SPLIT": 1, "ROWS": 1}, {"BLOCK": 64, "SPLIT": 2, "ROWS": 1}, {"BLOCK": 256, "SPLIT": 1, "ROWS": 2}):
    loss.out.fill_(torch.nan)
    loss.launch({**config, "num_warps": 4, "num_stages": 1})
    torch.testing.assert_close(loss.out, loss.reference())
print("all right")
"""
EQUALS = """
import json, sys, torch
from tests.tuner.measure.interpreted import patch_language_once
from tuner.tuning.kernels.top_k import PROBLEMS
patch_language_once()
for dtype, columns, k, kernels in json.loads(sys.argv[1]):
    top = PROBLEMS["top_k"]({"R": 6, "C": columns, "K": k}, dtype, torch.device("cpu"), 1)
    top.x[0] = 0.0                                      # all alike: the first columns
    top.x[1] = -torch.inf
    top.x[1, columns * 3 // 4] = -1.0
    top.x[2, ::2], top.x[2, 1::2] = -0.0, 0.0           # neither is the larger
    top.x[3] = torch.arange(columns, 0, -1)
    top.x[4] = torch.arange(columns) // 3
    top.x[5] = torch.randint(0, 3, (columns,))
    for kernel, block, split in kernels:
        for again in range(2):                          # what the first launch left is no hindrance
            top.out.fill_(torch.nan)
            top.launch({"KERNEL": kernel, "BLOCK": block, "ROWS": 1, "SPLIT": split, "num_warps": 4})
            assert torch.equal(top.out, top.reference()), (dtype, kernel, block, split, top.out, top.reference())
print("all right")
"""
SORTING = (("sorting", 256, 1), ("sorting", 32, 1), ("sorting", 32, 4))            # kernel, block, split
THRESHOLD = (("threshold", 512, 1), ("threshold", 32, 2))
EQUAL = [("bf16", 200, 8, (*SORTING, *THRESHOLD)), ("fp32", 200, 8, (*SORTING, *THRESHOLD)),
         ("fp16", 200, 1, (*SORTING, *THRESHOLD)), ("fp32", 200, 64, THRESHOLD)]
EQUAL_FEW = [("bf16", 70, 4, (("sorting", 32, 2), ("threshold", 32, 2))),
             ("fp32", 40, 2, (("sorting", 64, 1), ("threshold", 64, 1)))]


@pytest.mark.torch
@pytest.mark.parametrize("cases", [*cases_of_each(CASES), *cases_of_each(DEEP, deep=True)])
def test_every_way_of_every_kernel_is_right(cases):
    assert interpret(RIGHT, cases) == "all right\n"


def test_every_kernel_has_its_cases():
    assert {name for name, *_ in CASES} == set(NAMES)


@pytest.mark.torch
@about("cross_entropy")
def test_masked_logits():
    assert interpret(LOSSES) == "all right\n"


@pytest.mark.torch
@about("top_k")
@pytest.mark.parametrize("cases", [EQUAL_FEW, pytest.param(EQUAL, marks=pytest.mark.deep_only)], ids=["few", "all"])
def test_equal_values(cases):
    assert interpret(EQUALS, cases) == "all right\n"


@pytest.mark.torch
@pytest.mark.parametrize(("name", "capability"), each_gpu(NAMES))
def test_the_default_configuration_compiles_with_resource_facts(name, capability, binaries):
    operator, device = OPERATORS[name], limits(GPUS[capability], capability)
    shape, dtype = operator.presets[0], operator.dtypes[0]
    configs = [operator.default_config(shape, dtype, device)] if len(operator.space(shape, dtype, device)) else []
    assert configs or (name, capability) == ("fp8_block_matmul", "8.0")
    check(facts_of(binaries, capability, name, shape, dtype, configs))


@pytest.mark.torch
@pytest.mark.deep_only
@pytest.mark.parametrize("name", each_operator(*(name for name in NAMES if OPERATORS[name].starts)))
def test_published_designs_compile_with_resource_facts(name, binaries):
    operator, device = OPERATORS[name], limits(GPUS["9.0"], "9.0")
    shape, dtype = operator.presets[0], operator.dtypes[0]
    configs = operator.published_starts(operator.space(shape, dtype, device), shape, dtype, device)
    assert configs
    check(facts_of(binaries, "9.0", name, shape, dtype, configs))


def check(found):
    for facts in found:
        assert 8 <= facts["registers"] <= 255 and facts["spills"] <= 8, facts
        assert facts["blocks_per_sm"] >= 1, facts


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_spaces_hold_default_and_published_designs_and_are_wide_enough_to_search(name):
    operator, sizes = OPERATORS[name], []
    for gpu in ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "some future GPU"):
        device = limits(gpu)
        for shape in operator.presets:
            for dtype in operator.dtypes:
                space = operator.space(shape, dtype, device)
                published = operator.published_starts(space, shape, dtype, device)
                assert len(set(map(str, published))) == len(published)
                if gpu == "NVIDIA H200":
                    assert operator.default_config(shape, dtype, device) in space
                    assert published or not operator.starts, shape
                    sizes.append(len(space))
    assert all(20 <= size <= 2500 for size in sizes) and max(sizes) >= 90, sizes


def test_costs_by_hand():
    assert {name: (OPERATORS[name].flops(shape), OPERATORS[name].bytes(shape, dtype)) for name, shape, dtype in (
        ("cross_entropy", {"R": 3, "C": 10}, "bf16"), ("embedding", {"T": 3, "V": 100, "C": 10}, "bf16"),
        ("rotary", {"T": 3, "H": 2, "D": 32}, "bf16"), ("top_k", {"R": 3, "C": 10, "K": 2}, "bf16"), ("conv2d", IMAGE, "fp16"),
        ("int4_matmul", {"M": 2, "N": 3, "K": 256}, "bf16"), ("fp8_block_matmul", {"M": 2, "N": 3, "K": 256}, "fp8"))} == {
        "cross_entropy": (120, 60 + 36), "embedding": (0, 120 + 24), "rotary": (576, 2 * (3 * 2 * 32 * 2 + 3 * 32) + 24),
        "top_k": (30, 60 + 48), "conv2d": (2 * 2 * 5 * 4 * 35 * 9 * 20, 2 * (2 * 9 * 7 * 20 + 35 * 9 * 20 + 2 * 5 * 4 * 35)),
        "int4_matmul": (2 * 2 * 3 * 256, 2 * (2 * 256 + 2 * 3 + 2 * 3) + 3 * 128),
        "fp8_block_matmul": (2 * 2 * 3 * 256, 5 * 256 + 4 * (2 + 1) * 2 + 2 * 2 * 3)}


@pytest.mark.parametrize(("name", "shape", "field"), [
    ("top_k", {"R": 4, "C": 5, "K": 6}, "K"), ("conv2d", {**IMAGE, "H": 1, "P": 0}, "KS"),
    ("int4_matmul", {"M": 1, "N": 8, "K": 200}, "K"), ("fp8_block_matmul", {"M": 1, "N": 8, "K": 200}, "K")])
def test_shapes_that_make_no_sense_are_refused_at_their_field(name, shape, field):
    assert list(OPERATORS[name].problems(shape, OPERATORS[name].dtypes[0])) == [field]
