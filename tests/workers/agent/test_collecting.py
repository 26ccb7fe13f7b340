"""The agent's thread in a job, with a simulated CUPTI: when it attaches, what it refuses, that nothing it meets harms the job."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workers.agent import collecting
from workers.agent.collecting import Collecting
from workers.agent.controller import Limits
from workers.agent.cupti.collector import CuptiError, Seen
from workers.agent.identity import Identity, not_sampled, other_threads, owner
from workers.agent.launches import KernelSum, KernelSums, Signature, Window
from workers.agent.progress import Ranges, Steps

LAUNCH_NS = 20_000


class SimulatedCupti:
    """A launch of 15 µs every 20 µs while a window is open. `taken_by`: threads that took it out."""

    def __init__(self) -> None:
        self.attached, self.is_open, self.records, self.dropped, self.fails, self.broken = False, False, 0, 0, "", ""
        self.saw_graphs = False
        self.taken_by: list[int] = []

    def open(self) -> None:
        if self.fails:
            raise CuptiError(self.fails, busy="owns" in self.fails)
        self.attached, self.is_open, self.opened_ns = True, True, time.time_ns()

    def close(self) -> None:
        self.is_open, self.closed_ns = False, time.time_ns()

    def drain(self) -> bool:
        return True

    def sums(self) -> Seen:
        count = (self.closed_ns - self.opened_ns) // LAUNCH_NS
        self.records += count
        one = KernelSum(Signature("k", (1, 1, 1), (1, 1, 1), 0), count, count * 15_000, 15_000, 15_000, 0.0, np.array([480]),
                        np.array([count]))
        return Seen(self.opened_ns, self.closed_ns, count, 0, {0: KernelSums.of([one])})

    def take_out(self) -> bool:
        self.taken_by.append(threading.get_ident())
        self.attached = False
        return True

    def gpu(self, device: int) -> tuple[str, str]:
        return "GPU-1", "simulated"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CALM_S": 0.3, "BLOCK_S": 0.02, "FEWEST_CALM": 4, "LOOK_S": 0.02, "LOOK_AGAIN_S": 0.02}.items():
        monkeypatch.setattr(collecting, name, value)
    monkeypatch.setattr(collecting, "used_gpus", lambda: ["GPU-1"])
    monkeypatch.setattr(collecting, "other_threads", lambda own: [])
    for name in ("KINETO_USE_DAEMON", "CUDA_INJECTION64_PATH"):
        monkeypatch.delenv(name, raising=False)


def start(cupti: SimulatedCupti, steps: bool = True, steps_seen: Steps | None = None, busy: Any = None,
          **more: Any) -> tuple[Collecting, list[Window]]:
    windows: list[Window] = []
    own = Collecting(Identity("j", "b", "m", "h", 0, ""), Limits(loss_pct=50.0, window_s=0.1, shortest_wait_s=0.1), windows.extend,
                     steps_seen or Steps(), make_collector=lambda: cupti, **more)
    own.safety.make_busy = busy or own.safety.make_busy
    own.start()
    if steps:
        def run() -> None:
            while own.is_alive():
                time.sleep(0.002)
                own.steps.step()

        threading.Thread(target=run, daemon=True).start()
    return own, windows


def until(own: Collecting, true: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    assert true(), (own.state, own.why)


def finish(own: Collecting) -> None:
    own.end()
    own.join(10)
    assert not own.is_alive()


def test_windows_come_with_what_they_stand_for(quick: None) -> None:
    own, windows = start(SimulatedCupti())
    until(own, lambda: len(windows) >= 3)
    finish(own)
    assert all(0.05e9 < each.observed_ns < 1e9 and each.stands_for_ns > each.observed_ns for each in windows)
    assert windows[0].context.job == "j" and windows[0].gpu.uuid == "GPU-1"
    assert sum(one.launches for one in windows[0].kernels) == pytest.approx(windows[0].observed_ns / LAUNCH_NS, rel=0.2)


def test_a_job_that_marks_no_steps_is_not_attached_to(quick: None) -> None:
    simulated = SimulatedCupti()
    own, windows = start(simulated, steps=False)
    until(own, lambda: "marks no steps" in own.why)
    assert own.state == "not collected" and not simulated.attached and not windows
    finish(own)


def test_the_jobs_own_thread_takes_cupti_out_after_every_window(quick: None) -> None:
    simulated = SimulatedCupti()
    own, windows = start(simulated)
    until(own, lambda: len(windows) >= 3)
    until(own, lambda: not simulated.attached)
    finish(own)
    assert set(simulated.taken_by) == {own.steps.thread} and own.steps.thread not in (own.ident, threading.get_ident())
    assert len(windows) - len(simulated.taken_by) in (0, 1)


def test_a_job_whose_steps_are_rare_keeps_cupti_until_the_next(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "OUT_WAIT_S", 0.05)
    simulated = SimulatedCupti()
    own, _ = start(simulated, steps=False)
    while not simulated.attached:
        time.sleep(0.002)
        own.steps.step()
    until(own, lambda: own.steps.at_step is not None)
    assert simulated.attached and own.state != "off"
    own.steps.step()
    assert not simulated.attached and simulated.taken_by == [threading.get_ident()]
    finish(own)


class SimulatedBusy:
    """NVML's answers, one a look."""

    def __init__(self, pct: float | None) -> None:
        self.answer = pct
        self.looks = 0

    def __call__(self, uuids: list[str]) -> SimulatedBusy:
        assert uuids == ["GPU-1"]
        return self

    def look(self) -> None:
        self.looks += 1

    def pct(self) -> float | None:
        return self.answer


