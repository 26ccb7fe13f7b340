"""Compile ahead with real processes: compilers that crash, hang and lie, beside a child that does the same."""

import dataclasses
import os
import subprocess
import sys
import threading
import time
from itertools import chain, pairwise, repeat
from pathlib import Path

import pytest

from tests.workers.tune.test_sandbox import alive
from tuner.tuning.operators import OPERATORS
from tuner.tuning.search.finalists import best_trial
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.space import Space
from tuner.tuning.trial import Measured, Reason, Rejected, config_key
from workers.core import compilers, warm
from workers.tune.gpu_child import Limits
from workers.tune.sandbox import SandboxRunner

pytestmark = pytest.mark.process

LIMITS = Limits(open_s=20, compile_s=1.5, run_s=1.5, finalists_s=5, max_opens=2)


def make(count: int = 2, limits: Limits = LIMITS, **shape: int) -> SandboxRunner:
    return SandboxRunner("fake", shape, "fp16", limits=limits, compilers=count, child_module="tests.workers.core.fake_child",
                         compiler_module="tests.workers.tune.fake_compiler")


def space_of(*configs: dict) -> Space:
    return Space.listed([{"build": "fine", "do": "fine", **config, "n": n} for n, config in enumerate(configs)])


def search(runner: SandboxRunner, space: Space, **kwargs):
    runner.open()
    try:
        return list(tune(space, "exhaustive", runner, Budget(), 0, **kwargs)), runner.use()
    finally:
        runner.close()


def test_a_hostile_space_ends_with_each_fault_named_and_none_winning():
    faults = [({"build": "hang"}, Reason.TIMEOUT), ({"build": "abort"}, Reason.CRASH), ({"build": "refuse"}, Reason.COMPILE),
              ({"build": "too big"}, Reason.RESOURCES), ({"build": "garbage"}, Reason.CRASH),
              ({"build": "spills"}, Reason.SPILLS), ({"do": "hang"}, Reason.TIMEOUT), ({"do": "segfault"}, Reason.CRASH),
              ({"do": "lie"}, Reason.WRONG)]
    space = space_of({}, {}, *(config for config, _ in faults), {}, {})
    trials, use = search(make(), space)
    assert sorted(config_key(t.config) for t in trials) == sorted(config_key(c) for c in space.configs())
    found = {t.config["n"]: t.outcome for t in trials}
    for n, (config, reason) in enumerate(faults, start=2):
        assert isinstance(found[n], Rejected) and found[n].reason is reason, (config, found[n])
    assert all(isinstance(found[n], Measured) for n in (0, 1, 11, 12))
    winner = best_trial(trials)
    assert winner is not None and (winner.config["build"], winner.config["do"]) == ("fine", "fine")
    assert "compile: no answer within 1.5 s" in found[2].message and "died of SIGABRT" in found[3].message
    assert use.replaced == 5 and use.compiled == len(space)


def test_the_gpu_goes_on_while_a_compiler_hangs():
    trials, _ = search(make(), space_of({}, {"build": "hang"}, *[{}] * 8))
    assert trials[-1].config["build"] == "hang" and trials[-1].at_s >= 1.5


def test_the_last_trials_are_those_that_are_ready_and_no_more():
    runner = make()
    runner.open()
    try:
        trials = list(tune(space_of({}, {"build": "hang"}, *[{}] * 8), "exhaustive", runner, Budget(trials=4), 0))
    finally:
        runner.close()
    assert [t.config["build"] for t in trials] == ["fine"] * 4 and all(isinstance(t.outcome, Measured) for t in trials)


def test_facts_are_known_before_the_time_is_and_stay_with_the_trial():
    class Listening:
        def __init__(self, space):
            self.left, self.heard, self.heard_when_told = list(space.configs()), {}, {}

        def ask(self, n):
            asked, self.left = self.left[:n], self.left[n:]
            return asked

        def tell_facts(self, found):
            self.heard |= found

        def tell(self, trials):
            self.heard_when_told |= {config_key(t.config): config_key(t.config) in self.heard for t in trials}

    space = space_of({}, {}, {"build": "refuse"})
    strategy, runner = Listening(space), make()
    runner.open()
    try:
        trials = list(tune(space, strategy, runner, Budget(), 0))
    finally:
        runner.close()
    timed = {config_key(t.config): t for t in trials if isinstance(t.outcome, Measured)}
    assert set(strategy.heard) == set(timed) and all(strategy.heard_when_told[key] for key in timed)
    facts = next(iter(timed.values())).outcome.facts
    assert (facts["registers"], facts["occupancy_pct"], facts["compile_s"], facts["load_s"]) == (128, 25.0, 0.05, 0.25)


