"""The Triton kernels against their references on the CPU (interpreted), and compiled for GPUs that are not here."""

import json

import pytest

from tests.tuner.measure.chosen import about, cases_of_each, each_gpu, import_triton
from tests.tuner.measure.programs import RIGHT, interpret
from tests.warm.parent import run_program

import_triton()

pytestmark = pytest.mark.torch
COMPILE = "import sys; from tests.tuner.measure.operators.compile_offline import main; main(*sys.argv[1:])"
DOTS = {"8.0": ["mma.sync"], "9.0": ["wgmma"], "10.0": ["tcgen05.mma"]}
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


@pytest.mark.parametrize("cases", cases_of_each(CASES))
def test_kernels_agree_with_their_references(cases):
    """bf16 dots are left to the GPU: Triton's interpreter computes them as infinity (3.7.1)."""
    assert interpret(RIGHT, cases) == "all right\n"


@pytest.mark.parametrize(("name", "capability"), each_gpu(("matmul", "softmax", "layernorm", "attention")))
def test_recorded_best_configurations_compile(name, capability, binaries):
    """No GPU, no driver: shared memory and instructions read from what the compiler made."""
    found = json.loads(run_program(COMPILE, name, capability, TRITON_CACHE_DIR=str(binaries))[0])
    assert found["cubin_bytes"] and found["dots"] == (DOTS[capability] if name in ("matmul", "attention") else [])


@about("matmul")
@pytest.mark.parametrize(("shape", "words"), [
    ({"M": 0, "N": 1, "K": 1}, "M must be a whole number"),
    ({"M": 65536, "N": 65536, "K": 16}, "C has 4,294,967,296 elements"),
])
def test_shapes_that_would_wrap_around_are_refused(shape, words):
    import torch

    from tuner.tuning.kernels.matmul import Matmul
    with pytest.raises(ValueError, match=words):
        Matmul(shape, "bf16", torch.device("meta"), 0)
