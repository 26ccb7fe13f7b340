"""The GPU child on a real GPU: kernels right in every dtype, faults contained, children replaced quickly."""

from __future__ import annotations

import time

import pytest

from tuner.tuning.operators import OPERATORS, limits
from tuner.tuning.trial import Measured, Reason, Rejected
from workers.core import gpu
from workers.tune.gpu_child import Limits
from workers.tune.sandbox import SandboxRunner

MATMUL = {"BM": 128, "BN": 128, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3}
QUICK = {"min_samples": 5, "max_samples": 10, "rounds": 2}


def runner_of(name: str, shape: dict, dtype: str, **kwargs) -> SandboxRunner:
    card = gpu.gpus()[0]
    return SandboxRunner(name, shape, dtype, card.index, gpu_uuid=card.uuid, policy=QUICK, seed=11, compilers=0, **kwargs)


@pytest.mark.parametrize(("name", "dtype", "shape"), [
    ("matmul", "fp16", {"M": 333, "N": 4096, "K": 1000}), ("softmax", "bf16", {"R": 1000, "C": 1000}),
    ("layernorm", "bf16", {"R": 100, "C": 5000}), ("attention", "bf16", {"B": 1, "H": 8, "N": 1000, "D": 64, "causal": 1})])
def test_default_configurations_are_right_at_awkward_shapes(report, name, dtype, shape):
    """In the dtype that is not the default: the tune jobs check that one."""
    card = gpu.gpus()[0]
    runner = runner_of(name, shape, dtype)
    try:
        session = runner.open()
        config = OPERATORS[name].default_config(shape, dtype, limits(card.name, card.cc, session.environment["sms"]))
        [(_, outcome)] = runner.measure([config])
    finally:
        runner.close()
    assert isinstance(outcome, Measured), outcome
    assert outcome.facts["registers"] and outcome.facts["clocks"]["sm_clock_mhz"]["median"]
    report.add(f"awkward {name}", shape=shape, dtype=dtype, ms=outcome.median_ms, library_ms=session.library_ms,
               relative_error=outcome.facts["relative_error"])


def test_faults_are_contained_and_children_replaced(report):
    """An illegal access poisons its CUDA context, a hang never answers: the next configuration is measured all the same."""
    runner = runner_of("matmul", {"M": 1024, "N": 1024, "K": 1024}, "bf16", child_module="tests.gpu.faulty_child",
                       limits=Limits(run_s=4))
    expected = {"illegal access": Reason.CRASH, "hang": Reason.TIMEOUT, "dies": Reason.CRASH, "wrong": Reason.WRONG}
    seen, again_s = {}, {}
    try:
        runner.open()
        for fault, reason in expected.items():
            [(_, outcome)] = runner.measure([{**MATMUL, "fault": fault}])
            assert isinstance(outcome, Rejected) and outcome.reason is reason, (fault, outcome)
            started = time.monotonic()
            [(_, fine)] = runner.measure([MATMUL])
            again_s[fault] = round(time.monotonic() - started, 2)
            assert isinstance(fine, Measured), (fault, fine)
            seen[fault] = outcome.message[:200]
        too_much = {**MATMUL, "BN": 256, "BK": 128, "num_stages": 5}         # 480 KiB of shared memory
        [(_, outcome)] = runner.measure([too_much])
        assert isinstance(outcome, Rejected) and outcome.reason is Reason.RESOURCES, outcome
        assert runner.replaced == 3
    finally:
        runner.close()
    report.add("faults", messages=seen, next_measured_after_s=again_s, resources=outcome.message[:200])


def test_two_measurements_of_one_configuration_agree(report):
    runner = runner_of("matmul", {"M": 4096, "N": 4096, "K": 4096}, "bf16")
    best = {"BM": 128, "BN": 256, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3}
    try:
        session = runner.open()
        medians = [outcome.median_ms for _, outcome in runner.measure([best] * 3)]
        finalists = runner.finalists([best, MATMUL])
    finally:
        runner.close()
    tflops = 2 * 4096**3 / min(medians) / 1e9
    report.add("repeat", medians_ms=medians, library_ms=session.library_ms, tflops=round(tflops, 1), recorded_best_ms=0.18462,
               finalists_ms=[outcome.median_ms for _, outcome in finalists], policy=session.policy)
    assert max(medians) / min(medians) < 1.1


def test_a_late_host_is_in_no_sample(report):
    """A launch that costs the host half a millisecond is timed as the kernel that it starts."""
    import torch

    from tuner.tuning.measure import timers
    from tuner.tuning.measure.policy import Policy

    x, device = torch.randn(4096, 1024, device="cuda", dtype=torch.float16), torch.device("cuda", 0)

    def quick() -> None:
        torch.softmax(x, -1)

    def slow() -> None:
        end = time.perf_counter() + 5e-4
        while time.perf_counter() < end:
            pass
        torch.softmax(x, -1)

    medians = {}
    for name, launch in (("quick", quick), ("slow", slow)):
        timer = timers.make_timer(device, Policy(), 0)
        launch()
        medians[name] = sorted(timer.samples(launch, 9))[4]
    report.add("late host", medians_ms=medians)
    assert medians["slow"] < 1.2 * medians["quick"] < 0.2
