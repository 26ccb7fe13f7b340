"""Row-wise and streaming kernels: right on the CPU (interpreted) in every way they have, compiled for GPUs that are not here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.operators import OPERATORS, limits

PROJECT = Path(__file__).resolve().parents[3]
NAMES = ("softmax", "layernorm", "rmsnorm", "add_rmsnorm", "silu_mul", "row_sum", "transpose")
SMALL = {"R": 5, "C": 300}
GPUS = {"8.0": "NVIDIA A100-SXM4-80GB", "9.0": "NVIDIA H200", "10.0": "NVIDIA B200"}

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
RIGHT = """
import importlib, json, sys, torch
from tests.tuner.measure.interpreted import patch_language_once
from tuner.measure import accuracy
from tuner.operators import OPERATORS
patch_language_once()
for name, shape, dtype, config in json.loads(sys.argv[1]):
    operator = OPERATORS[name]
    problem = importlib.import_module(operator.kernel_module).PROBLEMS[name](shape, dtype, torch.device("cpu"), 3)
    for seed in (1, 2):
        _, verdict = accuracy.check_config(problem, config, seed, operator.tolerance[dtype])
        assert verdict.right, (name, shape, config, verdict)
    reference = problem.reference()
    theirs = problem.library()
    expected = reference if theirs.shape == reference.shape else reference[0]
    library = accuracy.compare_output(theirs, expected, operator.tolerance[dtype])
    assert library.right, (name, library)
    problem.launch = lambda config: problem.out.mul_(1.05) if name != "transpose" else problem.out.copy_(problem.out.flip(0))
    problem.out.copy_(reference)
    assert not accuracy.compare_output(problem.launch(config), reference, operator.tolerance[dtype]).right, name
print("all right")
"""
COMPILED = """
import importlib, json, sys, torch
from tuner.measure import offline
from tuner.operators import OPERATORS
for capability, name, shape, dtype, configs in json.loads(sys.argv[1]):
    offline.set_target(capability, 132)
    problem = importlib.import_module(OPERATORS[name].kernel_module).PROBLEMS[name](shape, dtype, torch.device("meta"), 3)
    for config in configs:
        facts = offline.static_facts(problem.compile(config), capability)
        print(json.dumps([capability, name, facts]))
"""


def python(program: str, data: object, **environ: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, json.dumps(data)], cwd=PROJECT, capture_output=True, text=True,
                          timeout=250, env={**os.environ, **environ})
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.torch
def test_every_way_of_every_kernel_is_right():
    pytest.importorskip("triton")
    assert {name for name, *_ in CASES} == set(NAMES)
    assert python(RIGHT, CASES, TRITON_INTERPRET="1") == "all right\n"


@pytest.mark.torch
def test_they_compile_for_three_architectures_with_resource_facts(tmp_path):
    """What a tune job would start with: the default configuration and the published designs of a preset."""
    pytest.importorskip("triton")
    wanted = []
    for capability, gpu in GPUS.items():
        for name in NAMES:
            operator, shape = OPERATORS[name], OPERATORS[name].presets[0]
            device = limits(gpu, capability)
            configs = [operator.default_config(shape, operator.dtypes[0], device)]
            configs += operator.starts(shape, operator.dtypes[0], device) if operator.starts and capability == "9.0" else ()
            wanted.append((capability, name, shape, operator.dtypes[0], configs))
    lines = [json.loads(line) for line in python(COMPILED, wanted, TRITON_CACHE_DIR=str(tmp_path)).splitlines()]
    assert len(lines) == sum(len(configs) for *_, configs in wanted)
    for capability, name, facts in lines:
        assert 8 <= facts["registers"] <= 255 and facts["spills"] == 0, (capability, name, facts)
        assert facts["smem_bytes"] <= 163 * 1024 and facts["blocks_per_sm"] >= 1, (capability, name, facts)


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
