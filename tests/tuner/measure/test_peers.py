"""The peers of the GPU bench where there is no GPU: what is asked for and told, and Helion's kernels as Helion interprets them."""

import json
import lzma

import pytest

from tests.gpu.peers import markdown
from tests.tuner.measure.chosen import about
from tests.tuner.measure.programs import compile_lines
from tests.warm.parent import run_program
from tuner.tuning.operators import OPERATORS

ASKED = """
import json, sys
from pathlib import Path
from tests.gpu.peers import record, table
path, = json.loads(sys.argv[1])
rows = record.rows_of(Path(path), ["softmax", "matmul", "silu_mul"], 2)
print(json.dumps([[row["operator"], record.winner_of(row)] for row in rows]))
problem = type("Problem", (), {"fp8": False})()
told = []
for name, make in table.helion("matmul")(problem):
    try:
        make()
    except RuntimeError as error:
        told.append(str(error))
print(json.dumps([name, told]))
"""
INTERPRETED = """
import importlib, json, sys, torch
from tests.gpu.peers import helion_kernels
from tests.gpu.peers.table import HELION
from tuner.tuning.measure import accuracy
from tuner.tuning.operators import OPERATORS
cases = json.loads(sys.argv[1])
assert set(helion_kernels.FUNCTIONS) == set(HELION)
for name, shape in cases:
    problem = importlib.import_module(OPERATORS[name].kernel_module).PROBLEMS[name](shape, "bf16", torch.device("cpu"), 3)
    made, right = helion_kernels.kernel(name, "none", 1)(*helion_kernels.arguments(name, problem)), problem.reference()
    verdict = accuracy.compare_output(made.reshape(right.shape), right, accuracy.TOLERANCE["bf16"])
    assert verdict.right, (name, verdict.message)
print("all right")
"""
PAGES = """
import torch
from tests.gpu.peers.pages import over_pages
from torch.nn.attention.flex_attention import flex_attention
from tuner.tuning.kernels.decode.paged import PROBLEMS
from tuner.tuning.measure import accuracy
for heads, shared, size in ((4, 2, 16), (2, 2, 32)):
    shape = {"B": 4, "H": heads, "KV": shared, "N": 80, "D": 64, "PAGE": size}
    problem = PROBLEMS["paged_decode_attention"](shape, "fp16", torch.device("cpu"), 3)
    verdict = accuracy.compare_output(over_pages(problem, flex_attention)(), problem.reference(), 5e-3)
    assert verdict.right, (shape, verdict)
print("all right")
"""
CASES = [("softmax", {"R": 20, "C": 77}), ("layernorm", {"R": 20, "C": 77}), ("rmsnorm", {"R": 20, "C": 77}),
         ("cross_entropy", {"R": 20, "C": 333}), ("embedding", {"T": 20, "V": 100, "C": 48}),
         ("rotary", {"T": 20, "H": 6, "D": 32}), ("silu_mul", {"R": 20, "C": 48})]       # products: on a GPU alone


@pytest.mark.torch
@about("paged_decode_attention")
def test_flex_attention_over_pages_computes_the_same():
    assert run_program(PAGES)[0] == "all right\n"


@pytest.mark.torch
def test_shapes_that_are_asked_for_and_a_peer_that_is_not_installed(tmp_path):
    won = {"operator": "matmul", "dtype": "bf16", "best": {"BM": 64}}
    recorded = [{**won, "shape": {"M": size}} for size in (1, 2, 3)] + [{**won, "operator": "layernorm", "shape": {"R": 1}}]
    path = tmp_path / "ratios.json.xz"
    path.write_bytes(lzma.compress(json.dumps({"shapes": recorded}).encode()))
    rows, (label, told) = compile_lines(ASKED, [str(path)], tmp_path)
    assert sorted(rows) == [["matmul", {"BM": 64}]] * 2 + [["silu_mul", None]] * 2 + [["softmax", None]] * 2
    assert "quick" in label and "12 s" in label
    assert not told or "not installed" in told[0]


@pytest.mark.torch
def test_helions_kernels_are_right_as_it_interprets_them():
    pytest.importorskip("helion")
    assert run_program(INTERPRETED, json.dumps(CASES), HELION_INTERPRET="1")[0] == "all right\n"


def test_a_shape_without_a_kernel_of_ours_is_told():
    row = {"operator": "silu_mul", "dtype": "bf16", "shape": dict(OPERATORS["silu_mul"].presets[0]), "ours_ratio": None,
           "served": "library", "served_ratio": 0.5, "times_ms": {"library": 0.2, "Helion (quick, 12 s of search)": 0.1}}
    assert "| — | 200 | Helion (quick, 12 s of search) 100 | — | library | 0.50 |" in markdown.line(row)
    assert "within 1 % of the best or ahead at 0, what is served at 0;" in markdown.summary([row])
