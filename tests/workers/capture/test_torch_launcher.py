"""The torch launcher for real: a program's steps under torch.profiler on the CPU, what it leaves, what it costs."""

import ast
import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from profiles.capture.command import build_command
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.tool import Paths
from profiles.capture.tools.torch_profiler import LAUNCHER, TorchOptions
from tests.warm.parent import run_program
from workers.capture.facts import NAME, said_by_tool

pytestmark = [pytest.mark.torch, pytest.mark.process]

PROJECT = Path(__file__).resolve().parents[3]
STEPS = """import builtins, sys, time, torch
step = getattr(builtins, "ridgepoint_step", lambda: None)
layer = torch.nn.Linear(64, 64)
for number in range(int(sys.argv[1])):
    with torch.profiler.record_function(f"step {number}"):
        layer(torch.ones(9, 64)).sum().backward()
    time.sleep(0.01)
    print("made", number, flush=True)
    step()
"""


# As `python LAUNCHER …` in a folder, in a process that has torch: importing it takes longer than all else here.
AS_COMMAND = """import os, runpy, sys, traceback
os.dup2(1, 2)
os.chdir(sys.argv[1])
sys.argv = sys.argv[2:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
    status = 0
except SystemExit as end:
    status = end.code
except BaseException:
    traceback.print_exc()
    status = 1
print("\\nstatus", status)
"""


def run(folder, argv):
    """Return the exit status of a Python program and what it said."""
    said, _, status = run_program(AS_COMMAND, str(folder), *map(str, argv))[0].rpartition("\nstatus ")
    return int(status), said


@pytest.fixture
def command(tmp_path):
    def make(made=30, program=STEPS, **options):
        (tmp_path / "program.py").write_text(program)
        (tmp_path / "out").mkdir(exist_ok=True)
        return build_command(TorchOptions.parse(options), ["{python}", str(tmp_path / "program.py"), str(made)],
                             Paths(python=sys.executable, project=str(PROJECT), folder=str(tmp_path / "out")))
    return make


@pytest.fixture
def launched(tmp_path, command):
    return lambda *given, **options: run(tmp_path, command(*given, **options)[1:])


def steps_in(path):
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return sorted({int(event["name"].split()[1]) for event in events if str(event.get("name", "")).startswith("step ")})


def test_every_cycle_is_a_trace_of_its_own_steps(launched, tmp_path):
    status, said = launched(skip_first=2, wait=2, warmup=1, active=2, repeat=2)
    out = tmp_path / "out"
    assert status == 0, said
    assert sorted(path.name for path in out.iterdir()) == ["cycle-2.json.gz", NAME, "trace.json.gz"]
    assert steps_in(out / "trace.json.gz") == [5, 6] and steps_in(out / "cycle-2.json.gz") == [10, 11]
    assert "trace of 2 steps written (2 of 2)" in said and "made 14" in said and "made 15" not in said  # three more
    assert said_by_tool(out)["cycles"] == 2


def test_what_recording_costs_is_measured_and_an_execution_trace_lies_beside_the_trace(launched, tmp_path):
    _, text = launched(wait=3, warmup=1, active=2, execution_trace=True, all_threads=True, sync_events=True, with_flops=True,
                       with_modules=True, memory="end")
    facts = said_by_tool(tmp_path / "out")
    assert {phase: said["n"] for phase, said in facts["steps"].items()} == {
        "first": 1, "before": 2, "warmup": 1, "recording": 2, "after": 3}
    assert all(said["min_ms"] <= said["median_ms"] <= said["max_ms"] for said in facts["steps"].values())
    assert all(said["min_ms"] >= 10 for said in facts["steps"].values())            # the program sleeps for as long
    assert facts["write_s"] > 0 and facts["cycles"] == 1
    recorded = json.loads(gzip.decompress((tmp_path / "out" / "execution_trace.json.gz").read_bytes()))
    assert "chakra" in recorded["schema"] and any(node["name"] == "aten::addmm" for node in recorded["nodes"])
    assert not (tmp_path / "out" / "execution_trace.json").exists() and "left out" not in text
    assert "no memory snapshot: torch sees no CUDA GPU" in text         # none is given to the process


