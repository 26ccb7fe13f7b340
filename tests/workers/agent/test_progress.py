"""What a window cost, from moments of steps."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from workers.agent.job import read_ranges
from workers.agent.progress import MOST_LABELS, RING, Ranges, Steps, block_means, time_lost, watch_torch

MS = 1_000_000


def moments(*parts: tuple[int, float]) -> np.ndarray:
    """Return moments in ns of so many steps of so many ms each."""
    return np.cumsum(np.concatenate([[0.0], *(np.full(count, ms) for count, ms in parts)]) * MS).astype(np.int64)


def test_lost_time_is_that_of_the_steps_within() -> None:
    times = moments((500, 2.0), (100, 2.5), (500, 2.0))
    found = time_lost(times, 1_000 * MS, 1_250 * MS)
    assert found.seconds == pytest.approx(0.050, abs=0.002) and found.steps in (100, 101, 102)
    assert found.steps_per_s == pytest.approx(500, rel=0.01)


def test_steps_longer_than_the_window() -> None:
    times = moments((10, 300.0), (1, 330.0), (10, 300.0))
    assert time_lost(times, 3_050 * MS, 3_250 * MS).seconds == pytest.approx(0.030, abs=1e-6)


def test_a_drift_cancels() -> None:
    took = np.linspace(2.0, 3.0, 1000)
    times = np.cumsum(np.concatenate([[0], took]) * MS).astype(np.int64)
    found = time_lost(times, int(times[450]), int(times[550]))
    assert found.seconds is not None and abs(found.seconds) < 0.002


@pytest.mark.parametrize("times, opened, closed, why", [
    (moments(), 0, MS, "the job marks no steps"),
    (moments((50, 2.0)), 200 * MS, 300 * MS, "no step ran while the window was open"),
    (moments((2, 2.0), (100, 2.0)), 2 * MS, 20 * MS, "too few steps beside the window"),
    (moments((100, 2.0), (1, 900.0), (100, 2.0)), 150 * MS, 250 * MS, "the job paused beside the window")])
def test_what_is_not_known_says_why(times: np.ndarray, opened: int, closed: int, why: str) -> None:
    found = time_lost(times, opened, closed)
    assert found.seconds is None and found.why == why


def test_the_ring_keeps_the_last_moments_in_order() -> None:
    clock = iter(range(RING + 1000))
    steps = Steps(lambda: next(clock))
    for _ in range(RING + 1000):
        steps.step()
    kept = steps.since(0)
    assert kept[-1] == RING + 999 and (np.diff(kept) == 1).all() and RING - 100 <= kept.size <= RING
    assert steps.since(RING + 990).tolist() == list(range(RING + 990, RING + 1000))


def test_what_the_job_marks_is_believed_before_what_is_found_out() -> None:
    steps = Steps()
    steps.step("graph replay")
    steps.step("optimizer")
    assert (steps.source, steps.count) == ("optimizer", 1)
    steps.step("graph replay")
    assert steps.count == 1
    steps.step()
    steps.step("optimizer")
    assert (steps.source, steps.count) == ("job", 1)


def test_block_means() -> None:
    means = block_means(moments((500, 2.0), (1, 500.0), (500, 3.0)), 0.25)
    assert means[0] == pytest.approx(2.0 * MS) and means[-1] == pytest.approx(3.0 * MS) and max(means) < 3.1 * MS
    assert block_means(moments(), 0.25) == []


def test_a_window_is_named_by_the_ranges_that_stay_open() -> None:
    clock = iter(range(1000))
    ranges = Ranges(clock_ns=lambda: next(clock))
    ranges.enter("a", "train")          # 0
    ranges.enter("nvtx", "epoch 3")     # 1
    ranges.enter("b", "step")           # 2
    assert ranges.label(5) == "train/epoch 3/step" and ranges.label(1) == "train/epoch 3" and ranges.label(-1) == ""
    ranges.leave("b")
    ranges.enter("b", "step")           # 3: opened again while the window was open
    assert ranges.label(2) == "train/epoch 3"
    ranges.leave("nvtx")
    ranges.leave("nvtx")                # one too many
    assert ranges.label(9) == "train/step"
    other = threading.Thread(target=lambda: ranges.enter("c", "data"))
    other.start()
    other.join()
    assert "data" not in ranges.label(9)


def test_names_of_ranges_are_chosen_and_bounded() -> None:
    ranges = read_ranges(" train, eval")
    assert ranges is not None and read_ranges("") is None and read_ranges("0") is None
    ranges.enter("a", "outer")
    ranges.enter("b", "eval")
    assert ranges.label(time.perf_counter_ns()) == "eval"
    every = read_ranges("1")
    assert every is not None
    told = []
    for number in range(MOST_LABELS + 5):
        every.enter("n", f"step {number}")
        told.append(every.label(time.perf_counter_ns()))
        every.leave("n")
    assert told[0] == "step 0" and told[MOST_LABELS:] == [""] * 5
    for _ in range(100):                # pushed and never popped
        every.enter("nvtx", "x" * 50)
    assert len(every.label(time.perf_counter_ns())) <= 200


RANGES = """
import torch, torch.cuda.nvtx as nvtx
from torch.profiler import record_function
from workers.agent.progress import Ranges, watch_ranges
import time
from types import SimpleNamespace
nvtx.range_push, nvtx.range_pop = lambda msg: 7, lambda: 8       # a CPU build has none
ranges = Ranges()
assert watch_ranges(ranges) == ["record_function", "nvtx"] and watch_ranges(ranges) == []
with record_function("train"):
    with nvtx.range("forward"):
        assert nvtx.range_push("inner") == 7
        x = torch.ones(3) + 1
        print(ranges.label(time.perf_counter_ns()))
        assert nvtx.range_pop() == 8
    try:
        with record_function("fails"):
            raise KeyError
    except KeyError:
        print(ranges.label(time.perf_counter_ns()))
