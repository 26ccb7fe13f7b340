"""The pytest plugin on a real GPU: real processes of pytest, CUDA events, what is said of the device."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner.gate import pytest_plugin
from workers.core import gpu

TESTS = """
import pytest, torch

@pytest.fixture
def x():
    return torch.randn(8192, 4096, device="cuda", dtype=torch.float16)

def test_softmax(ridgepoint, x):
    ridgepoint.measure(lambda: torch.softmax(x, -1), name="softmax", shape={"R": 8192}, dtype="fp16", bytes=4.0 * x.numel())

def test_twice(ridgepoint, x):
    ridgepoint.measure(lambda: (torch.softmax(x, -1), torch.softmax(x, -1)), name="twice", shape={"R": 8192}, dtype="fp16")

def test_from_l2(ridgepoint):
    small = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)
    ridgepoint.measure(lambda: torch.softmax(small, -1), name="small", flush=False)

def test_fails(ridgepoint, x):
    ridgepoint.measure(lambda: torch.softmax(x, -1), name="fails")
    assert False
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "ridgepoint_pytest.py").write_bytes(Path(pytest_plugin.__file__).read_bytes())
    (folder / "test_kernels.py").write_text(TESTS)
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO", "PYTEST"))}
    ended = subprocess.run([sys.executable, "-m", "pytest", "-p", "ridgepoint_pytest", "-p", "no:cacheprovider", "-p", "no:django",
                            "-q", "test_kernels.py", "--ridgepoint-out=runs.jsonl", "--ridgepoint-runs=3"],
                           cwd=folder, capture_output=True, text=True, timeout=240, env={**outside, "PYTHONPATH": str(folder)})
    assert ended.returncode == 1 and "1 failed, 3 passed" in ended.stdout, ended.stdout[-3000:] + ended.stderr[-3000:]
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


def test_each_fresh_process_measures_what_passed(report, runs) -> None:
    medians = {name: [statistics.median(run["us"]) for run in runs if run["op"] == name] for name in ("softmax", "twice", "small")}
    report.add("pytest plugin", medians_us=medians, run=runs[0] | {"us": len(runs[0]["us"])})
    assert len(runs) == 9 and len({run["run"] for run in runs}) == 3 and all(len(times) == 3 for times in medians.values())
    for once, twice in zip(medians["softmax"], medians["twice"], strict=True):
        assert 1.5 < twice / once < 2.3, (once, twice)             # the second reads from L2 in part, and starts without a gap
    moved = 4.0 * 8192 * 4096
    assert all(0.2e12 < moved / (us * 1e-6) < 8e12 for us in medians["softmax"])          # bytes/s of a real memory


def test_the_device_is_named(runs) -> None:
    card = gpu.gpus()[0]
    for run in runs:
        assert run["gpu"] == card.name and run["gpu_uuid"] == card.uuid
        assert run["environment"]["cuda"] and run["environment"]["driver"] and run["clocks"].count(",") == 3
        assert run["facts"] == {"device": "cuda", "l2_flushed": run["op"] != "small"}