@pytest.mark.parametrize("stay, busy_pct, why", [(None, 60.0, "runs 60 % of the time"), (None, None, "NVML does not say"),
                                                 (False, 99.0, "RIDGEPOINT_AGENT_STAY=1")])
def test_launch_bound_jobs_with_other_threads_are_not_attached_to(quick: None, monkeypatch: pytest.MonkeyPatch, stay: bool | None,
                                                                  busy_pct: float | None, why: str) -> None:
    monkeypatch.setattr(collecting, "other_threads", lambda own: ["loader", "pt_nccl_watchdg"])
    simulated = SimulatedCupti()
    own, windows = start(simulated, stay=stay, busy=SimulatedBusy(busy_pct))
    until(own, lambda: "(loader, pt_nccl_watchdg)" in own.why and why in own.why)
    assert own.state == "not collected" and own.collector is None and not windows
    finish(own)


@pytest.mark.parametrize("stay, busy_pct", [(True, None), (None, 98.0)])
def test_cupti_stays_in_jobs_with_other_threads_that_keep_the_gpu_busy_or_ask_for_it(
        quick: None, monkeypatch: pytest.MonkeyPatch, stay: bool | None, busy_pct: float | None) -> None:
    monkeypatch.setattr(collecting, "other_threads", lambda own: ["pt_nccl_watchdg"])
    simulated, busy = SimulatedCupti(), SimulatedBusy(busy_pct)
    own, windows = start(simulated, stay=stay, busy=busy)
    until(own, lambda: len(windows) >= 2 and len(own.quiet_ns) >= collecting.FEWEST_CALM)
    assert "stays attached" in own.why and own.controller.limits.often > 1e9        # type: ignore[union-attr]
    assert own.residue().high_pct >= own.residue().pct >= own.residue().low_pct >= 0
    finish(own)
    assert simulated.attached and not simulated.taken_by and busy.looks


