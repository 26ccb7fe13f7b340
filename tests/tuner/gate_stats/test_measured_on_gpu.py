"""Verdicts over what an H200 measured (tests/gpu/gate_on_gpu.py): three builds in fresh processes, one of them really slower."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from tuner.gate.stats.runs import KernelRuns, Run
from tuner.gate.stats.suite import judge

RECORDED = Path(__file__).parents[2] / "data" / "recorded"


@pytest.fixture(scope="module", params=["gate_on_gpu", "gate_on_gpu_lead"])
def session(request):
    """Two cards, before and after the GPU began to wait until a batch is queued."""
    with gzip.open(RECORDED / f"{request.param}.json.gz", "rt") as file:
        return json.load(file)


def kernels(session, build, most):
    """The runs of the first look: a re-run came after them."""
    found = {}
    for run in session["runs"]:
        if run["build"] == build and run["number"] < most:
            found.setdefault(run["kernel"], []).append(run)
    return [KernelRuns(key, {}, None, key, tuple(
        Run(f"{build} {run['number']}", np.array(run["us"]), run["sm_clock_mhz"], run["gpu"], f"driver {run['driver']}",
            {name: run[name] for name in ("registers", "spills", "smem_bytes")}) for run in mine)) for key, mine in found.items()]


def test_identical_code_passes_and_really_slower_code_does_not(session):
    base = kernels(session, "base", 10)
    assert len(base) == 6 and all(len(kernel.runs) == 10 for kernel in base)
    same = judge(base, kernels(session, "same", 5))
    assert {kernel.key: kernel.verdict.value for kernel in same.kernels} == dict.fromkeys((kernel.key for kernel in base), "PASS")
    slow = {kernel.key: kernel for kernel in judge(base, kernels(session, "slow", 5)).kernels}
    assert [key for key, kernel in slow.items() if kernel.verdict == "SLOWER"] == ["clamp", "softmax"]
    assert slow["clamp"].p50.ratio == pytest.approx(1.181, abs=0.005)
    assert slow["softmax"].p50.ratio == pytest.approx(1.068, abs=0.005)
    assert [dict(row)["metric"] for row in slow["clamp"].metrics] == ["registers"], "18 → 25 registers: the code has changed"
    assert session["expected"] == {"softmax": "SLOWER", "clamp": "SLOWER"}


def test_each_run_was_a_fresh_process_of_its_builds_code(session):
    hashes = {build: {run["source_hash"] for run in session["runs"] if run["build"] == build and run["kernel"] == "clamp"}
              for build in ("base", "same", "slow")}
    assert hashes["base"] == hashes["same"] and len(hashes["base"]) == 1 and not hashes["base"] & hashes["slow"]
    assert all(len(run["us"]) == 100 and run["sm_clock_mhz"] for run in session["runs"])
