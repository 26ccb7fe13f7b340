"""The program that ncu and torch.profiler look at: on the CPU by Triton's interpreter, its kernels and marks as on a GPU."""

import gzip
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tuner.measure.chosen import WITHOUT_TORCH

pytest.importorskip("torch", reason=WITHOUT_TORCH)
pytest.importorskip("triton", reason=WITHOUT_TORCH)

from profiles.capture import command
from profiles.capture.tools import torch_profiler
from profiles.capture.tools.ncu import NcuOptions
from profiles.capture.tools.tool import PYTHON, Paths
from profiles.ingest.ncu import ncu_child
from tuner.tuning.measure import counted as program
from workers.fresh import captured

pytestmark = [pytest.mark.process, pytest.mark.torch]

PROJECT = Path(__file__).resolve().parents[3]
KEY = "softmax R=8 C=64 fp16"
SOFTMAX = captured.CountedKernel(KEY, "softmax", {"R": 8, "C": 64}, "fp16", {"STEPS": 2, "PER_SM": 4, "num_warps": 4})
UNKNOWN = captured.CountedKernel("nothing", "no_such_operator", {}, "fp16")
# As `main` without a GPU: the interpreter for the compiler, which must be chosen before a kernel is decorated.
ON_CPU = """import json, os, sys
os.environ["TRITON_INTERPRET"] = "1"
import torch
from tuner.tuning.measure import counted
sys.exit(counted.run(json.load(open(os.environ[counted.SPEC])), torch.device("cpu")))
"""


def test_kernels_are_launched_within_marks_that_name_them(tmp_path):
    """Through the very launcher and options that a worker takes: torch.profiler's trace has each recorded round."""
    (tmp_path / "on_cpu.py").write_text(ON_CPU)
    steps = captured.STEPS
    argv = command.build_command(steps, [PYTHON, str(tmp_path / "on_cpu.py")],
                           Paths(python=sys.executable, project=str(PROJECT), folder=str(tmp_path)))
    rounds = steps.steps_needed()
    environ = captured.write_spec(tmp_path, [UNKNOWN, SOFTMAX], "cold", rounds)
    done = subprocess.run(argv, cwd=PROJECT, env={"PYTHONPATH": str(PROJECT), "PATH": "", **environ}, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no operator no_such_operator is known here" in done.stdout
    assert f"{KEY}: {{'STEPS': 2, 'PER_SM': 4, 'num_warps': 4}}, source" in done.stdout
    with gzip.open(tmp_path / torch_profiler.TOOL.result, "rt") as file:
        names = [each.get("name") for each in json.load(file)["traceEvents"] if each.get("cat") == "user_annotation"]
    assert names.count(KEY) == steps.active


def test_nothing_to_launch_is_said(tmp_path, monkeypatch, capsys):
    import torch
    assert program.run({"kernels": [{"key": "k", "operator": "no_such_operator"}], "rounds": 1, "kind": "cold"},
                       torch.device("cpu")) == program.EXIT_NOTHING
    monkeypatch.delenv(program.SPEC, raising=False)
    assert program.main() == program.EXIT_NOTHING and "names no file" in capsys.readouterr().out


def test_ncu_profiles_what_lies_in_the_range_and_nothing_else():
    argv = command.build_command(captured.full_counters(2, cold=True), captured.ARGV,
                           Paths("/opt/ncu", python="/usr/bin/python3", folder="/tmp/f"))
    assert argv[:4] == ["/opt/ncu", "--export", "/tmp/f/report.ncu-rep", "--force-overwrite"]
    said = dict(itertools.pairwise(argv))
    assert said["--nvtx-include"] == f"{program.RANGE}/" and "--nvtx" in argv and said["--clock-control"] == "none"
    assert said["--set"] == "full" and said["--cache-control"] == "all"
    assert argv[-3:] == ["/usr/bin/python3", "-m", program.__name__]
    few = captured.few_counters(["dram__bytes_read.sum"], 1, cold=False)
    assert few.cache_control == "none" and few.sections == ("LaunchStats",)
    for options in (few, captured.full_counters(500, cold=True)):
        assert NcuOptions.parse(options.as_json()) == options
    assert (captured.SPEC, captured.RANGE) == (program.SPEC, program.RANGE)


class _Range:
    def __init__(self, stack, beside):
        self.push_pop_ranges, self.start_end_ranges = (lambda: stack), (lambda: beside)


@pytest.mark.parametrize(("domains", "said"), [
    ({}, ""), ({1: _Range(("ridgepoint",), (KEY,))}, f"ridgepoint | {KEY}"),
    ({1: None, 2: _Range(("step",) * 30, ())}, " | ".join(["step"] * ncu_child.MAX_RANGES))], ids=["none", "both", "many"])
def test_a_launch_says_in_which_ranges_it_lay(domains, said):
    """By ncu_report's own interface: INvtxState, INvtxDomainInfo."""
    state = type("State", (), {"domains": lambda self: tuple(domains), "domain_by_id": lambda self, number: domains[number]})()
    action = type("Action", (), {"nvtx_state": lambda self: state if domains else None})()
    assert ncu_child.ranges(action) == said
