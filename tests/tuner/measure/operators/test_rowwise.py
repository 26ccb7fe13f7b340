"""Row-wise and streaming kernels: right on the CPU (interpreted) in every way they have, compiled for GPUs that are not here."""

import pytest

from tests.tuner.measure.chosen import GPUS, cases_of_each, each_gpu, each_operator
from tests.tuner.measure.programs import RIGHT, facts_of, interpret
from tuner.tuning.operators import OPERATORS, limits

NAMES = ("softmax", "layernorm", "rmsnorm", "add_rmsnorm", "silu_mul", "row_sum", "transpose")
SMALL = {"R": 5, "C": 300}

SOFTMAX = {"STEPS": 2, "PER_SM": 2, "num_warps": 4}
NORM = {"num_warps": 4, "num_stages": 1}
CASES = [     # operator, shape, dtype, configuration: each way of each kernel, tiles that do not divide the shape
    ("softmax", SMALL, "fp16", {**SOFTMAX, "ROWS": 1, "BLOCK": 0}),
    ("softmax", SMALL, "bf16", {**SOFTMAX, "ROWS": 4, "BLOCK": 0}),
    ("softmax", SMALL, "fp16", {**SOFTMAX, "ROWS": 1, "BLOCK": 128}),
    ("softmax", {"R": 1, "C": 64}, "fp16", {**SOFTMAX, "ROWS": 2, "BLOCK": 0}),
    ("layernorm", SMALL, "fp16", {**NORM, "BLOCK": 128, "PASSES": 2, "ROWS": 1}),
    ("layernorm", SMALL, "bf16", {**NORM, "BLOCK": 512, "PASSES": 1, "ROWS": 2}),
    ("rmsnorm", SMALL, "fp16", {**NORM, "BLOCK": 512, "PASSES": 1, "ROWS": 4}),
    ("rmsnorm", SMALL, "bf16", {**NORM, "BLOCK": 128, "PASSES": 2, "ROWS": 1}),
    ("add_rmsnorm", SMALL, "fp16", {**NORM, "BLOCK": 512, "PASSES": 1, "ROWS": 2}),
    ("add_rmsnorm", SMALL, "bf16", {**NORM, "BLOCK": 256, "PASSES": 2, "ROWS": 1}),
    ("silu_mul", SMALL, "fp16", {"ROWS": 2, "BLOCK": 128, "num_warps": 4}),
    ("silu_mul", SMALL, "bf16", {"ROWS": 1, "BLOCK": 512, "num_warps": 4}),
    ("row_sum", SMALL, "fp16", {"ROWS": 2, "BLOCK": 128, "SPLIT": 1, **NORM}),
    ("row_sum", SMALL, "bf16", {"ROWS": 4, "BLOCK": 128, "SPLIT": 2, **NORM}),
    ("row_sum", {"R": 1, "C": 5000}, "fp32", {"ROWS": 1, "BLOCK": 256, "SPLIT": 16, **NORM}),
    ("transpose", SMALL, "fp16", {"BM": 16, "BN": 64, "ORDER": "rows", "num_warps": 4}),
    ("transpose", {"R": 130, "C": 33}, "fp32", {"BM": 32, "BN": 16, "ORDER": "columns", "num_warps": 4}),
]


@pytest.mark.torch
@pytest.mark.parametrize("cases", cases_of_each(CASES))
def test_every_way_of_every_kernel_is_right(cases):
    assert interpret(RIGHT, cases) == "all right\n"


def test_every_kernel_has_its_cases():
    assert {name for name, *_ in CASES} == set(NAMES)


@pytest.mark.torch
@pytest.mark.parametrize(("name", "capability"), each_gpu(NAMES))
def test_the_default_configuration_compiles_with_resource_facts(name, capability, binaries):
    operator, device = OPERATORS[name], limits(GPUS[capability], capability)
    shape, dtype = operator.presets[0], operator.dtypes[0]
    check(*facts_of(binaries, capability, name, shape, dtype, [operator.default_config(shape, dtype, device)]))


@pytest.mark.torch
@pytest.mark.deep_only
@pytest.mark.parametrize("name", each_operator(*(name for name in NAMES if OPERATORS[name].starts)))
def test_published_designs_compile_with_resource_facts(name, binaries):
    operator = OPERATORS[name]
    shape, dtype = operator.presets[0], operator.dtypes[0]
    check(*facts_of(binaries, "9.0", name, shape, dtype, operator.starts(shape, dtype, limits(GPUS["9.0"], "9.0"))))


def check(*facts):
    assert facts
    for each in facts:
        assert 8 <= each["registers"] <= 255 and each["spills"] == 0, facts
        assert each["smem_bytes"] <= 163 * 1024 and each["blocks_per_sm"] >= 1, facts


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gpu", ["NVIDIA H200", "Tesla T4", "some future GPU"])
def test_default_and_published_configurations_are_in_the_space(name, gpu):
    operator, device = OPERATORS[name], limits(gpu)
    for shape in (*operator.presets, {"R": 1, "C": 1}, {"R": 3, "C": 70_000}):
        for dtype in operator.dtypes:
            space = operator.space(shape, dtype, device)
            assert operator.default_config(shape, dtype, device) in space, shape
            for config in operator.starts(shape, dtype, device) if operator.starts else ():
                assert config in space, (shape, config)


@pytest.mark.parametrize("name", NAMES)
def test_spaces_are_wide_enough_to_search_and_small_enough_to_list(name):
    operator = OPERATORS[name]
    sizes = [len(operator.space(shape, operator.dtypes[0], limits("NVIDIA H200"))) for shape in operator.presets]
    assert all(20 <= size <= 2500 for size in sizes) and max(sizes) >= 90, sizes


def test_costs_by_hand():
    shape = {"R": 3, "C": 10}
    costs = {name: (OPERATORS[name].flops(shape), OPERATORS[name].bytes(shape, "bf16")) for name in NAMES[2:]}
    assert costs == {"rmsnorm": (120, 120), "add_rmsnorm": (150, 240), "silu_mul": (150, 180), "row_sum": (30, 66),
                     "transpose": (0, 120)}


def test_a_thread_of_a_whole_row_holds_its_share_of_it() -> None:
    shape = {"R": 1024, "C": 10_000}
    config = {"STEPS": 1, "PER_SM": 4, "num_warps": 2, "ROWS": 1, "BLOCK": 0}
    held = OPERATORS["softmax"].held
    assert held is not None
    assert held(shape, config) == 256 and held(shape, {**config, "ROWS": 2}) == 512 and held(shape, {**config, "BLOCK": 4096}) == 0
