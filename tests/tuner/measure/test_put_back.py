"""Kernels that change their inputs: what each launch finds, and what is timed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch and Triton are not installed (make test tries)")
pytest.importorskip("triton", reason="torch and Triton are not installed (make test tries)")

from tuner.tuning.kernels.problem import PutsBack  # noqa: E402
from tuner.tuning.measure.accuracy import check_config  # noqa: E402
from tuner.tuning.measure.timers import PreparedLaunch  # noqa: E402
from tuner.tuning.team.adapter import Dim, TritonOperator  # noqa: E402
from tuner.tuning.team.problem import TeamInputs  # noqa: E402

pytestmark = pytest.mark.torch


class Halves(TeamInputs):
    """x ← x / 2, and the sum of what x was is added to `total`: on the CPU, as a kernel does it on a GPU."""

    def compile(self, config: Any) -> None:
        """Nothing: it is the CPU's."""

    def start(self, config: Any) -> None:
        self.args["total"] += self.args["x"].sum()
        self.args["x"].mul_(0.5)

    def launch(self, config: Any) -> None:
        self.put_back()
        self.start(config)


def make(**more: Any) -> Halves:
    adapter = TritonOperator(
        name="halves", kernel=None, dims=(Dim("n", "n"),), dtypes=("fp32",), presets=({"n": 64},), grid=lambda meta: (1,),
        arguments=lambda shape, dtype, device: {"x": torch.full((shape["n"],), torch.nan), "total": torch.full((1,), torch.nan)},
        reference=lambda args: args["x"].mul_(0.5), flops="n", bytes="n", **{"out": "x", **more})      # in place itself
    return Halves(adapter, {"n": 64}, "fp32", torch.device("cpu"), 1)


def test_each_launch_finds_what_the_first_found() -> None:
    problem = make(restored=("x",), holds={"total": 0.0})
    before = problem.args["x"].clone()
    assert torch.isfinite(before).all() and before.std() > 0.5
    for _ in range(3):
        problem.launch({})
        torch.testing.assert_close(problem.args["x"], 0.5 * before)
        torch.testing.assert_close(problem.args["total"], before.sum()[None])
    _, verdict = check_config(problem, {}, seed=2, tolerance=1e-6)
    assert verdict.right, verdict


def test_a_result_that_is_no_input_is_poisoned_before_it_is_looked_at() -> None:
    problem = make(out="total", holds={"total": 7.0}, restored=("x",))
    problem.out.fill_(torch.nan)
    problem.launch({})
    assert problem.args["total"].item() == pytest.approx(7.0 + 2 * problem.args["x"].sum().item(), rel=1e-5)


def test_what_is_put_back_is_no_part_of_a_timed_launch() -> None:
    problem, order = make(restored=("x",)), []
    assert isinstance(problem, PutsBack)
    launch = PreparedLaunch(lambda: order.append("put back"), lambda: order.append("start"))
    launch()
    launch.whole()
    assert order == ["start", "put back", "start"]
