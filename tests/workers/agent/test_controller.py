"""The controller on simulated jobs: the true loss stays below the limit, what it states holds it, and where nothing does it says
so."""

from __future__ import annotations

import pytest

from tests.workers.agent.jobs import SimulatedJob
from workers.agent.controller import MOST_EMPTY, RARE_S, START_DEBT_S, Controller, Limits, Outcome
from workers.agent.progress import Residue

MINUTES = 8 * 60.0


@pytest.mark.slow
@pytest.mark.parametrize("job, least_coverage_pct", [
    (SimulatedJob(0.0023, 0.035), 2.0),                                       # a decode loop of CUDA graphs
    (SimulatedJob(0.0005, 0.001, launches_per_s=38_000), 10.0),     # GPU-bound
    (SimulatedJob(0.060, 0.02, launches_per_s=8000), 2.0),
    (SimulatedJob(0.35, 0.02, launches_per_s=8000), 2.0),     # steps longer than a window
    (SimulatedJob(0.0025, 0.05, noise=0.15), 1.0),
    (SimulatedJob(0.0013, 0.25, launches_per_s=15_000, noise=0.1), 0.5),
    (SimulatedJob(0.004, 0.124), 0.5),
], ids=["graph", "gemm", "training", "long steps", "noisy", "slow in windows", "graph of 1 µs"])
def test_the_true_loss_stays_below_the_limit(job: SimulatedJob, least_coverage_pct: float) -> None:
    controller = Controller(Limits(often=1 << 30), job.now_s)
    job.run(5.0)
    job.drive(controller, MINUTES)
    told = controller.report(job.now_s)
    assert told.state == "collecting" and told.measured and told.loss_pct is not None
    assert job.lost_pct() <= 0.5
    assert told.loss_low_pct - 0.05 <= job.lost_pct(controller.start_s) <= told.loss_high_pct + 0.05      # of the windows it keeps
    assert told.loss_high_pct <= 0.55
    assert job.seen_pct() >= least_coverage_pct
    assert told.coverage_pct == pytest.approx(job.seen_pct(controller.start_s), rel=0.1)


@pytest.mark.slow
def test_windows_become_rare_as_the_process_grows_with_each() -> None:
    job, limits = SimulatedJob(0.0005, 0.001, launches_per_s=38_000), Limits(often=30)
    controller = Controller(limits, 0.0)
    job.drive(controller, MINUTES)
    assert limits.often <= controller.windows <= limits.often + MINUTES / RARE_S
    began_s, before = job.now_s, controller.windows
    job.drive(controller, 20 * RARE_S)
    assert (job.now_s - began_s) / RARE_S - 3 <= controller.windows - before <= (job.now_s - began_s) / RARE_S
    assert controller.report(job.now_s).state == "collecting"


def test_a_job_without_marks_is_bounded_by_the_time_of_its_windows() -> None:
    job = SimulatedJob(0.0023, 0.5, marks=False)
    controller = Controller(Limits(), 0.0)
    job.drive(controller, 2 * MINUTES)
    told = controller.report(job.now_s)
    assert told.state == "collecting" and not told.measured and told.loss_pct is None
    assert job.lost_pct() <= told.loss_high_pct <= 0.55
    assert told.coverage_pct > 0.1


def test_a_launch_bound_job_is_seen_rarely_and_no_start_costs_more_than_its_debt() -> None:
    """Steps take 75 % longer while a window is open, as of an eager loop on an H200."""
    job = SimulatedJob(0.0013, 0.75, launches_per_s=150_000, noise=0.1)
    controller = Controller(Limits(), 0.0)
    for _ in range(10):
        job.drive(controller, 30)
        assert job.lost_s <= 0.005 * job.now_s + START_DEBT_S
    told = controller.report(job.now_s)
    assert told.state == "collecting" and told.measured and told.loss_high_pct <= 0.55
    assert job.lost_pct() <= 0.5
    assert told.coverage_pct > 0.2


def test_windows_widen_until_records_flow_and_end_where_none_do() -> None:
    controller, now_s, lengths = Controller(Limits(), 0.0), 0.0, []
    for _ in range(MOST_EMPTY):
        plan = controller.plan(now_s)
        assert plan is not None
        lengths.append(plan.window_s)
        controller.tell(Outcome(plan.at_s, plan.window_s, 0.0, 0.0))
        now_s = plan.at_s + plan.window_s
    assert lengths == [0.2, 0.4, 0.8, 1.6, 1.6]
    assert controller.plan(now_s + 1) is None
    assert controller.report(now_s).state == "not collected" and "no records" in controller.report(now_s).why
    assert controller.plan(now_s + 4000) is not None            # it looks again, rarely


def test_a_window_that_was_cut_says_nothing_of_its_length() -> None:
    controller = Controller(Limits(), 0.0)
    for number in range(10):
        controller.tell(Outcome(number, 0.1, 0.0, 0.0, cut=True))
    assert controller.window_s == Limits().window_s and controller.state != "not collected"


@pytest.mark.slow
def test_what_costs_too_much_is_narrowed_and_then_not_collected() -> None:
    job = SimulatedJob(0.0023, 9.0)                              # ten times slower while a window is open
    controller = Controller(Limits(loss_pct=0.1), 0.0)
    job.drive(controller, 3600)
    told = controller.report(job.now_s)
    assert told.window_s < Limits().window_s
    assert told.state == "not collected" and "costs up to" in told.why
    assert job.lost_pct() < 0.3


def test_what_stays_while_attached_is_counted_first() -> None:
    controller = Controller(Limits(), 0.0, Residue(0.6, 0.7, 0.8))
    assert controller.plan(1.0) is None and "0.70 % (at least 0.60 %)" in controller.report(1.0).why
    job = SimulatedJob(0.0023, 0.035)
    half = Controller(Limits(), 0.0, Residue(0.25, 0.25, 0.3))
    job.drive(half, MINUTES)
    told = half.report(job.now_s)
    assert told.loss_pct is not None and 0.25 < told.loss_pct <= 0.5
    assert job.lost_pct() <= 0.25


def test_what_is_not_proved_to_be_lost_is_told_and_keeps_no_window_closed() -> None:
    job = SimulatedJob(0.0023, 0.035)
    controller = Controller(Limits(), 0.0, Residue(0.0, 0.8, 2.5))      # the job's steps vary by several %
    job.drive(controller, MINUTES)
    told = controller.report(job.now_s)
    assert told.state == "collecting" and told.coverage_pct > 0
    assert told.loss_pct is not None and told.loss_pct > 0.8 and told.loss_low_pct < 0.5 and told.loss_high_pct > 2.5


def test_time_in_which_the_job_is_held_earns_nothing() -> None:
    job = SimulatedJob(0.0023, 0.035)
    controller = Controller(Limits(), 0.0)
    job.drive(controller, 300)
    before = controller.plan(job.now_s)
    controller.shift(1000.0)
    after = controller.plan(job.now_s + 1000.0)
    assert before and after and after.at_s - before.at_s == pytest.approx(1000.0)
