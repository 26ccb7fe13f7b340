"""Run a program of somebody else with bounds: seconds, bytes of output, and its end with this process."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 0.02
_PR_SET_PDEATHSIG = 1
SHOWN_BYTES = 600


class ProgramFailed(RuntimeError):
    """The program did not come to a good end; the text says how, with the end of what it printed."""


@dataclass(frozen=True)
class Bounds:
    """What a run may use: seconds, and bytes of each file that it writes, its printed lines among them."""

    seconds: float = 20.0
    file_bytes: int = 32 << 20


def run_program(argv: Sequence[str], folder: Path, bounds: Bounds) -> None:
    """Run to the end in `folder`, where "printed" takes its output. Raises ProgramFailed."""
    printed = folder / "printed"
    libc = ctypes.CDLL(None, use_errno=True)

    def confine() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (bounds.file_bytes, bounds.file_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    with printed.open("wb") as output:
        try:
            process = subprocess.Popen(list(argv), cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       start_new_session=True, preexec_fn=confine)
        except OSError as error:
            raise ProgramFailed(f"{Path(argv[0]).name} does not start: {error.strerror}") from error
        try:
            status = _wait(process, bounds.seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status is None:
        raise ProgramFailed(f"{Path(argv[0]).name} ran longer than {bounds.seconds:g} s and was ended{_tail(printed)}")
    if status == -signal.SIGXFSZ or any(path.stat().st_size >= bounds.file_bytes for path in folder.iterdir()):
        raise ProgramFailed(f"{Path(argv[0]).name} wrote more than {bounds.file_bytes >> 20} MiB and was ended")
    if status:
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        raise ProgramFailed(f"{Path(argv[0]).name} ended with {how}{_tail(printed)}")


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(LOOK_S)
    return None


def _tail(path: Path) -> str:
    """Return ": …" with the end of what was printed; "" where it was nothing."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - SHOWN_BYTES))
        text = file.read(SHOWN_BYTES).decode("utf-8", "replace").replace("\0", "").strip()
    return f": {text}" if text else ""
