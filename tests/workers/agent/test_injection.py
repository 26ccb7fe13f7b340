"""The library that CUDA loads: it starts the agent of a Python that runs or that is named, and harms no job that has none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from workers.agent.identity import owner
from workers.agent.link import Listener

SOURCE = Path(__file__).resolve().parents[3] / "workers" / "agent" / "injection"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
pytestmark = [pytest.mark.process, pytest.mark.skipif(COMPILER is None, reason="no C compiler")]

CHILD = """
import ctypes, sys, time
library = getattr(ctypes, sys.argv[2])(sys.argv[1])             # CDLL lets go of the GIL, PyDLL holds it, as callers of cuInit may
print(library.InitializeInjection(), library.InitializeInjection())
end = time.monotonic() + 10
while time.monotonic() < end and "workers.agent.auto" not in sys.modules and len(sys.argv) < 4:
    time.sleep(0.01)
if "workers.agent.auto" in sys.modules:
    from workers.agent import job
    time.sleep(0.3)
    print(job.state()["state"], job.state()["why"])
else:
    time.sleep(0.2)
    print("no agent")
"""
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words)
{
    void *library = dlopen(words[1], RTLD_NOW);
    int (*initialize)(void) = (int (*)(void))dlsym(library, "InitializeInjection");
    printf("%d\\n", initialize());
    fflush(stdout);
    usleep(count > 2 ? atoi(words[2]) * 1000 : 0);
    return 7;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library out of the wheel that `python -m build` makes."""
    if Version(version("setuptools")) < Version("77"):      # asked, not imported: it takes the place of a distutils that was
        pytest.skip("setuptools 77 or later is needed (pip install -U setuptools)")
    folder = tmp_path_factory.mktemp("injection")
    shutil.copytree(SOURCE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, folder],
                   cwd=folder / "source", check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    assert "-py3-none-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    said = subprocess.run([sys.executable, "-m", "ridgepoint_agent_injection"], cwd=folder / "site", check=True, text=True,
                          capture_output=True, timeout=60)
    path = Path(said.stdout.strip())
    assert path.is_file() and path.is_relative_to(folder / "site")
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job without Python."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "job.c").write_text(PROGRAM)
    assert COMPILER
    subprocess.run([COMPILER, folder / "job.c", "-o", folder / "job", "-ldl"], check=True, timeout=120)
    return folder / "job"


def run(*command: object, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, cwd=cwd, check=False,
                          env={**os.environ, "RIDGEPOINT_AGENT_SOCKET": "/nonexistent/agent.sock", **environ})


@pytest.mark.parametrize("loader", ["CDLL", "PyDLL"])
def test_a_python_that_runs_starts_its_agent(library: Path, loader: str) -> None:
    said = run(sys.executable, "-c", CHILD, library, loader, PYTHONPATH=os.getcwd(), CUDA_INJECTION64_PATH=str(library))
    assert said.returncode == 0 and said.stderr == ""
    assert said.stdout.splitlines() == ["1 1", "waiting the job made no CUDA context yet"]


def test_a_python_without_the_agents_package_goes_on(library: Path, tmp_path: Path) -> None:
    said = run(sys.executable, "-S", "-c", CHILD, library, "CDLL", "briefly", cwd=tmp_path, PYTHONPATH="")
    assert said.returncode == 0 and said.stdout.splitlines() == ["1 1", "no agent"]
    assert said.stderr.startswith("ridgepoint-agent: not started: workers.agent.auto cannot be imported")
    off = run(sys.executable, "-c", CHILD, library, "CDLL", "briefly", PYTHONPATH=os.getcwd(), RIDGEPOINT_AGENT="0")
    assert off.stdout.splitlines() == ["1 1", "no agent"] and off.stderr == ""


def test_a_job_without_python_is_left_alone(library: Path, program: Path) -> None:
    said = run(program, library)
    assert (said.returncode, said.stdout, said.stderr) == (7, "1\n", "")
    for path, why in (("/nonexistent/libpython.so", "cannot open shared object file"), (str(library), "names no libpython")):
        wrong = run(program, library, 500, RIDGEPOINT_AGENT_LIBPYTHON=path)
        assert (wrong.returncode, wrong.stdout) == (7, "1\n") and why in wrong.stderr


def test_a_job_without_python_starts_the_one_that_is_named(library: Path, program: Path, tmp_path: Path) -> None:
    libpython = Path(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME") or "none")
    if not libpython.is_file():
        pytest.skip("this Python has no libpython")
    told: list[dict[str, Any]] = []
    listener = Listener(str(tmp_path / "a.sock"), lambda pid, message: told.append({**message, "from": pid}), lambda pid: None)
    paths = os.pathsep.join([os.getcwd(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    child = subprocess.Popen([program, library, "15000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={
        **os.environ, "RIDGEPOINT_AGENT_LIBPYTHON": str(libpython), "PYTHONHOME": sys.base_prefix, "PYTHONPATH": paths,
        "RIDGEPOINT_AGENT_SOCKET": listener.path, "RIDGEPOINT_JOB": "in C"})
    end = time.monotonic() + 15
    while not told and time.monotonic() < end:
        listener.poll(0.1)
    listener.close()
    child.kill()
    errors = child.communicate()[1]
    assert told and told[0]["job"] == "in C" and told[0]["from"] == child.pid, errors


def test_the_own_library_is_no_other_profiler(library: Path) -> None:
    assert owner({"CUDA_INJECTION64_PATH": str(library)}) == ""
    assert "an injected tool" in owner({"CUDA_INJECTION64_PATH": "/opt/other/injection.so"})
