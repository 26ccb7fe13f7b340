"""The supervisor outlives what its watches and children meet, and none of them holds up another."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.product import PROJECT

pytestmark = pytest.mark.process

SCRIPT = '''
import sys, threading, time
from webapp.supervisor import Child, Pause, Supervisor, Watch


def raise_timeout():
    raise TimeoutError("Valkey said nothing\\nfor long")

def hang():
    threading.Event().wait()

looks = iter(range(10**9))
def count():
    with open("looks", "w") as file:
        file.write(str(next(looks)))

def child(name, code, **options):
    return Child(name, [sys.executable, "-c", code], pause=Pause(0.1, 0.8), **options)

supervisor = Supervisor([
    child("steady", "import time; open('steady', 'w').close(); time.sleep(600)"),
    child("brief", "raise SystemExit(3)"),
    Child("missing", ["/nowhere/program"], pause=Pause(0.1, 0.8)),
], open(sys.argv[1], "wb", buffering=0))
supervisor.run([
    Watch("hangs", hang, 0.05, Pause(0.1, 0.8)),
    Watch("raises", raise_timeout, 0.05, Pause(0.1, 0.8)),
    Watch("counts", count, 0.05, Pause(0.1, 0.8)),
])
'''


class Run:
    def __init__(self, folder: Path, log: str = "log") -> None:
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, "-c", SCRIPT, log], cwd=folder,
                                        env={**os.environ, "PYTHONPATH": str(PROJECT)})

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def children(self) -> list[int]:
        found = []
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.Error):         # dead since, not yet reaped
                if "steady" in " ".join(child.cmdline()):
                    found.append(child.pid)
        return found

    def until(self, holds: Callable[[], object], within_s: float = 30) -> None:
        end = time.monotonic() + within_s
        while not holds():
            assert self.process.poll() is None and time.monotonic() < end, self.log
            time.sleep(0.05)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    run.until(lambda: (tmp_path / "steady").exists())
    yield run
    run.process.kill()
    run.process.wait()


def pauses(log: str, says: str) -> list[float]:
    return [float(line.rpartition(" in ")[2].split()[0]) for line in log.splitlines() if says in line]


@pytest.mark.parametrize("says", ["raises: TimeoutError: Valkey said nothing for long; looking again in ",
                                  "brief ended with code 3; starting it again in ",
                                  "missing was not started: FileNotFoundError"])
def test_trouble_is_said_and_tried_again_with_a_growing_pause(running: Run, says: str) -> None:
    running.until(lambda: len(pauses(running.log, says)) >= 5)
    assert pauses(running.log, says)[:5] == [0.1, 0.2, 0.4, 0.8, 0.8]


def test_nothing_holds_up_a_child_or_another_watch(running: Run) -> None:
    """One watch hangs and one raises all the time."""
    [before] = running.children()
    os.kill(before, signal.SIGKILL)
    running.until(lambda: running.children() not in ([], [before]))
    looks = int((running.folder / "looks").read_text() or 0)
    running.until(lambda: int((running.folder / "looks").read_text() or 0) > looks + 5)
    assert re.search(r"steady was killed by SIGKILL; starting it again in 0\.1 s", running.log)


def test_it_stops_while_a_watch_hangs(running: Run) -> None:
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 0 and "stopping" in running.log


def test_a_log_that_cannot_be_written_ends_nobody(tmp_path: Path) -> None:
    run = Run(tmp_path, "/dev/full")
    try:
        run.until(lambda: (tmp_path / "steady").exists() and run.children())
        os.kill(run.children()[0], signal.SIGKILL)
        (tmp_path / "steady").unlink()
        run.until(lambda: (tmp_path / "steady").exists())
    finally:
        run.process.kill()
        run.process.wait()
