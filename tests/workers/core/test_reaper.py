"""The guard: whatever a command leaves behind ends with it, or with whoever asked."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

GUARD = str(Path(__file__).resolve().parents[3] / "workers" / "core" / "reaper.py")


def start(*argv: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, GUARD, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen) -> tuple[str, int]:
    """Its output and status, its input held open meanwhile."""
    text = process.stdout.read()
    return text, process.wait(timeout=10)


def running(words: str) -> bool:
    return bool(subprocess.run(["pgrep", "-f", "-x", words], capture_output=True).stdout)


def gone(words: str) -> bool:
    end = time.monotonic() + 5
    while running(words) and time.monotonic() < end:
        time.sleep(0.05)
    return not running(words)


def test_output_and_status_pass_through():
    assert finish(start("sh", "-c", "echo hello; exit 3")) == ("hello\n", 3)


def test_death_by_a_signal_is_told():
    assert finish(start("sh", "-c", "kill -SEGV $$")) == ("", 128 + 11)


def test_a_program_that_is_not_there():
    assert finish(start("/no/such/program")) == ("cannot run /no/such/program: No such file or directory\n", 127)


def test_closing_its_input_ends_everything_even_what_left_the_group():
    process = start("sh", "-c", "setsid sleep 71.25 & echo up; sleep 71.5")
    assert process.stdout.readline() == "up\n"
    started = time.monotonic()
    process.stdin.close()
    assert process.wait(timeout=30) == 137
    assert time.monotonic() - started < 20            # at once when idle; both sleep for over a minute
    assert gone("sleep 71.25") and gone("sleep 71.5")


def test_what_a_finished_command_leaves_behind_ends_too():
    assert finish(start("sh", "-c", "setsid sleep 72.25 & echo done")) == ("done\n", 0)
    assert gone("sleep 72.25")


def test_an_asker_that_is_killed_takes_the_command_along():
    program = (f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, {GUARD!r}, 'sleep', '73.25'],"
               "stdin=subprocess.PIPE); print(p.pid, flush=True); time.sleep(60)")
    asker = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    asker.stdout.readline()
    end = time.monotonic() + 5
    while not running("sleep 73.25") and time.monotonic() < end:
        time.sleep(0.02)
    os.kill(asker.pid, 9)
    asker.wait()
    assert gone("sleep 73.25")
