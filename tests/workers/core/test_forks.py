"""A task is forked while the worker's other thread rests: what that thread imports is no lock that the task waits for."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.waiting import until
from workers.core import forks

SLOW = """
import threading
from tests.workers.core import test_forks
test_forks.importing.set()
test_forks.go_on.wait(30)
"""
importing, go_on = threading.Event(), threading.Event()


@pytest.mark.process
def test_a_forked_task_imports_what_the_other_thread_was_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(tmp_path))

    def sweep() -> None:
        with forks.hold_forks():
            import slow_to_import  # noqa: F401

    side = threading.Thread(target=sweep)
    side.start()
    assert importing.wait(30)
    threading.Timer(0.2, go_on.set).start()
    with forks.quiet():
        child = os.fork()
        if not child:                       # without the wait above it would stand here for ever
            import slow_to_import  # noqa: F401
            os._exit(7)
    side.join()
    sys.modules.pop("slow_to_import")
    try:
        ended = until(lambda: (found := os.waitpid(child, os.WNOHANG))[0] and found, within_s=20)
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    assert os.waitstatus_to_exitcode(ended[1]) == 7


def test_a_thread_that_waits_for_a_server_holds_up_no_task_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "WAITS_S", 0.01)
    held, end = threading.Event(), threading.Event()

    def sweep() -> None:
        with forks.hold_forks():
            held.set()
            end.wait(30)

    side = threading.Thread(target=sweep)
    side.start()
    held.wait(30)
    with forks.quiet():
        assert side.is_alive()
    end.set()
    side.join()
