"""Runs a command and ends everything it started once whoever asked is gone.

`python reaper.py COMMAND…` with a pipe as standard input, held open by the asker. When that closes, by will or because
the asker was killed, the command and everything it started is killed, also what left its process group. A byte written to it is
a signal for the command: its number, plus 128 where the command's whole process group is to have it. Exit status: the
command's, 128 + signal when it died of one.

With `--patience=SECONDS` before the command it is asked by SIGTERM and has so long to end: srun gives its allocation back.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 10.0
PATIENCE = "--patience="
TO_GROUP = 128
KILLED = 137                # the status of a command that was ended, as a shell tells SIGKILL


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    patience_s = float(argv.pop(0).removeprefix(PATIENCE)) if argv[0].startswith(PATIENCE) else 0.0
    # A worker that a shell put into the background ignores these, and what it starts would too: a stop would not be heard.
    for ignored in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_DFL)
    # What the command leaves behind becomes our child, not init's: it can be found and ended.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"cannot run {argv[0]}: {error.strerror}", flush=True)
        return 127
    while process.poll() is None:
        asker, _, _ = select.select([0], [], [], 0.1)
        if asker:
            order = os.read(0, 1)
            if not order:
                let_end(process, patience_s)
                break
            send(process, order[0])
    status = process.poll()
    end_all()
    if status is None:
        return KILLED
    return status if status >= 0 else 128 - status


def send(process: subprocess.Popen[bytes], asked: int) -> None:
    """Send the command, or its process group (128 more), a signal."""
    with contextlib.suppress(ProcessLookupError, ValueError, OSError):      # gone meanwhile, or no signal
        if asked >= TO_GROUP:
            os.killpg(process.pid, asked - TO_GROUP)      # it leads a group of its own
        else:
            process.send_signal(asked)


def let_end(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Ask the command to end and wait for it."""
    if patience_s:
        send(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)


def end_all() -> None:
    """Kill all descendants until none is left: a dying one may leave children of its own."""
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        left = [child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
        if not left:
            return
        for child in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
