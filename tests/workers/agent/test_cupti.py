"""Taking CUPTI out, against a library of ours with its calls: in which call, once, and that nothing is called back afterwards."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workers.agent.cupti import DRIVER_API, RUNTIME_API, UNSEEN, Collector

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="the stand-in is C: a compiler is needed")
GET_VERSION = 2                     # the stand-in's number of cuDriverGetVersion


@pytest.fixture
def collector(tmp_path: Path) -> Collector:
    """A new library each: its state is of the process."""
    path = tmp_path / f"libcupti_standin_{tmp_path.name}.so"
    standin = Path(__file__).parent / "cupti_standin.c"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-O1", "-w", "-o", str(path), str(standin)], check=True, timeout=120)
    own = Collector(str(path))
    own.attach()
    return own


def detach(own: Collector, work: Callable[[Any], None], wait_s: float = 5.0) -> bool:
    """Take it out by a thread while this one works, once the callbacks are there."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(own.detach(wait_s)))
    thread.start()
    while not own._finalize and thread.is_alive():
        time.sleep(0.001)
    work(own._library)
    thread.join(20)
    return found[0]


def test_it_is_taken_out_at_the_end_of_the_outermost_call(collector: Collector) -> None:
    def work(library: Any) -> None:
        library.launch()                    # the first launch of a thread says that it is in no call afterwards
        assert library.count_finalized() == 0
        library.launch()
        library.launch()

    assert detach(collector, work) and not collector.attached and not collector.broken
    library: Any = collector._library
    assert (library.count_finalized(), library.where_finalized()) == (1, RUNTIME_API)
    before = library.count_callbacks()
    library.launch()
    assert library.count_callbacks() == before


def test_a_call_that_was_under_way_ends_first(collector: Collector) -> None:
    def work(library: Any) -> None:
        library.end_of_launch()
        assert library.count_finalized() == 0
        library.launch()

    assert detach(collector, work)
    assert collector._library.where_finalized() == RUNTIME_API


def test_calls_that_hold_locks_of_the_job_do_not_call_back(collector: Collector) -> None:
    def work(library: Any) -> None:
        before = library.count_callbacks()
        for _ in range(20):
            library.allocate()
        assert library.count_callbacks() == before

    assert not detach(collector, work, 0.2)             # no launch came
    assert collector.attached and collector._library.count_finalized() == 0
    assert detach(collector, lambda library: [library.launch() for _ in range(2)])


def test_calls_of_the_driver_alone_are_believed_after_some(collector: Collector) -> None:
    def work(library: Any) -> None:
        for _ in range(UNSEEN):
            library.in_driver(GET_VERSION)
            assert library.count_finalized() == 0
        library.in_driver(GET_VERSION)

    assert detach(collector, work)
    assert collector._library.where_finalized() == DRIVER_API


def test_many_threads_take_it_out_once_and_it_can_come_again(collector: Collector) -> None:
    for times in range(1, 6):
        ended = threading.Event()

        def launch(library: Any, ended: threading.Event = ended) -> None:
            while not ended.is_set():
                library.launch()

        threads = [threading.Thread(target=launch, args=(collector._library,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        assert detach(collector, lambda library: None)
        ended.set()
        for thread in threads:
            thread.join(20)
        assert collector._library.count_finalized() == times == collector.detaches
        collector.attach()
        assert collector.attached


def test_an_error_switches_it_off(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    real = collector._library

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            return (lambda: 999) if name == "cuptiFinalize" else getattr(real, name)

    monkeypatch.setattr(collector, "_library", Refusing())
    assert detach(collector, lambda library: [library.launch() for _ in range(2)])
    assert "cuptiFinalize: unknown" in collector.broken
    assert ctypes.c_int(real.count_finalized()).value == 0
