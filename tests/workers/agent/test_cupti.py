"""Taking CUPTI out, against a library of ours with its calls: in whose call, once, and that nothing is called back afterwards."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workers.agent.cupti import collector as cupti
from workers.agent.cupti.collector import DRIVER_API, Collector

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="the stand-in is C: a compiler is needed")
GET_VERSION = 2                     # the stand-in's number of cuDriverGetVersion


@pytest.fixture
def collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Collector:
    """A new library each: its state is of the process."""
    path = tmp_path / f"libcupti_standin_{tmp_path.name}.so"
    standin = Path(__file__).parent / "cupti_standin.c"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-O1", "-w", "-o", str(path), str(standin)], check=True, timeout=120)
    own = Collector(str(path))
    own.attach()
    library: Any = own._library
    monkeypatch.setattr(cupti, "call_driver", lambda: library.in_driver(GET_VERSION))
    return own


def test_it_is_taken_out_in_a_call_of_the_calling_thread(collector: Collector) -> None:
    library: Any = collector._library
    assert collector.take_out() and not collector.attached and not collector.broken
    assert (library.count_finalized(), library.where_finalized()) == (1, DRIVER_API)
    before = library.count_callbacks()
    library.launch()
    library.in_driver(GET_VERSION)
    assert library.count_callbacks() == before
    assert collector.take_out() and library.count_finalized() == 1      # it is out


def test_calls_of_other_threads_do_not_call_back(collector: Collector) -> None:
    """Only one call is watched, and only this thread's counts: none that waits for a lock of the job's gets near Python's."""
    library: Any = collector._library
    ended = threading.Event()

    def launch() -> None:
        while not ended.is_set():
            library.launch()
            library.allocate()
            library.in_driver(GET_VERSION)

    threads = [threading.Thread(target=launch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for times in range(1, 20):
        assert collector.take_out()
        assert library.count_finalized() == times == collector.detaches
        collector.attach()
    ended.set()
    for thread in threads:
        thread.join(20)


def test_an_error_and_a_missing_callback_switch_it_off(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    real = collector._library

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            return (lambda: 999) if name == "cuptiFinalize" else getattr(real, name)

    monkeypatch.setattr(collector, "_library", Refusing())
    assert collector.take_out()
    assert "cuptiFinalize: unknown" in collector.broken and real.count_finalized() == 0


def test_where_no_call_comes_back_it_stays_and_says_so(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti, "call_driver", lambda: None)
    assert not collector.take_out() and collector.attached
    assert "CUPTI stays attached" in collector.broken


def test_buffers_that_cupti_never_gives_back_do_not_add_up(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a buffer is not used by the next window: the library's threads may write into it for a moment longer."""
    made: list[int] = []
    real = np.empty
    monkeypatch.setattr(np, "empty", lambda *shape: made.append(1) or real(*shape))
    last = None
    for _ in range(50):
        collector.open()
        (now,) = collector._live
        assert now != last
        last = now
        collector.close()
        assert collector.take_out()
    assert len(made) == 2