def test_a_thread_that_comes_between_windows_has_it_decided_anew(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated, busy = SimulatedCupti(), SimulatedBusy(50.0)
    own, windows = start(simulated, busy=busy)
    until(own, lambda: windows and not simulated.attached)
    monkeypatch.setattr(collecting, "other_threads", lambda own: ["late"])
    until(own, lambda: own.state == "not collected" or own.state == "off")
    if own.state == "not collected":            # else it came while a window was open
        assert "(late)" in own.why and not simulated.attached
        busy.answer = 99.0
        count = len(windows)
        until(own, lambda: len(windows) > count + 1)
        assert simulated.attached and "stays attached" in own.why
    finish(own)


@pytest.mark.parametrize("busy_pct, state", [(99.0, "collecting"), (50.0, "off")])
def test_a_thread_that_comes_in_a_window_keeps_cupti_there(quick: None, monkeypatch: pytest.MonkeyPatch, busy_pct: float,
                                                           state: str) -> None:
    simulated = SimulatedCupti()
    own, windows = start(simulated, busy=SimulatedBusy(busy_pct))
    until(own, lambda: simulated.is_open)
    monkeypatch.setattr(collecting, "other_threads", lambda own: ["late"])
    until(own, lambda: own.state == "off" if state == "off" else len(windows) >= 3)
    assert "(late)" in own.why and simulated.attached and not simulated.taken_by
    finish(own)


def test_a_graph_ends_it_where_cupti_stays(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "other_threads", lambda own: ["loader"])
    simulated, steps = SimulatedCupti(), Steps()
    own, windows = start(simulated, steps_seen=steps, busy=SimulatedBusy(99.0))
    until(own, lambda: windows)
    steps.captures += 1
    own.steps.before_capture()                  # waits for nothing
    until(own, lambda: own.state == "off")
    own.join(10)
    assert "CUDA graphs" in own.why and simulated.attached and not simulated.is_open


def test_which_threads_may_call_cuda() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="loader")
    agents = threading.Thread(target=ended.wait, name="ridgepoint-agent-link")
    for each in (thread, agents):
        each.start()
    own = threading.get_ident()
    assert "loader" in other_threads(own) and "ridgepoint-agent-link" not in other_threads(own)
    assert "MainThread" not in other_threads(own) and "MainThread" in other_threads(thread.ident or 0)
    ended.set()
    thread.join()
    assert "loader" not in other_threads(own)


@pytest.mark.parametrize("graphs", ["replays", "captures"])
def test_jobs_with_cuda_graphs_are_not_attached_to_unless_asked(quick: None, graphs: str) -> None:
    simulated, steps = SimulatedCupti(), Steps()
    setattr(steps, graphs, 1)
    own, windows = start(simulated, steps_seen=steps)
    until(own, lambda: "replays CUDA graphs" in own.why)
    assert own.state == "not collected" and own.collector is None and not windows
    finish(own)
    simulated, steps = SimulatedCupti(), Steps()
    setattr(steps, graphs, 1)
    own, windows = start(simulated, steps_seen=steps, stay=True)
    until(own, lambda: len(windows) >= 2 and len(own.quiet_ns) >= collecting.FEWEST_CALM)       # what that costs is measured
    finish(own)
    assert simulated.attached and not simulated.taken_by            # it stays


def test_a_job_waits_until_cupti_is_out_before_it_captures_a_graph(quick: None) -> None:
    simulated = SimulatedCupti()
    own, _ = start(simulated, steps=False)
    while not simulated.attached:
        time.sleep(0.002)
        own.steps.step()
    own.steps.captures += 1
    own.steps.before_capture()
    assert not simulated.attached and simulated.taken_by == [threading.get_ident()]
    until(own, lambda: own.state == "off")
    assert "left alone from now on" in own.why


def test_graphs_that_ran_in_a_window_keep_cupti_where_it_is(quick: None) -> None:
    simulated = SimulatedCupti()
    own, windows = start(simulated)
    until(own, lambda: simulated.attached)
    simulated.saw_graphs = True             # replayed by C++, so no hook told of them
    until(own, lambda: own.state == "off")
    own.join(10)
    assert simulated.attached and "stays attached until the process ends" in own.why and windows and not simulated.taken_by


