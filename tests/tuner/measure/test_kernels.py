"""The Triton kernels against their references on the CPU (interpreted), and compiled for GPUs that are not here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = pytest.mark.torch

PROJECT = Path(__file__).resolve().parents[3]
CHECK = """
import json, sys, torch
from tuner.measure import accuracy
from tuner.operators import OPERATORS
import importlib
for name, shape, dtype, config in json.loads(sys.argv[1]):
    operator = OPERATORS[name]
    problem = importlib.import_module(operator.kernel_module).PROBLEMS[name](shape, dtype, torch.device("cpu"), 3)
    for seed in (1, 2):
        before = problem.out.clone()
        _, verdict = accuracy.check_config(problem, config, seed, accuracy.TOLERANCE[dtype])
        assert verdict.right, (name, shape, config, verdict)
        assert not torch.equal(before, problem.out)
    library = accuracy.compare_output(problem.library(), problem.reference(), accuracy.TOLERANCE[dtype])
    assert library.right, (name, library)
print("all right")
"""
ROWS = {"num_warps": 4}
TILE = {"num_warps": 4, "num_stages": 2}
CASES = [
    ("matmul", {"M": 70, "N": 100, "K": 48}, "fp16", {"BM": 32, "BN": 32, "BK": 32, "GM": 8, **TILE}),
    ("matmul", {"M": 16, "N": 64, "K": 33}, "fp32", {"BM": 16, "BN": 32, "BK": 32, "GM": 1, **TILE}),
    ("matmul", {"M": 130, "N": 33, "K": 20}, "fp16", {"BM": 64, "BN": 64, "BK": 32, "GM": 2, **TILE}),
    ("softmax", {"R": 5, "C": 300}, "fp16", {"STEPS": 2, "PER_SM": 2, **ROWS}),
    ("softmax", {"R": 1, "C": 64}, "bf16", {"STEPS": 4, "PER_SM": 32, **ROWS}),
    ("layernorm", {"R": 5, "C": 300}, "fp16", {"BLOCK": 128, **TILE}),
    ("layernorm", {"R": 3, "C": 100}, "bf16", {"BLOCK": 1024, **TILE}),
    ("attention", {"B": 1, "H": 2, "N": 100, "D": 16, "causal": 1}, "fp16", {"BM": 32, "BN": 16, **TILE}),
    ("attention", {"B": 2, "H": 1, "N": 65, "D": 32, "causal": 0}, "fp16", {"BM": 16, "BN": 64, **TILE}),
]


def python(*args: str, **environ: str) -> str:
    done = subprocess.run([sys.executable, *args], cwd=PROJECT, capture_output=True, text=True, timeout=250,
                          env={**os.environ, **environ})
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_kernels_agree_with_their_references():
    """bf16 dots are left to the GPU: Triton's interpreter computes them as infinity (3.7.1)."""
    import json
    assert python("-c", CHECK, json.dumps(CASES), TRITON_INTERPRET="1") == "all right\n"


def test_recorded_best_configurations_compile_for_three_architectures(tmp_path):
    """No GPU, no driver: registers and shared memory read from what the compiler made."""
    out = python("-m", "tests.tuner.measure.compile_offline", TRITON_CACHE_DIR=str(tmp_path))
    lines = out.splitlines()
    assert len(lines) == 12
    assert sum("wgmma" in line for line in lines) == 2          # matmul and attention on sm_90
    assert sum("tcgen05" in line for line in lines) == 2        # … and on sm_100


@pytest.mark.parametrize(("shape", "words"), [
    ({"M": 0, "N": 1, "K": 1}, "M must be a whole number"),
    ({"M": 65536, "N": 65536, "K": 16}, "C has 4,294,967,296 elements"),
])
def test_shapes_that_would_wrap_around_are_refused(shape, words):
    import torch

    from tuner.kernels.matmul import Matmul
    with pytest.raises(ValueError, match=words):
        Matmul(shape, "bf16", torch.device("meta"), 0)
