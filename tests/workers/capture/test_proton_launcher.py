"""The Proton launcher: against the installed Triton as far as that goes without a GPU; its steps with one of the test's own."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from profiles.base.refused import Refused
from profiles.capture.command import build_command
from profiles.capture.tools.proton import BACKEND, CONTEXT, DATA, MODE, ProtonOptions
from profiles.capture.tools.tool import Paths
from workers.capture.facts import said_by_tool

pytestmark = pytest.mark.process

PROJECT = Path(__file__).resolve().parents[3]
TREE = PROJECT / "tests" / "data" / "recorded" / "proton_tree.hatchet"
PROGRAM = """import builtins, sys
for number in range(int(sys.argv[1])):
    print("made", number, flush=True)
    getattr(builtins, "ridgepoint_step", lambda: None)()
"""
# A Proton that writes what was asked for and a recorded tree; `told` is the docstring of Triton 3.6's start.
STAND_IN = """import json, shutil
def start(name=None, *, context="shadow", data="tree", backend=None, mode=None, hook=None):
    '''{told}'''
    start.name = name
    open("asked.json", "w").write(json.dumps([context, data, backend, mode, hook]))
    return 0
def finalize(session=None, output_format=""):
    shutil.copy({tree!r}, start.name + ".hatchet")
"""


def command(folder, program, *arguments, **options):
    return build_command(ProtonOptions.parse(options), ["{python}", str(program), *arguments],
                         Paths(python=sys.executable, project=str(PROJECT), folder=str(folder)))


@pytest.fixture
def launched(tmp_path):
    """Run the launcher with a Triton of the test's own making, without torch, which takes long, unless asked for."""
    package = tmp_path / "modules" / "triton" / "profiler"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("__version__ = '3.6.0'")
    (package / "__init__.py").write_text(STAND_IN.format(told='"tree", "trace", "pcsampling"', tree=str(TREE)))
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "out").mkdir()

    def launch(made=20, torch=False, **options):
        if not torch:
            (tmp_path / "modules" / "torch.py").write_text("raise ImportError")
        return subprocess.run(command(tmp_path / "out", tmp_path / "program.py", str(made), **options), cwd=tmp_path, timeout=120,
                              env={"PYTHONPATH": str(tmp_path / "modules"), "PATH": "/usr/bin:/bin"}, capture_output=True,
                              text=True)
    return launch


def test_steps_are_skipped_recorded_and_the_program_is_ended(launched, tmp_path):
    done = launched(torch=True, skip_first=4, active=3, mode="pcsampling", interval=500)
    assert done.returncode == 0 and "made 9" in done.stdout and "made 10" not in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "out" / "proton.hatchet").read_bytes() == TREE.read_bytes()
    assert json.loads((tmp_path / "asked.json").read_text()) == ["shadow", "tree", None, "pcsampling:interval=500", "triton"]
    steps = said_by_tool(tmp_path / "out")["steps"]
    assert {phase: said["n"] for phase, said in steps.items()} == {"first": 1, "before": 3, "recording": 3, "after": 3}


def test_without_steps_the_whole_run_is_recorded(launched, tmp_path):
    done = launched(made=0, hook=False, context="python", backend="cupti")
    assert done.returncode == 0 and (tmp_path / "out" / "proton.hatchet").exists()
    assert json.loads((tmp_path / "asked.json").read_text()) == ["python", "tree", "cupti", None, None]


def test_what_a_triton_lacks_is_said(launched, tmp_path):
    done = launched(mode="periodic_flushing")
    assert done.returncode == 75 and "Proton of Triton 3.6.0 has no periodic_flushing" in done.stdout
    assert "made 0" not in done.stdout


def test_a_program_that_ends_too_soon_is_said(launched):
    done = launched(made=2, skip_first=10, active=1)
    assert done.returncode == 75 and "no profile: the program made 2 steps, recording begins after 10" in done.stdout


def test_the_installed_triton_takes_every_option():
    """Its words, of its own module's text: importing it needs no GPU, starting does."""
    profiler = pytest.importorskip("triton.profiler")
    import inspect

    assert {"context", "data", "backend", "mode", "hook"} <= set(inspect.signature(profiler.start).parameters)
    told = inspect.getdoc(profiler.start)
    for word in [*DATA, *CONTEXT, *BACKEND, *MODE]:
        assert word in ("auto", "none") or f'"{word}"' in told, word


def test_the_installed_triton_without_a_gpu_says_so(tmp_path):
    pytest.importorskip("triton.profiler")
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    (tmp_path / "program.py").write_text(PROGRAM)
    argv = command(tmp_path, tmp_path / "program.py", "3")
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 75 and "ridgepoint: Proton does not start: 0 active drivers" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"mode": "pcsampling", "backend": "instrumentation"}, "mode"),
        ({"mode": "pcsampling", "data": "trace"}, "data"),
        ({"data": "--help"}, "data"),
        ({"context": "shell"}, "context"),
        ({"interval": 0}, "interval"),
        ({"active": "many"}, "active"),
        ({"name": "/etc/passwd"}, "name"),
    ],
)
def test_what_is_wrong_is_refused(given, field):
    with pytest.raises(Refused) as caught:
        ProtonOptions.parse(given)
    assert field in caught.value.fields


def test_it_needs_a_python_program():
    with pytest.raises(Refused):
        build_command(ProtonOptions(), ["./a.out"])


def test_the_launcher_needs_triton_alone():
    tree = ast.parse((PROJECT / "workers" / "capture" / "proton_capture.py").read_text())
    found = {(node.module if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0]
             for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
    assert found <= set(sys.stdlib_module_names) | {"triton", "torch"}