@record_function("decorated")
def own():
    return ranges.label(time.perf_counter_ns())
print(own(), repr(ranges.label(time.perf_counter_ns())))
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    with record_function("seen by torch"):
        pass
print(any(event.name == "seen by torch" for event in profile.events()))
from workers.agent.progress import Steps, watch_torch
first, second, last = Steps(), Steps(), Ranges()
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], 0.1)
weight.grad = torch.ones(2)
assert "optimizer" in watch_torch(first)
optimizer.step()
watch_torch(second), watch_ranges(last)         # the agent of a forked child
optimizer.step()
with record_function("child"):
    print(first.count, second.count, last.label(time.perf_counter_ns()),
          repr(ranges.label(time.perf_counter_ns())))
"""


@pytest.mark.process
@pytest.mark.torch
def test_ranges_of_torch() -> None:
    said = subprocess.run([sys.executable, "-c", RANGES], capture_output=True, text=True, timeout=120, check=True,
                          env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert said.stdout.splitlines() == ["train/forward/inner", "train", "decorated ''", "True", "1 1 child ''"]


def test_replays_count_for_the_agent_that_watched_last(monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:                        # of torch.cuda.graphs, whose replay needs a GPU
        replayed = 0

        def replay(self) -> None:
            self.replayed += 1

        def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> str:
            return capture_error_mode

    monkeypatch.setitem(sys.modules, "torch.cuda.graphs", SimpleNamespace(CUDAGraph=Graph))
    monkeypatch.delitem(sys.modules, "torch.optim.optimizer", raising=False)
    first, second, graph = Steps(), Steps(), Graph()
    assert watch_torch(first) == ["graph replay"]
    graph.replay()
    assert watch_torch(second) == []
    graph.replay()
    assert (graph.replayed, first.replays, second.replays, second.count, second.source) == (2, 1, 1, 1, "graph replay")
    told: list[int] = []
    second.before_capture = lambda: told.append(second.captures)        # the agent is out before CUDA hears of the graph
    assert graph.capture_begin(capture_error_mode="thread_local") == "thread_local"
    assert told == [1] and first.captures == 0