def test_a_job_that_ends_takes_cupti_out(quick: None) -> None:
    simulated = SimulatedCupti()
    own, _ = start(simulated, steps=False)
    while not simulated.attached:
        time.sleep(0.002)
        own.steps.step()
    own.leave()
    assert not simulated.attached
    own.join(10)
    assert not own.is_alive()


@pytest.mark.parametrize("fails, why", [("cuptiSubscribe: another profiler owns CUPTI", "another profiler owns CUPTI"),
                                        ("cuptiActivityEnable: unknown", "cuptiActivityEnable")])
def test_an_error_switches_it_off_for_good(quick: None, fails: str, why: str) -> None:
    simulated = SimulatedCupti()
    own, windows = start(simulated)
    until(own, lambda: windows)
    simulated.fails = fails
    until(own, lambda: own.state == "off")
    own.join(10)
    assert why in own.why and not own.is_alive() and own.report().state == "off"      # type: ignore[union-attr]


def test_anything_a_sink_raises_stays_in_the_agent(quick: None) -> None:
    simulated = SimulatedCupti()
    own, _ = start(simulated)
    own.sink = lambda windows: 1 // 0           # type: ignore[assignment]
    until(own, lambda: own.state == "off")
    own.join(10)
    assert "ZeroDivisionError" in own.why and not simulated.attached


def test_a_torch_profiler_takes_over(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    own, windows = start(SimulatedCupti())
    until(own, lambda: windows)
    monkeypatch.setitem(sys.modules, "torch.autograd.profiler", SimpleNamespace(_is_profiler_enabled=True))
    until(own, lambda: own.state == "off")
    assert "torch profiler" in own.why


def test_a_job_on_amd_is_told_what_is_missing(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.version", SimpleNamespace(hip="6.3.42131", cuda=None))
    simulated = SimulatedCupti()
    own, windows = start(simulated)
    own.join(10)
    assert own.state == "off" and "HIP 6.3.42131" in own.why and "rocprofiler-sdk" in own.why
    assert not simulated.attached and not windows and not own.is_alive()


def test_held_jobs_have_no_windows_and_offers_bound_them(quick: None) -> None:
    own, windows = start(SimulatedCupti())
    until(own, lambda: windows)
    own.hold()
    time.sleep(0.6)
    count = len(windows)
    time.sleep(0.5)
    assert len(windows) == count
    own.offer(0.0)
    own.release()
    time.sleep(0.5)
    assert len(windows) == count                # no offer is open
    own.offer(5.0)
    until(own, lambda: len(windows) > count)
    finish(own)


def test_windows_are_named_by_the_range_that_is_open(quick: None) -> None:
    ranges = Ranges()
    ranges.enter("a", "eval")
    own, windows = start(SimulatedCupti(), ranges=ranges)
    until(own, lambda: windows)
    ranges.leave("a")
    count = len(windows)
    until(own, lambda: len(windows) > count + 1)
    finish(own)
    assert windows[0].context.model == "m · eval" and windows[-1].context.model == "m"


def test_who_is_sampled_is_the_same_on_every_start_and_one_of_n() -> None:
    ranks = [Identity("j", "", "", "h", rank, "run-1") for rank in range(4000)]
    drawn = [not not_sampled(each, "ranks=8", "seed") for each in ranks]
    assert drawn == [not not_sampled(each, "ranks=8", "seed") for each in ranks] and 400 < sum(drawn) < 600
    assert drawn != [not not_sampled(each, "ranks=8", "another") for each in ranks]
    with pytest.raises(ValueError, match="ranks=8"):
        not_sampled(ranks[0], "gpus=2")
    assert owner({"KINETO_USE_DAEMON": "1"}) and not owner({"KINETO_USE_DAEMON": "0"}) and not owner({})
