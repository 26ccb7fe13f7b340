"""Runs one command of a capture under the reaper: its output into the log, a stop and the time limit told to it in its own way."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from profiles.capture.tools.tool import Stop
from workers.capture.log import CaptureLog
from workers.capture.ranks import Ranks
from workers.core import reaper

FLUSH_EVERY_S = 0.4
LAUNCHER_ENDS_S = 5.0       # a launcher whose ranks were killed gives back what it holds: srun its allocation
STOPPED = "stop"
TIME_LIMIT = "time limit"


class Cancelled(Exception):
    """The row is not ours any more, or a stop left nothing to keep."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status, and what made it end (STOPPED, TIME_LIMIT, "" of itself)."""

    status: int
    told: str = ""


def execute(argv: Sequence[str], cwd: Path, environ: Mapping[str, str], text: CaptureLog, limit_s: float,
            stop: Stop | None = None, ranks: Ranks | None = None, tend: Callable[[], object] = lambda: None) -> Ended:
    """Run to the end, `tend` called a few times a second; nothing that it started is left afterwards. Raises Cancelled.

    A stop goes to each of the `ranks` where a launcher starts some, and they are closed at the end.

    At the time limit it is killed at once; with `stop` it gets that signal and time to finish before, also when a stop is asked
    for. Where the row is not ours any more it is killed.
    """
    patience = [f"{reaper.PATIENCE}{LAUNCHER_ENDS_S}"] if ranks is not None else []
    process = subprocess.Popen([sys.executable, reaper.__file__, *patience, *argv], cwd=cwd, env=dict(environ),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        reason = _follow(process, text, limit_s, stop, ranks, tend)
        return Ended(reaper.KILLED if reason and stop is None else process.wait(), reason)
    finally:
        _end(process, ranks)


def _follow(process: subprocess.Popen[bytes], text: CaptureLog, limit_s: float, stop: Stop | None, ranks: Ranks | None,
            tend: Callable[[], object]) -> str:
    """Feed the log until the command closes its output or has to be killed; return what made it end."""
    output = process.stdout.fileno() if process.stdout else -1
    reason, end = "", time.monotonic() + limit_s
    while True:
        ready, _, _ = select.select([output, *([ranks.fileno()] if ranks else [])], [], [], FLUSH_EVERY_S / 2)
        if ranks is not None and ranks.fileno() in ready:
            ranks.accept()
        if output in ready:
            data = os.read(output, 65536)
            if not data:
                break
            text.feed(data)
        if not text.flush():
            raise Cancelled
        tend()
        over = time.monotonic() > end
        if reason and over:
            text.add(f"ridgepoint: not finished {stop.grace_s if stop else 0:g} s later: killed")
            _end(process, ranks)
            break
        if not reason and (over or (stop is not None and text.stop_asked)):
            reason = TIME_LIMIT if over else STOPPED
            if stop is None:
                break
            text.add(f"ridgepoint: {reason}: signal {stop.signal} sent, {stop.grace_s:g} s to finish the report")
            _send(process, stop, ranks)
            end = time.monotonic() + stop.grace_s
    text.close()
    text.flush(force=True)
    return reason


def _send(process: subprocess.Popen[bytes], stop: Stop, ranks: Ranks | None) -> None:
    code = int(stop.signal) + (reaper.TO_GROUP if stop.to_group else 0)
    if ranks is not None:
        if ranks.send(code):
            return
        code = signal.SIGTERM              # no rank yet: srun waits for its allocation
    if process.stdin:
        with suppress(OSError):             # it ended just now
            process.stdin.write(bytes([code]))
            process.stdin.flush()


def _end(process: subprocess.Popen[bytes], ranks: Ranks | None) -> None:
    if ranks is not None:
        ranks.close()
    _end_process(process)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Close the reaper's input, which ends the command and its children."""
    if process.stdin and not process.stdin.closed:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()
