"""Faults of the soak, each over the smallest thing that it can be made on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.soak import faults
from tests.soak.backups import Backups
from tests.soak.book import Book
from tests.soak.clock import Clock, clock_of
from tests.soak.disk import fill
from tests.soak.faults import HOUR_S, Faults
from tests.waiting import until

TELL = "import time, sys\nfor line in sys.stdin: print(time.time() - float(line), time.monotonic(), flush=True)"


@pytest.mark.process
def test_a_clock_steps_under_a_process_that_runs_and_waits_stay(tmp_path: Path) -> None:
    clock = clock_of(tmp_path)
    if clock is None:
        pytest.skip("no C compiler: apt-get install gcc")
    with subprocess.Popen([sys.executable, "-S", "-c", TELL], env={**os.environ, **clock.env}, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin and child.stdout

        def off_s() -> float:
            child.stdin.write(f"{time.time()}\n")           # type: ignore[union-attr]
            child.stdin.flush()                             # type: ignore[union-attr]
            ahead_s, monotonic_s = map(float, child.stdout.readline().split())      # type: ignore[union-attr]
            assert abs(monotonic_s - time.monotonic()) < 30
            return ahead_s

        for set_s in (0, HOUR_S, -HOUR_S, 0):
            clock.set_off(set_s)
            assert abs(off_s() - set_s) < 30
        child.stdin.close()


class Running:
    def __init__(self, home: Path) -> None:
        self.home, self.env = home, dict[str, str]()


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Any]:
    """A process that the faults take for Valkey's of this folder."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)", "valkey-server", str(tmp_path)])
    yield psutil.Process(child.pid)
    child.kill()
    child.wait()


def made_in(folder: Path, clock: Clock | None = None, small: bool = False) -> Faults:
    return Faults(Running(folder), Backups(), clock, leavers=None, small=small, lasts_s=0.3)        # type: ignore[arg-type]


@pytest.mark.process
@pytest.mark.parametrize("crawl", [False, True])
def test_a_server_is_stopped_and_goes_on(stopped: Any, tmp_path: Path, crawl: bool) -> None:
    seen = set[str]()
    maker = threading.Thread(target=lambda: seen.add(str(made_in(tmp_path).stop(Book(), "Valkey", crawl=crawl))))
    maker.start()
    until(lambda: stopped.status() == psutil.STATUS_STOPPED, every_s=0.01)
    maker.join()
    assert seen == {"True"} and stopped.status() != psutil.STATUS_STOPPED
    stopped.kill()
    until(lambda: stopped.status() == psutil.STATUS_ZOMBIE)
    assert made_in(tmp_path).stop(Book(), "Valkey") is False


def test_a_disk_is_filled_to_what_is_to_be_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Facts:
        f_bavail, f_frsize = 100, 4096

    monkeypatch.setattr(os, "statvfs", lambda folder: Facts)
    assert fill(tmp_path, 10 * 4096).stat().st_size == 90 * 4096


def test_what_cannot_be_made_is_counted_and_what_breaks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, book = made_in(tmp_path), Book()

    def broken(book: Book, place: Any) -> bool:
        raise OSError("gone")

    kinds = {"disk full": lambda book, place: made.fill_disk(book, 0), "clock": lambda book, place: made.step_clock(book, 1),
             "restores": lambda book, place: made.restore_twice(book, place), "broken": broken, "fine": lambda book, place: True}
    monkeypatch.setattr(faults.Faults, "kinds", lambda self: kinds)
    maker = threading.Thread(target=made.run, args=(book, None, 0.001, 1))
    maker.start()
    try:
        until(lambda: book.faults["fine"] >= 2, every_s=0.01)           # each kind comes once before one comes again
    finally:
        book.stop.set()
        maker.join()
    assert set(book.no_fault) == {"disk full", "clock", "restores"} and set(book.faults) == {"fine"}
    assert book.violations and set(book.violations) == {"a fault broke (broken): OSError: gone"}