def test_spilling_code_is_timed_when_there_is_nothing_better():
    trials, _ = search(make(1), space_of({"build": "spills"}, {}, {"build": "spills"}))
    by_n = {t.config["n"]: t.outcome for t in trials}
    assert isinstance(by_n[0], Measured) and by_n[0].facts["spills"] == 700
    assert isinstance(by_n[2], Rejected) and by_n[2].reason is Reason.SPILLS and by_n[2].facts["spills"] == 700


def test_what_must_spill_is_not_compiled_once_something_runs():
    known = dataclasses.replace(OPERATORS["softmax"], name="fake", flops=lambda shape: 1, bytes=lambda shape, dtype: 1,
                                held=lambda shape, config: config["held"])
    runner = SandboxRunner("fake", {}, "fp16", limits=LIMITS, compilers=1, child_module="tests.workers.core.fake_child",
                           compiler_module="tests.workers.tune.fake_compiler", known=known)
    trials, use = search(runner, space_of(*({"held": held} for held in (512, 10, 10, 10, 512, 319))))
    by_n = {t.config["n"]: t.outcome for t in trials}
    assert isinstance(by_n[0], Measured) and isinstance(by_n[5], Measured)          # nothing ran before it; 64 words may spill
    assert isinstance(by_n[4], Rejected) and by_n[4].reason is Reason.SPILLS and "512 values" in by_n[4].message
    assert use.compiled == 5


def test_compiling_overlaps_with_measuring_and_the_share_is_told():
    """10 configurations of 0.3 s in the compiler and 0.25 s on the GPU: one after the other they take 5.5 s."""
    trials, use = search(make(2), space_of(*[{"build": "slow", "do": "nap"}] * 10))
    assert len(trials) == 10 and all(isinstance(t.outcome, Measured) for t in trials)
    held_s = sum(t.outcome.facts["ended_s"] - t.outcome.facts["began_s"] for t in trials)       # by the child's own clock
    assert use.compile_s == pytest.approx(3.0, abs=0.1)
    assert trials[-1].at_s < use.compile_s + held_s
    assert held_s * 0.9 < use.busy_s < use.wall_s - use.open_s
    assert use.busy_share == pytest.approx(use.busy_s / (use.wall_s - use.open_s), rel=0.01)


def test_stop_is_seen_at_once_while_every_compiler_hangs():
    runner, space = make(2, Limits(open_s=20, compile_s=60)), space_of(*[{"build": "hang"}] * 4)
    runner.open()
    try:
        threading.Timer(0.5, runner.stop).start()
        began = time.monotonic()
        assert list(tune(space, "exhaustive", runner, Budget(), 0)) == []
        assert time.monotonic() - began < 20         # at once when idle; every compiler hangs for a minute
    finally:
        runner.close()
    assert time.monotonic() - began < 40


@pytest.mark.parametrize("shape", [pytest.param({"no_meta": 1}, marks=pytest.mark.deep_only), {"compiler_dies": 1}])
def test_a_kernel_that_cannot_compile_ahead_is_compiled_by_the_child(shape):
    trials, use = search(make(2, **shape), space_of({}, {}, {}))
    assert [t.outcome.facts["compile_s"] for t in trials] == [0.25] * 3       # the child's own
    assert use.compilers == 0


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.deep_only)])
def test_a_crashed_child_is_replaced_and_the_search_goes_on(count):
    trials, _ = search(make(count), space_of({}, {"do": "segfault"}, {"do": "exit"}, {}))
    outcomes = {t.config["n"]: t.outcome for t in trials}
    assert isinstance(outcomes[0], Measured) and isinstance(outcomes[3], Measured)
    assert all(isinstance(outcomes[n], Rejected) and outcomes[n].reason is Reason.CRASH for n in (1, 2))
    at = [t.at_s for t in trials]
    assert all(before < after < before + 15 for before, after in pairwise(at))      # the limits add up to a minute
    if count == 1:          # of two, either may be ready first, and what is ready first runs first
        assert [t.config["n"] for t in trials] == [0, 1, 2, 3]


