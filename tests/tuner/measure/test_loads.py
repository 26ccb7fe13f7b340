"""What the compiler makes of loops and loads: 16 bytes a load where rows allow it, loops that are unrolled, no waiting in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.kernels.extents import unit_of
from tuner.operators import OPERATORS, limits
from tuner.operators.rowwise import STAGES_UNREAD

ROOT = Path(__file__).parents[3]
COMPILED = """
import importlib, json, re, sys, torch
from tuner.measure import offline
from tuner.operators import OPERATORS
from tuner.operators.limits import limits

offline.set_target("9.0", 132)
for name, shape, changed in json.loads(sys.argv[1]):
    operator = OPERATORS[name]
    config = {**operator.default_config(shape, "bf16", limits("NVIDIA H200", "9.0", 132)), **changed}
    problem = importlib.import_module(operator.kernel_module).PROBLEMS[name](shape, "bf16", torch.device("meta"), 1)
    compiled = problem.compile(config)
    ptx = (compiled[0] if isinstance(compiled, list) else compiled).asm["ptx"]
    code = "".join(line for line in ptx.splitlines(True) if not line.lstrip().startswith((".loc", ".file", "//")))
    print(json.dumps({"narrow": len(re.findall(r"\\b(?:ld|st)\\.global\\S*\\.b16", ptx)), "shuffles": ptx.count("shfl.sync"),
                      "wide": len(re.findall(r"\\b(?:ld|st)\\.global\\S*\\.v[48]|cp\\.async\\S* \\[[^,]+, 0x10", ptx)),
                      "code": hash(code)}))
"""
WHOLE = {"PASSES": 1, "BLOCK": 4096, "ROWS": 1, "num_warps": 8, "num_stages": 1}
BLOCKS = {"PASSES": 2, "BLOCK": 512, "ROWS": 1, "num_warps": 2, "num_stages": 1, "UNROLL": 1}
LOSSES = {"BLOCK": 2048, "num_warps": 8, "num_stages": 1, "SPLIT": 1, "ROWS": 1, "UNROLL": 1}
TMA = {"KERNEL": "tma", "BM": 128, "BN": 128, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 4, "SPLIT_K": 1, "STORE": "direct"}


def compiled(*cases: tuple[str, dict[str, int], dict[str, object]]) -> list[dict[str, int]]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    done = subprocess.run([sys.executable, "-c", COMPILED, json.dumps(cases)], cwd=ROOT, env=environ, timeout=280, check=False,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_unit_of_extents() -> None:
    assert [unit_of(each) for each in (4096, 3000, 1002, 777)] == [16, 8, 2, 1]
    assert unit_of(4104, 1000) == 8 and unit_of(48, 20) == 4


@pytest.mark.torch
def test_rows_of_a_multiple_of_eight_are_read_16_bytes_at_a_time() -> None:
    """Triton sees multiples of 16 by itself: rows of 3,000 it took number by number."""
    pytest.importorskip("triton")
    rows = {"R": 64, "C": 3000}
    cases: list[tuple[str, dict[str, int], dict[str, object]]] = [
        ("softmax", rows, {}), ("softmax", rows, {"ROWS": 2}), ("softmax", rows, {"BLOCK": 2048, "STEPS": 1}),
        *((name, rows, {**way}) for name in ("layernorm", "rmsnorm", "add_rmsnorm") for way in (BLOCKS, WHOLE)),
        ("silu_mul", rows, {}), ("row_sum", rows, {}),
        ("transpose", {"R": 1000, "C": 3000}, {}), ("embedding", {"T": 64, "V": 500, "C": 3000}, {}),
        ("top_k", {"R": 64, "C": 3000, "K": 8}, {}),
        ("top_k", {"R": 8, "C": 50264, "K": 8}, {"KERNEL": "threshold", "BLOCK": 1024, "SPLIT": 8}),
        ("matmul", {"M": 1000, "N": 4104, "K": 1000}, {**TMA}), ("matmul", {"M": 1000, "N": 4104, "K": 1000}, {"KERNEL": "tiles"}),
        ("grouped_matmul", {"M": 1000, "E": 24, "N": 1032, "K": 520}, {})]
    for case, found in zip(cases, compiled(*cases), strict=True):
        assert found["wide"] and found["narrow"] <= (case[0] == "row_sum"), (case, found)           # a sum has 16 bits
    odd, = compiled(("layernorm", {"R": 64, "C": 777}, {**BLOCKS}))
    assert odd["narrow"] and not odd["wide"]


@pytest.mark.torch
def test_threads_of_a_cross_entropy_wait_for_each_other_once_a_row() -> None:
    """A reduction over the threads in the loop would be there once more in each unrolled step."""
    pytest.importorskip("triton")
    shapes = ({"R": 64, "C": 128256}, {"R": 64, "C": 50264}, {"R": 64, "C": 50257})
    for shape in shapes:
        once, four = compiled(*(("cross_entropy", shape, {**LOSSES, "UNROLL": unrolled}) for unrolled in (1, 4)))
        assert once["shuffles"] == four["shuffles"] and once["code"] != four["code"], (shape, once, four)
    shared, = compiled(("cross_entropy", shapes[0], {**LOSSES, "SPLIT": 16}))
    assert shared["wide"] and shared["narrow"] == 1                                                # the target's number


@pytest.mark.torch
def test_loops_are_unrolled_and_stages_that_nothing_reads_are_one() -> None:
    pytest.importorskip("triton")
    shape, gpu = {"R": 64, "C": 8192}, limits("NVIDIA H200")
    for name, blocks in (("layernorm", BLOCKS), ("rmsnorm", BLOCKS), ("add_rmsnorm", BLOCKS), ("row_sum", {"BLOCK": 512})):
        kinds = compiled(*((name, shape, {**blocks, "UNROLL": unrolled, "num_stages": stages})
                           for unrolled, stages in ((1, 1), (1, 3), (2, 1), (4, 1))))
        one, staged, two, four = (each["code"] for each in kinds)
        assert one == staged and len({one, two, four}) == 3, name
        operator = OPERATORS[name]
        older = {each: value for each, value in operator.default_config(shape, "bf16", gpu).items() if each != "UNROLL"}
        assert operator.complete({**older, "num_stages": 3}) == {**older, "UNROLL": 1, **STAGES_UNREAD}
        assert operator.complete({**older, "num_stages": 3}) in operator.space(shape, "bf16", gpu)
