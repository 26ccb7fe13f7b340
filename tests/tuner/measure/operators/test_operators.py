"""Operators say what was recorded: same costs as the landscapes, and constraints that never prune what ran."""

from pathlib import Path

import pytest

from tuner.tuning.measure.landscape import Landscape
from tuner.tuning.operators import OPERATORS, limits
from tuner.tuning.trial import Measured, Reason, Rejected

LANDSCAPES = {path.name.split(".")[0]: Landscape.load(path)
              for path in sorted((Path(__file__).parents[3] / "data/h200/landscapes").glob("*.json.gz"))}
H200 = limits("NVIDIA H200")


def test_every_recorded_operator_is_known():
    assert set(LANDSCAPES) <= set(OPERATORS)


@pytest.mark.parametrize("name", list(LANDSCAPES))
def test_costs_are_those_of_the_recording(name):
    operator = OPERATORS[name]
    for one in LANDSCAPES[name].shapes:
        assert operator.flops(one.shape) == one.flops
        assert operator.bytes(one.shape, operator.dtypes[0]) == one.bytes


@pytest.mark.parametrize("name", list(LANDSCAPES))
def test_constraints_keep_everything_that_ran_on_the_gpu(name):
    operator = OPERATORS[name]
    for one in LANDSCAPES[name].shapes:
        space = operator.space(one.shape, operator.dtypes[0], H200)
        ran = [config for config, o in one.outcomes.values() if isinstance(o, Measured)]
        assert ran and not [config for config in ran if operator.complete(config) not in space]


def test_constraints_prune_most_of_what_ran_out_of_resources():
    operator, pruned, all_of_them = OPERATORS["attention"], 0, 0
    for one in LANDSCAPES["attention"].shapes:
        space = operator.space(one.shape, "fp16", H200)
        failed = [config for config, o in one.outcomes.values()
                  if isinstance(o, Rejected) and o.reason == Reason.RESOURCES]
        pruned += sum(operator.complete(config) not in space for config in failed)
        all_of_them += len(failed)
    assert pruned >= 0.8 * all_of_them


@pytest.mark.parametrize("name", list(OPERATORS))
@pytest.mark.parametrize("gpu", ["NVIDIA H200", "some future GPU", *(         # older ones: the tests of each kind of operator
    pytest.param(each, marks=pytest.mark.deep_only) for each in ("NVIDIA A100-SXM4-80GB", "Tesla T4"))])
def test_the_default_configuration_is_in_the_space(name, gpu):
    operator = OPERATORS[name]
    for shape in operator.presets:
        space, device = operator.space(shape, operator.dtypes[0], limits(gpu)), limits(gpu)
        if operator.dtypes[0] == "fp8" and device.capability < (8, 9):
            assert not len(space) and space.pruned["fp8 tensor cores: from compute capability 8.9"] == space.size
        else:
            assert operator.default_config(shape, operator.dtypes[0], device) in space


def test_matmul_has_at_least_500_valid_configurations():
    for shape in OPERATORS["matmul"].presets:
        space = OPERATORS["matmul"].space(shape, "bf16", H200)
        assert len(space) >= 500
        assert space.pruned["shared memory"] and space.pruned["accumulator registers"]


def test_problems_name_the_field_and_what_would_be_valid():
    problems = OPERATORS["attention"].problems({"B": 0, "H": 4, "N": "x", "D": 80, "causal": 1, "Z": 1}, "fp8")
    assert set(problems) == {"B", "N", "D", "shape", "dtype"}
    assert "16, 32, 64, 128, 256" in problems["D"]
    assert not OPERATORS["matmul"].problems({"M": 1, "N": 1, "K": 1}, "bf16")


def test_presets_are_valid():
    for operator in OPERATORS.values():
        assert all(not operator.problems(shape, operator.dtypes[0]) for shape in operator.presets)


def test_limits_of_a_device_that_reports_itself_go_before_the_table():
    assert limits("NVIDIA H200").smem_bytes == 232_448
    assert limits("unheard of", compute_capability="8.0").smem_bytes == 163 * 1024
    assert limits("unheard of").smem_bytes == 48 * 1024
