"""An operator's own text as a candidate of it, on the CPU by Triton's interpreter: a line of JSON.

    PYTHONPATH=tests/packages RIDGEPOINT_OPERATOR_PACKAGES=acme-kernels python -m tests.tuner.candidates.every_operator NAME FOLDER
"""

import json
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"       # before any kernel is decorated

import torch

from tests.tuner.measure.interpreted import patch_language_once, round_to_fp8
from tuner.candidates.diffs import operator_files
from tuner.candidates.judge import checks, loading
from tuner.candidates.judge.taken import Taken
from tuner.tuning.operators import OPERATORS, find, limits
from tuner.tuning.team import packages

PACKAGES = Path(__file__).resolve().parents[2] / "packages"
GEMM, ROWS, DEVICE = {"M": 40, "N": 48, "K": 64}, {"R": 8, "C": 100}, torch.device("cpu")
SHAPES = {
    "matmul": GEMM, "matmul_bias_act": {**GEMM, "act": 2}, "grouped_matmul": {**GEMM, "E": 3},
    "attention": {"B": 1, "H": 2, "N": 40, "D": 64, "causal": 1},
    "gqa_attention": {"B": 1, "H": 4, "KV": 2, "N": 40, "D": 64, "causal": 0},
    "decode_attention": {"B": 2, "H": 4, "KV": 2, "N": 64, "D": 128},
    "paged_decode_attention": {"B": 3, "H": 4, "KV": 2, "N": 40, "D": 64, "PAGE": 16},
    "fp8_attention": {"B": 1, "H": 4, "KV": 2, "N": 40, "D": 64, "causal": 1},
    "int4_matmul": {"M": 5, "N": 70, "K": 256}, "fp8_block_matmul": {"M": 20, "N": 140, "K": 256},
    "conv2d": {"B": 2, "H": 9, "W": 7, "C": 20, "F": 35, "KS": 3, "S": 2, "P": 1}, "top_k": {"R": 3, "C": 60, "K": 4},
    "embedding": {"T": 7, "V": 50, "C": 300}, "rotary": {"T": 7, "H": 5, "D": 64},
    "acme_scale_add": {"N": 1000}, "acme_column_sum": {"R": 40, "C": 300}, "acme_clamp": {"N": 1000}}
TEAM = (PACKAGES / "acme_kernels" / "kernels.py").read_text()
TEAM_OPERATORS = (PACKAGES / "acme_kernels" / "ridgepoint.py").read_text()
LAUNCHES = {        # what a team's operator sets to zero or restores before a launch is so for a launch of somebody else's, too
    "acme_scale_add": 'out.copy_(inputs["a"] * inputs["x"].float() + out.float())',
    "acme_column_sum": 'out.add_(inputs["x"].float().sum(0))', "acme_clamp": 'out.copy_(inputs["x"].clamp(min=inputs["low"]))',
    "matmul": 'out.copy_(inputs["a"].float() @ inputs["b"].float())', "transpose": 'out.copy_(inputs["x"].t())'}


def texts(name: str) -> dict[str, str]:
    """Form → text."""
    found = {"launch": f"def launch(inputs, out, config):\n    {LAUNCHES[name]}\n"} if name in LAUNCHES else {}
    if name in OPERATORS:
        own = operator_files(name)[0].text
        return {**found, "module": own, "kernel": own.replace("PROBLEMS = ", "OTHERS = ")}
    return {**found, "kernel": TEAM, "module": TEAM_OPERATORS}


def look(name: str, folder: Path) -> dict[str, object]:
    operator = find(name)
    shape, told = SHAPES.get(name, ROWS), {}
    dtype = "fp16" if "fp16" in operator.dtypes else operator.dtypes[0]         # the interpreter's products are of that alone
    config = dict(operator.default_config(shape, dtype, limits("")))
    own = loading.open_operator(name, shape, dtype, DEVICE, 1)
    taken = Taken(own.problem, DEVICE)
    for form, text in texts(name).items():
        place = folder / f"{name}-{form}"
        place.mkdir()
        loaded = loading.load(loading.import_text(text, place, own), own)
        check = checks.check_launch(own, loaded.launch, config, (5, 6), operator.tolerance.get(dtype, 2e-3), taken)
        told[form] = [loaded.form, check["right"], check["message"], check["changed"]]
    return {"name": name, "forms": told, "inputs": sorted(own.inputs), "left_alone": sorted(own.left_alone),
            "replaced": taken.replaced()}


def main(name: str, folder: str) -> None:
    packages.provide()
    patch_language_once()
    round_to_fp8()
    print(json.dumps(look(name, Path(folder))))


if __name__ == "__main__":
    main(*sys.argv[1:])
