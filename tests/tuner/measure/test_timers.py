"""Timers on a simulated queue: a host that comes late, with its own clock, and a GPU that does one thing after the other."""

import math
from types import SimpleNamespace

import pytest

from tests.tuner.measure.chosen import WITHOUT_TORCH

pytest.importorskip("torch", reason=WITHOUT_TORCH)

from tuner.tuning.measure import flush, timers
from tuner.tuning.measure.policy import Policy

pytestmark = pytest.mark.torch
FLUSH_MS, CALL_MS = 0.065, 0.004                  # as on an H200; what a call into the driver costs the host


class Queue:
    """A GPU's queue and the host that fills it; times in ms."""

    def __init__(self) -> None:
        self.host_ms = self.free_ms = 0.0         # the host's clock; when the GPU has done all that was queued
        self.waited_ms = 0.0                      # that the host let the GPU sleep
        cuda = SimpleNamespace(Event=lambda enable_timing: Event(self), _sleep=self.sleep, synchronize=self.synchronize,
                               get_device_properties=lambda device: SimpleNamespace(L2_cache_size=50 << 20),
                               get_device_capability=lambda device: (7, 5))       # an older GPU: nothing outlives a write
        self.torch = SimpleNamespace(cuda=cuda, int8=None, empty=lambda *size, **how: SimpleNamespace(
            zero_=lambda: self.run(FLUSH_MS), numel=lambda: size[0]))

    def run(self, gpu_ms: float, host_ms: float = CALL_MS) -> None:
        self.host_ms += host_ms
        self.free_ms = max(self.free_ms, self.host_ms) + gpu_ms

    def sleep(self, cycles: int) -> None:
        self.waited_ms += cycles / timers.CYCLES_PER_MS
        self.run(cycles / timers.CYCLES_PER_MS)

    def synchronize(self, device: object) -> None:
        self.host_ms = max(self.host_ms, self.free_ms)


class Event:
    def __init__(self, queue: Queue) -> None:
        self.queue, self.at_ms = queue, math.inf

    def record(self) -> None:
        self.queue.run(0.0)
        self.at_ms = self.queue.free_ms

    def query(self) -> bool:
        return self.at_ms <= self.queue.host_ms

    def elapsed_time(self, other: "Event") -> float:
        return other.at_ms - self.at_ms


@pytest.fixture
def queue(monkeypatch):
    made = Queue()
    for module in (timers, flush):
        monkeypatch.setattr(module, "torch", made.torch)
    monkeypatch.setattr(flush, "find_reset", lambda device: None)
    monkeypatch.setattr(timers, "time", SimpleNamespace(perf_counter=lambda: made.host_ms / 1e3))
    monkeypatch.setattr(timers, "nvml", SimpleNamespace(reading=lambda index: {}))
    return made


def launches(queue, kernel_ms, host_ms):
    """Return a launch that costs the host what `host_ms` says, one after the other, then 0.02 ms; and how often it was called."""
    costs, calls = list(host_ms), []

    def launch():
        calls.append(1)
        queue.run(kernel_ms, costs.pop(0) if costs else 0.02)

    return launch, calls


def cold(queue, **policy):
    return timers.make_timer(None, Policy.read({"kind": "cold", **policy}), 0)


def test_a_host_in_time_is_asked_once(queue):
    launch, calls = launches(queue, 0.05, [])
    assert cold(queue).samples(launch, 1) == pytest.approx([0.05])
    assert cold(queue).samples(launch, 5) == pytest.approx([0.05] * 5)
    assert len(calls) == 6 and not queue.waited_ms


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_sample_that_the_host_was_late_for_is_taken_again(queue, count):
    """A race decides after a single sample: this one would have been 0.16 ms, and its configuration lost."""
    launch, calls = launches(queue, 0.05, [0.18])
    assert cold(queue).samples(launch, count) == pytest.approx([0.05] * count)
    assert len(calls) == 2 * count and queue.waited_ms >= 0.18


def test_one_stall_makes_nothing_wait_that_follows(queue):
    timer = cold(queue)
    launch, _ = launches(queue, 0.05, [3.0])
    timer.samples(launch, 1)
    waited_ms = queue.waited_ms
    timer.samples(launch, 5)
    assert queue.waited_ms == waited_ms


def test_a_launch_that_always_costs_more_than_the_flush_is_waited_for_from_the_start(queue):
    timer = cold(queue)
    launch, calls = launches(queue, 0.005, [0.2] * 100)
    assert timer.samples(launch, 5) == pytest.approx([0.005] * 5)
    assert len(calls) == 10
    assert timer.samples(launch, 5) == pytest.approx([0.005] * 5)
    assert len(calls) == 15


def test_a_launch_that_waits_for_the_gpu_ends(queue):
    def launch():
        queue.run(0.05)
        queue.synchronize(None)

    assert len(cold(queue).samples(launch, 1)) == 1


def test_the_policys_wait_goes_before_several(queue):
    launch, calls = launches(queue, 0.05, [0.02, 0.18])
    timer = cold(queue, lead_ms=3.0)
    timer.samples(launch, 1)                                     # a warm-up: the GPU shall not rest before it
    assert not queue.waited_ms
    assert timer.samples(launch, 5) == pytest.approx([0.05] * 5)
    assert len(calls) == 6 and queue.waited_ms == pytest.approx(3.0)