def test_what_a_torch_lacks_is_said_and_left_out(launched, tmp_path):
    """As with a torch from before: its experimental configuration without the names, its profile without an observer."""
    older = """import sys, torch
kind = type("_ExperimentalConfig", (), {"__init__": lambda self, verbose=False: None})
torch._C._profiler._ExperimentalConfig = kind
import torch.profiler
class Older(torch.profiler.profile):
    def __init__(self, activities=None, schedule=None, on_trace_ready=None, record_shapes=False, profile_memory=False,
                 with_stack=False, with_flops=False, with_modules=False):
        super().__init__(activities=activities, schedule=schedule, on_trace_ready=on_trace_ready)
torch.profiler.profile = Older
import importlib.util
spec = importlib.util.spec_from_file_location("launcher", sys.argv.pop(1))
launcher = importlib.util.module_from_spec(spec)
spec.loader.exec_module(launcher)
sys.exit(launcher.main(sys.argv[1:]))
"""
    (tmp_path / "older.py").write_text(older)
    (tmp_path / "program.py").write_text(STEPS)
    status, said = run(tmp_path, ["older.py", PROJECT / LAUNCHER, "--out", tmp_path / "trace.json.gz", "--all-threads",
                                  "--sync-events", "--execution-trace", "--end-after", "--", tmp_path / "program.py", "20"])
    assert "has no profile_all_threads: left out" in said and "has no enable_cuda_sync_events: left out" in said
    assert "writes no execution trace beside a trace: left out" in said
    assert status == 0 and steps_in(tmp_path / "trace.json.gz") == [2, 3, 4], said


def test_a_stop_keeps_what_was_recorded(command, tmp_path):
    pytest.importorskip("torch")
    process = subprocess.Popen(command(made=10_000, wait=1, warmup=1, active=1000), cwd=tmp_path, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for line in process.stdout:
        if line.startswith("made 6"):
            break
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and "asked to stop: writing what was recorded" in said
    kept = steps_in(tmp_path / "out" / "trace.json.gz")
    assert kept[0] == 2 and 6 <= kept[-1] < 10_000


def test_a_program_that_fails_leaves_its_trace(launched, tmp_path):
    status, said = launched(program=STEPS.replace("    step()", "    step()\n    assert number < 4, 'on purpose'"), active=50)
    assert status == 1 and "on purpose" in said
    assert steps_in(tmp_path / "out" / "trace.json.gz") == [2, 3, 4]


def test_without_a_gpu_a_memory_snapshot_says_why_not(launched, tmp_path):
    status, said = launched(made=3, memory="request", steps="none")
    assert "no memory snapshot: torch sees no CUDA GPU" in said and "no memory snapshot was written" in said
    assert status == 75 and not list((tmp_path / "out").glob("trace*"))


def test_the_launcher_needs_torch_alone():
    """It runs in the target's interpreter, where nothing of Ridgepoint is installed."""
    for name in ("torch_capture.py", "torch_memory.py", "launching.py"):
        tree = ast.parse((PROJECT / "workers" / "capture" / name).read_text())
        found = {(node.module if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0]
                 for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
        assert found <= set(sys.stdlib_module_names) | {"torch"}, name


def test_the_tool_names_every_file_that_the_launcher_writes():
    tool = CAPTURE_TOOLS["torch"]
    assert [(result.name, result.role) for result in tool.results] == [
        ("trace*.json.gz", "profile"), ("only-snapshot*.pickle", "profile"), ("cycle-*.json.gz", "linked"),
        ("snapshot*.pickle", "linked"), ("dump-*.pickle", "linked"), ("execution_trace*.json.gz", "kept")]
