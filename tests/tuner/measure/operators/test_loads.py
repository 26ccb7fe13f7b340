"""What the compiler makes of loops and loads: 16 bytes a load where rows allow it, loops that are unrolled, no waiting in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuner.measure.chosen import about, cases_of_each, each_operator, import_triton
from tests.tuner.measure.programs import compile_lines
from tuner.tuning.operators import OPERATORS, limits
from tuner.tuning.operators.rowwise import STAGES_UNREAD

COMPILED = """
import hashlib, importlib, json, re, sys, torch
from tuner.tuning.measure import offline
from tuner.tuning.operators import OPERATORS
from tuner.tuning.operators.limits import limits

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
                      "code": hashlib.sha256(code.encode()).hexdigest()}))
"""
WHOLE = {"PASSES": 1, "BLOCK": 4096, "ROWS": 1, "num_warps": 8, "num_stages": 1}
BLOCKS = {"PASSES": 2, "BLOCK": 512, "ROWS": 1, "num_warps": 2, "num_stages": 1, "UNROLL": 1}
LOSSES = {"BLOCK": 2048, "num_warps": 8, "num_stages": 1, "SPLIT": 1, "ROWS": 1, "UNROLL": 1}
TMA = {"KERNEL": "tma", "BM": 128, "BN": 128, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 4, "SPLIT_K": 1, "STORE": "direct"}


ROWS = {"R": 64, "C": 3000}
WIDE = [            # operator, shape, configuration beside the default one
    ("softmax", ROWS, {}), ("layernorm", ROWS, BLOCKS), ("rmsnorm", ROWS, WHOLE), ("add_rmsnorm", ROWS, BLOCKS),
    ("silu_mul", ROWS, {}), ("row_sum", ROWS, {}),
    ("transpose", {"R": 1000, "C": 3000}, {}), ("embedding", {"T": 64, "V": 500, "C": 3000}, {}),
    ("top_k", {"R": 64, "C": 3000, "K": 8}, {}),
    ("matmul", {"M": 1000, "N": 4104, "K": 1000}, {"KERNEL": "tiles"}),
    ("grouped_matmul", {"M": 1000, "E": 24, "N": 1032, "K": 520}, {})]
WIDE_DEEP = [
    ("softmax", ROWS, {"ROWS": 2}), ("softmax", ROWS, {"BLOCK": 2048, "STEPS": 1}), ("layernorm", ROWS, WHOLE),
    ("rmsnorm", ROWS, BLOCKS), ("add_rmsnorm", ROWS, WHOLE),
    ("top_k", {"R": 8, "C": 50264, "K": 8}, {"KERNEL": "threshold", "BLOCK": 1024, "SPLIT": 8}),
    ("matmul", {"M": 1000, "N": 4104, "K": 1000}, TMA)]
LONG = {"R": 64, "C": 128256}
NORMS = {"layernorm": BLOCKS, "rmsnorm": BLOCKS, "add_rmsnorm": BLOCKS, "row_sum": {"BLOCK": 512}}


def test_the_unit_of_extents() -> None:
    import_triton()
    from tuner.tuning.kernels.extents import unit_of
    assert [unit_of(each) for each in (4096, 3000, 1002, 777)] == [16, 8, 2, 1]
    assert unit_of(4104, 1000) == 8 and unit_of(48, 20) == 4


@pytest.mark.torch
@pytest.mark.parametrize("cases", [*cases_of_each(WIDE), *cases_of_each(WIDE_DEEP, deep=True)])
def test_rows_of_a_multiple_of_eight_are_read_16_bytes_at_a_time(cases, binaries: Path) -> None:
    """Triton sees multiples of 16 by itself: rows of 3,000 it took number by number."""
    for case, found in zip(cases, compile_lines(COMPILED, cases, binaries), strict=True):
        assert found["wide"] and found["narrow"] <= (case[0] == "row_sum"), (case, found)           # a sum has 16 bits


@pytest.mark.torch
@about("layernorm")
def test_odd_rows_are_read_number_by_number(binaries: Path) -> None:
    odd, = compile_lines(COMPILED, [("layernorm", {"R": 64, "C": 777}, BLOCKS)], binaries)
    assert odd["narrow"] and not odd["wide"]


@pytest.mark.torch
@about("cross_entropy")
@pytest.mark.parametrize("columns", [pytest.param(128256, marks=pytest.mark.deep_only), 50264,
                                     pytest.param(50257, marks=pytest.mark.deep_only)])
def test_threads_of_a_cross_entropy_wait_for_each_other_once_a_row(columns: int, binaries: Path) -> None:
    """A reduction over the threads in the loop would be there once more in each unrolled step."""
    once, four = compile_lines(COMPILED, [("cross_entropy", {"R": 64, "C": columns}, {**LOSSES, "UNROLL": unrolled})
                                          for unrolled in (1, 4)], binaries)
    assert once["shuffles"] == four["shuffles"] and once["code"] != four["code"], (once, four)


@pytest.mark.torch
@about("cross_entropy")
def test_a_cross_entropy_in_parts_is_read_16_bytes_at_a_time(binaries: Path) -> None:
    shared, = compile_lines(COMPILED, [("cross_entropy", LONG, {**LOSSES, "SPLIT": 16})], binaries)
    assert shared["wide"] and shared["narrow"] == 1                                                # the target's number


@pytest.mark.torch
@pytest.mark.parametrize("name", [*each_operator("layernorm"), *each_operator(*list(NORMS)[1:], marks=(pytest.mark.deep_only,))])
def test_loops_are_unrolled_and_stages_that_nothing_reads_are_one(name: str, binaries: Path) -> None:
    kinds = compile_lines(COMPILED, [(name, {"R": 64, "C": 8192}, {**NORMS[name], "UNROLL": unrolled, "num_stages": stages})
                                     for unrolled, stages in ((1, 1), (1, 3), (2, 1), (4, 1))], binaries)
    one, staged, two, four = (each["code"] for each in kinds)
    assert one == staged and len({one, two, four}) == 3


@pytest.mark.parametrize("name", NORMS)
def test_what_an_older_configuration_says_of_stages_is_left_out(name: str) -> None:
    operator, shape, gpu = OPERATORS[name], {"R": 64, "C": 8192}, limits("NVIDIA H200")
    older = {each: value for each, value in operator.default_config(shape, "bf16", gpu).items() if each != "UNROLL"}
    assert operator.complete({**older, "num_stages": 3}) == {**older, "UNROLL": 1, **STAGES_UNREAD}
    assert operator.complete({**older, "num_stages": 3}) in operator.space(shape, "bf16", gpu)
