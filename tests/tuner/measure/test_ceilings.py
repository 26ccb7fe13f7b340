"""How a ceiling is measured: the plan, the median, the clock between two readings; on the CPU with known times."""

from __future__ import annotations

import pytest

from tests.tuner.measure.chosen import WITHOUT_TORCH

pytest.importorskip("torch", reason=WITHOUT_TORCH)
pytest.importorskip("triton", reason=WITHOUT_TORCH)

import numpy as np
import torch

from tuner.tuning.measure import ceilings
from workers.capture.ceilings import NAMES

pytestmark = pytest.mark.torch


class Scripted:
    """A device whose launches take what the script says; its SM clock falls while it works."""

    device = torch.device("cpu")

    def __init__(self, launch_s: float = 0.001) -> None:
        self.launch_s, self.taken = launch_s, 0

    def samples(self, launch, launches, count):
        launch()
        found = []
        for _ in range(count):
            self.taken += 1
            clock = 2e9 if self.taken < 30 else 1e9                   # a power limit shows after a while
            found.append(ceilings.Sample(self.launch_s * 2e9 / clock, clock))
        return found

    def reading(self):
        return {"sm_clock_mhz": 1000, "power_w": 700, "throttle": ["power cap"]}


def test_the_worker_asks_for_what_the_child_can_measure():
    assert tuple(ceilings.MEASUREMENTS) == NAMES
    assert {one.kind for one in ceilings.MEASUREMENTS.values()} == {"dram", "l2", "l1", "compute"}


def test_a_rate_comes_with_the_clock_it_ran_at():
    """1 GFLOP in 1 ms at 2 GHz, twice as long at 1 GHz: half an operation per ns and cycle either way."""
    calls = []
    one = ceilings.Measurement("x", "compute", "X", lambda meter: ceilings.Work(lambda: calls.append(1), 1e9, "how", {}), "fp32")
    result = ceilings.measure_ceiling(Scripted(), one, 1.6)
    assert result["rate"] == pytest.approx(0.5e12) and result["sm_clock_hz"] == 1e9             # the median sample is throttled
    assert result["best"] == pytest.approx(1e12) and result["best_clock_hz"] == 2e9
    assert result["per_cycle"] == pytest.approx(500.0)
    assert result["launches"] == 20 and result["n"] == 60 and calls       # 20 ms a sample, a quarter is warm-up
    assert result["during"] == {"sm_clock_mhz": 1000, "power_w": 700, "throttle": ["power cap"]}


def test_the_clock_is_the_median_of_the_sms_that_were_read_twice():
    counters = np.zeros((3, 8, 2), np.int64)
    counters[0, :3] = [[100, 1000], [900, 1000], [5, 1000]]
    counters[1, :3] = [[1600, 2000], [2400, 2000], [5, 2000]]           # 1.5 GHz twice; one counter stood still
    counters[2, 4:6] = [[7, 3000], [9, 3000]]                           # other SMs: nothing to compare with
    assert ceilings.mean_clocks(counters) == [1.5e9, None]


@pytest.mark.parametrize("name", ["copy", "write", "gemm-fp32", "gemm-bf16", "gemm-int8"])
def test_real_work_is_launched_and_its_amount_known(name):
    work = ceilings.MEASUREMENTS[name].make(Scripted(launch_s=1e-6))
    work.launch()
    assert work.amount > 0 and work.how
    if name.startswith("gemm"):
        assert work.amount == 2 * work.facts["size"]**3
    else:
        assert work.amount == work.facts["buffer_bytes"] * (2 if name == "copy" else 1)
