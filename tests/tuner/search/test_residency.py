"""Rules of what an SM holds: by hand, and on trials of kernels and dtypes that no landscape has."""

import json
import lzma
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from tests.gpu.known import of_operator
from tuner.tuning.operators import OPERATORS, limits
from tuner.tuning.search.strategies.prior import TOO_LARGE, flops_under_way, resident_programs, rule_terms, warps_of_rows
from tuner.tuning.search.strategies.roles import Sizes
from tuner.tuning.space import Space

H200 = limits("NVIDIA H200", "9.0", 132)
RECORDED = Path(__file__).parents[3] / "docs" / "operators-ratios.json.xz"          # searched on H200s: docs/operators.md
RULES = ("programs of an SM", "warps of the same rows")


def tile(**config):
    """Return one configuration's sides and sizes."""
    space = Space.listed([{**config}])
    sizes = Sizes(space)
    return [np.array([float(config[name])]) for name in ("BM", "BN")], sizes


@pytest.mark.parametrize(("config", "width", "dtype", "programs"), [
    ({"BM": 64, "BN": 64, "num_warps": 4, "num_stages": 3}, 128, "fp16", 2),       # 112 KiB of shared memory, 152 registers
    ({"BM": 128, "BN": 64, "num_warps": 8, "num_stages": 3}, 128, "fp16", 1),      # 128 KiB
    ({"BM": 128, "BN": 128, "num_warps": 8, "num_stages": 3}, 64, "fp16", 1),      # 168 registers of 256 threads
    ({"BM": 128, "BN": 128, "num_warps": 8, "num_stages": 4}, 128, "fp16", TOO_LARGE),      # 288 KiB: no block may have so much
    ({"BM": 128, "BN": 128, "num_warps": 8, "num_stages": 4}, 128, "fp8", 1),
])
def test_programs_of_an_sm(config, width, dtype, programs):
    sides, sizes = tile(**config)
    assert resident_programs(sides, sizes, width, dtype, H200).tolist() == [programs]


def test_products_under_way_are_those_of_all_programs_of_the_sm():
    sides, sizes = tile(BM=64, BN=128, BK=64, num_warps=4, num_stages=4)            # three steps of 24 KiB: three programs fit
    step = 2 * 64 * 128 * 64
    assert flops_under_way(sides, sizes, np.array([0.97]), "bf16", H200).tolist() == [3 * step]
    assert flops_under_way(sides, sizes, np.array([2.0]), "bf16", H200).tolist() == [2 * 3 * step]
    assert flops_under_way(sides, sizes, None, "bf16", H200).tolist() == [3 * 3 * step]


def test_warps_share_rows_where_there_are_more_than_rows_for_them():
    sides, sizes = tile(BM=64, BN=64, num_warps=8, num_stages=3)
    assert warps_of_rows(sides[0], sizes).tolist() == [2]


def test_a_kernel_whose_one_program_fills_an_sm_is_not_charged_for_being_alone():
    one, shape = OPERATORS["attention"], {"B": 4, "H": 32, "N": 2048, "D": 128, "causal": 1}
    tiles = {"BM": 128, "BN": 128, "num_warps": 8, "num_stages": 2}
    space = Space.listed([{**tiles, "KERNEL": "tma"}, {**tiles, "KERNEL": "overlapped"}])
    made = rule_terms(space, of_operator(one, shape, "fp16", H200), Sizes(space))
    by_kernel = {str(space.config(row)["KERNEL"]): made["programs of an SM"][row] for row in range(2)}
    assert by_kernel["overlapped"] == 0 < by_kernel["tma"]


@pytest.mark.parametrize("operator", ["attention", "gqa_attention", "fp8_attention"])
def test_the_guess_orders_trials_of_kernels_that_it_was_not_made_from(operator):
    """Rank correlation of the guessed with the measured time of one kernel's trials at one shape, beside the guess without."""
    with_rules, without = [], []
    for row in json.loads(lzma.decompress(RECORDED.read_bytes()))["shapes"]:
        if row["operator"] != operator:
            continue
        one = OPERATORS[operator]
        known = of_operator(one, row["shape"], row["dtype"], H200)
        for kernel in ("tma", "two stages"):
            trials = {json.dumps(t["config"]): t for t in row["trials"] if t["config"]["KERNEL"] == kernel and t.get("median_ms")}
            if len(trials) < 10:
                continue
            space = Space.listed([t["config"] for t in trials.values()])
            at, ms = [space.row(t["config"]) for t in trials.values()], [t["median_ms"] for t in trials.values()]
            made = {name: term[at] for name, term in rule_terms(space, known, Sizes(space)).items()}
            with_rules.append(spearmanr(sum(made.values()), ms).statistic)
            without.append(spearmanr(sum(term for name, term in made.items() if name not in RULES), ms).statistic)
    assert len(with_rules) >= 12
    assert statistics.fmean(with_rules) >= 0.6 and statistics.fmean(with_rules) > statistics.fmean(without) + 0.25