def test_compilers_die_with_their_worker_and_leave_no_folder(tmp_path, monkeypatch):
    program = ("from tests.workers.tune.test_ahead import *\n"
               "runner = make(2); runner.open(); runner.compile_ahead([{'build': 'fine', 'n': n} for n in range(8)])\n"
               "pids = set()\nwhile len(pids) < 2:\n"
               "    pids |= {answer['compiler'] for _, answer in runner.take_compiled(1)}\n"
               "    runner.compile_ahead([{'build': 'slow', 'n': 1}] * 2)\n"
               "print(*pids, runner._folder, flush=True); time.sleep(60)")
    worker = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "TMPDIR": str(tmp_path)})
    *pids, folder = worker.stdout.readline().split()
    worker.kill()
    worker.wait()
    end = time.monotonic() + 5
    while any(alive(int(pid)) for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    assert len(pids) == 2 and not any(alive(int(pid)) for pid in pids) and Path(folder).exists()
    monkeypatch.setattr(warm.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(warm.tempfile, "tempdir", str(tmp_path))
    mine = warm.cache_folder()             # the next session sweeps what the killed one left
    assert mine.exists() and not Path(folder).exists()


def test_the_same_processes_go_on_with_another_shape():
    runner, seen = make(2, size=1), []
    space = space_of({}, {}, {})
    try:
        for size in (1, 2):
            runner.move("fake", {"size": size}, "fp16")
            session = runner.open()
            trials = list(tune(space, "exhaustive", runner, Budget(), 0))
            seen.append({session.environment["pid"], *(t.outcome.facts["compiler"] for t in trials)})
            assert all(t.outcome.facts["compiled_for"] == size for t in trials)
        assert len(seen[0] | seen[1]) <= 3 and runner.use().open_s < runner.use().wall_s
    finally:
        runner.close()


def test_the_gpu_works_while_the_strategy_thinks():
    """8 configurations of 0.25 s, and a strategy that thinks for 0.2 s about each: taken in turn, the two would never overlap."""
    class Slow:
        def __init__(self, space):
            self.left, self.thought_s = list(space.configs()), []

        def ask(self, n):
            asked, self.left = self.left[:1], self.left[1:]
            began_s = time.monotonic()
            time.sleep(0.2 if asked else 0)
            self.thought_s.append((began_s, time.monotonic()))
            return asked

        def tell(self, trials):
            pass

    runner, space = make(2), space_of(*[{"do": "nap"}] * 8)
    strategy = Slow(space)
    runner.open()
    try:
        trials = list(tune(space, strategy, runner, Budget(), 0))
        assert len(trials) == 8
        held_s = [(t.outcome.facts["began_s"], t.outcome.facts["ended_s"]) for t in trials]      # by the same clock
        both_s = sum(max(0.0, min(ends) - max(begins)) for held in held_s for thought in strategy.thought_s
                     for begins, ends in [zip(held, thought, strict=True)])
        assert both_s > 0.2                        # 1.4 on an idle machine
    finally:
        runner.close()


def test_children_outlive_the_thread_that_asked_for_them():
    runner = make(1)
    opened = threading.Thread(target=runner.open)
    opened.start()
    opened.join()
    time.sleep(0.3)
    try:
        [(_, outcome)] = runner.measure([{"do": "fine"}])
        assert isinstance(outcome, Measured) and runner.replaced == 0
    finally:
        runner.close()


def test_a_host_with_several_gpus_says_how_many_compile_for_each(monkeypatch):
    monkeypatch.setattr(compilers.os, "sched_getaffinity", lambda _: set(range(64)))
    assert compilers.cores() == compilers.MAX_PROCESSES
    monkeypatch.setenv("RIDGEPOINT_COMPILERS", "6")
    assert compilers.cores() == 6
    monkeypatch.delenv("RIDGEPOINT_COMPILERS")
    monkeypatch.setattr(compilers.os, "sched_getaffinity", lambda _: {0})
    assert compilers.cores() == 1


def test_a_search_of_no_time_still_measures_its_first_configuration(monkeypatch):
    monkeypatch.setattr(SandboxRunner, "ahead", 1)          # of more in flight two may end at once
    clock = chain([0.0, 0.0], repeat(1.0))                  # no time has passed when it begins, and all of it when it looks again
    runner = make()
    runner.open()
    try:
        trials = list(tune(space_of({}, {}, {}), "exhaustive", runner, Budget(seconds=0.001), 0, clock=clock.__next__))
    finally:
        runner.close()
    assert [type(trial.outcome) for trial in trials] == [Measured]
