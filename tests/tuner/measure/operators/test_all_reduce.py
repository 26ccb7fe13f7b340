"""All-reduce with residual and norm: each GPU's part is right, barriers hold, and a job takes as many GPUs as it needs."""

from __future__ import annotations

import pytest

from profiles.ingest.naming import names
from tests.tuner.measure.chosen import about, each_gpu
from tests.tuner.measure.programs import compile_lines, interpret
from tests.warm.parent import run_program
from tuner.tuning.operators import OPERATORS, limits
from tuner.tuning.operators.all_reduce import ALL_REDUCE_RMSNORM, PROGRAMS

RIGHT = """
import torch
from tuner.tuning.kernels.all_reduce import PROBLEMS
from tuner.tuning.measure import accuracy
for gpus in (2, 4):
    for rows, columns in ((5, 300), (1, 64)):
        for dtype, tolerance in (("bf16", 1e-2), ("fp16", 2e-3)):
            problem = PROBLEMS["all_reduce_rmsnorm"]({"R": rows, "C": columns, "G": gpus}, dtype, torch.device("cpu"), 3)
            for shots in (1, 2):
                for programs in (1, 4):
                    config = {"SHOTS": shots, "PROGRAMS": programs, "num_warps": 4}
                    _, verdict = accuracy.check_config(problem, config, programs, tolerance)
                    assert verdict.right, (gpus, rows, columns, dtype, config, verdict)
            expected = problem.reference()[0, 0]
            assert accuracy.compare_output(problem.library(), expected, tolerance).right
problem.outs[-1][1, 0, 0] = torch.nan                    # of the last GPU: it is looked at
assert accuracy.compare_output(problem.gathered(), problem.reference(), tolerance).unwritten == 1
print("all right")
"""
COMPILED = """
import json, sys, torch
from tuner.tuning.kernels.all_reduce import PROBLEMS
from tuner.tuning.measure import offline
capability, gpus = json.loads(sys.argv[1])
offline.set_target(capability, 132)
problem = PROBLEMS["all_reduce_rmsnorm"]({"R": 64, "C": 8192, "G": gpus}, "bf16", torch.device("meta"), 3)
for shots in (1, 2):
    kernel = problem.compile({"SHOTS": shots, "PROGRAMS": 32, "num_warps": 16})
    facts, ptx = offline.static_facts(kernel, capability), kernel.asm["ptx"]
    flags = [ptx.count(f"atom.global.{order}.sys.cas.b32") for order in ("release", "acquire")]
    wide = [sum(line.split()[0 if line.split()[0][0] != "@" else 1].startswith(f"{what}.global") and ".v4." in line
                for line in ptx.splitlines() if line.strip()) for what in ("ld", "st")]
    print(json.dumps([shots, flags, wide, facts["spills"]]))
"""
RANKS = "import sys; from tests.tuner.measure.operators.all_reduce_ranks import main; main(int(sys.argv[1]), int(sys.argv[2]))"
NAME = ALL_REDUCE_RMSNORM.name


@pytest.mark.torch
@about(NAME)
def test_norm_and_sum_are_right_on_every_gpu():
    assert interpret(RIGHT) == "all right\n"


@pytest.mark.torch
@about(NAME)
@pytest.mark.parametrize(("gpus", "shots"), [(2, 1), (3, 2), *(
    pytest.param(*each, marks=pytest.mark.deep_only) for each in ((2, 2), (3, 1)))])
def test_barriers_hold_gpus_that_are_not_equally_fast_before_they_read_and_after_they_wrote(gpus, shots):
    """As processes over shared memory: inputs change as soon as a launch has ended. Without either barrier numbers are wrong."""
    assert run_program(RANKS, str(gpus), str(shots), TRITON_INTERPRET="1")[0] == "all right\n"


@pytest.mark.torch
@pytest.mark.parametrize(("name", "capability"), each_gpu((NAME,)))
def test_flags_are_seen_by_other_gpus_and_rows_move_16_bytes_at_a_time(name, capability, binaries):
    gpus = {"8.0": 2, "9.0": 8, "10.0": 4}[capability]
    for shots, flags, (loads, stores), spills in compile_lines(COMPILED, (capability, gpus), binaries):
        assert flags == [2 * gpus, 2 * gpus]                              # raised and taken down, before and after
        assert loads >= gpus + 2 and stores >= (2 if shots == 1 else 2 * gpus) and spills <= 8, (loads, stores, spills)


def test_programs_are_never_more_than_multiprocessors_and_share_the_rows():
    shape = {"R": 512, "C": 8192, "G": 8}
    for gpu, most in (("NVIDIA H200", 128), ("NVIDIA A100-SXM4-80GB", 96), ("a GPU of tomorrow", PROGRAMS[0])):
        space = ALL_REDUCE_RMSNORM.space(shape, "bf16", limits(gpu))
        assert max(config["PROGRAMS"] for config in space.configs()) == most
        assert ALL_REDUCE_RMSNORM.default_config(shape, "bf16", limits(gpu)) in space
    one = ALL_REDUCE_RMSNORM.space({"R": 1, "C": 4096, "G": 2}, "bf16", limits("NVIDIA H200"))
    assert {config["PROGRAMS"] for config in one.configs()} == {PROGRAMS[0]}
    for preset in ALL_REDUCE_RMSNORM.presets:
        config = ALL_REDUCE_RMSNORM.default_config(preset, "bf16", limits("NVIDIA H200"))
        assert config in ALL_REDUCE_RMSNORM.space(preset, "bf16", limits("NVIDIA H200"))


def test_it_runs_on_the_gpus_of_its_shape_the_others_on_one():
    assert ALL_REDUCE_RMSNORM.gpus({"R": 1, "C": 4096, "G": 4}) == 4
    assert {operator.gpus(operator.presets[0]) for name, operator in OPERATORS.items() if name != "all_reduce_rmsnorm"} == {1}
    assert ALL_REDUCE_RMSNORM.problems({"R": 1, "C": 4096, "G": 3}, "bf16") == {"G": "G (GPUs of one host) must be one of 2, 4, 8"}


def test_its_kernel_is_communication_in_profiles_and_leads_to_it():
    assert names.is_collective("allreduce_rmsnorm")
    assert {names.operator_of(kernel) for kernel in ALL_REDUCE_RMSNORM.kernel_names} == {"all_reduce_rmsnorm"}
