"""The programs for a GPU machine, as far as they run without one: what they count and judge, and that a death is a line."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.gpu.fleet import two_jobs
from tests.gpu.fleet.counted_job import LAUNCHES, summary
from workers.agent.launches import Context, Gpu, KernelSum, KernelSums, Signature, Window

MS = 1_000_000


def window(start_ms: int, launches: int, kernel: str = "nvjet_tst_128x256") -> Window:
    one = KernelSum(Signature(kernel, (1, 1, 1), (1, 1, 1), 0), launches, launches * 1000, 1000, 1000, 0.0, np.array([480]),
                    np.array([launches]))
    return Window(Context("j"), Gpu("GPU-1"), start_ms * MS, 200 * MS, 1000 * MS, KernelSums.of([one]))


def test_windows_are_compared_with_what_the_loop_launched_meanwhile() -> None:
    ends_ns = [10 * MS * number for number in range(300)]           # a step every 10 ms: 20 in a window
    found = summary("product", [window(1000, 20 * LAUNCHES), window(2000, 19 * LAUNCHES), window(2500, 7, "other")], ends_ns)
    assert found["seen_by_looped"] == [0.0, 0.95, 1.0] and found["other_kernels"] == ["other"]
    assert found["launches"] == 39 * LAUNCHES + 7 and found["estimated"] == pytest.approx(5 * 39 * LAUNCHES)


def document() -> dict[str, Any]:
    def job(kernel: str) -> dict[str, Any]:
        return {"kernel": kernel, "job": kernel, "status": 0, "launches": 1000, "state": {"dropped_windows": 0},
                "sent": {"windows": 5, "launches": 200, "by_kernel": {kernel: 200}, "estimated": 980.0, "gpus": ["GPU-1"],
                         "seen_by_looped": [0.99, 1.0, 1.01]}}

    return {"gpus": 1, "jobs": [job(kernel) for kernel in two_jobs.KERNELS],
            "server": {"gpus": [{}], "kernels": {kernel: [{"kernel": kernel, "launches": 200}] for kernel in two_jobs.KERNELS}}}


def test_each_check_of_two_jobs_can_fail() -> None:
    good = two_jobs.check(document(), True)
    assert len(good) == 11 and all(good.values())
    spoiled: list[tuple[str, Any]] = [
        ("both jobs were collected from", lambda own: own["jobs"][0]["sent"].update(windows=1)),
        ("no window was dropped", lambda own: own["jobs"][1]["state"].update(dropped_windows=1)),
        ("product: every kernel as sent", lambda own: own["server"]["kernels"]["product"][0].update(launches=199)),
        ("product: windows hold what the loop launched", lambda own: own["jobs"][0]["sent"].update(seen_by_looped=[0.5, 0.6, 1.0])),
        ("softmax: the estimate is the loop's count", lambda own: own["jobs"][1]["sent"].update(estimated=500.0)),
        ("one GPU each, or both on one", lambda own: own.update(gpus=2))]
    for name, spoil in spoiled:
        bad = copy.deepcopy(document())
        spoil(bad)
        assert [each for each, held in two_jobs.check(bad, True).items() if not held] == [name]
    assert not two_jobs.check(document(), False)["every launch that was sent arrived, none twice"]
    dead = document()
    dead["jobs"][0] = {"status": -11, "errors": "Segmentation fault"}
    assert not two_jobs.check(dead, True)["both jobs ended well"]


@pytest.mark.process
@pytest.mark.torch
def test_a_soak_that_dies_says_so() -> None:
    said = subprocess.run([sys.executable, "-m", "tests.gpu.fleet.soak", "--minutes", "0.05"], capture_output=True, text=True,
                          timeout=120, check=False, env={**os.environ, "PYTHONPATH": os.getcwd(), "CUDA_VISIBLE_DEVICES": ""})
    (line,) = map(json.loads, said.stdout.splitlines())
    assert said.returncode == 1 and line["result"] == "died" and "CUDA" in line["words"]
