"""Clocks held still while a suite is measured: only where an owner asks for it (RIDGEPOINT_LOCK_CLOCKS), and said when refused.

Locking needs root or CAP_SYS_ADMIN. A process of its own holds the lock and lets go when its input closes: a worker that
is killed leaves no GPU behind at a fixed clock.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ASKED = "RIDGEPOINT_LOCK_CLOCKS"           # SM clock in MHz; absent or empty: clocks are left alone
PROJECT = Path(__file__).resolve().parents[2]
ANSWER_S = 20.0


@contextmanager
def lock_clocks(uuid: str) -> Iterator[dict[str, Any]]:
    """Hold the clocks in the block; yield {"locked": bool, "sm_mhz"?, "why"?} for what is measured in it."""
    asked = os.environ.get(ASKED, "").strip()
    if not asked:
        yield {"locked": False, "why": "not asked for"}
        return
    if not asked.isdigit() or not 100 <= int(asked) <= 10_000:
        yield {"locked": False, "why": f"{ASKED} must be an SM clock in MHz, not {asked[:40]!r}"}
        return
    process = subprocess.Popen([sys.executable, "-m", "workers.fresh.clocks", uuid, asked], cwd=PROJECT, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield _read_answer(process)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(ANSWER_S)
        if process.stdout is not None:
            process.stdout.close()


def _read_answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    output = process.stdout
    ready = output is not None and select.select([output], [], [], ANSWER_S)[0]
    try:
        told = json.loads(output.readline()) if ready and output is not None else None
    except ValueError:
        told = None
    return told if isinstance(told, dict) else {"locked": False, "why": "the driver did not answer"}


def main(uuid: str, mhz: int) -> None:
    """Hold the clock until standard input closes."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    try:
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, mhz, mhz)
    except pynvml.NVMLError as error:
        print(json.dumps({"locked": False, "sm_mhz": mhz, "why": str(error)[:200]}), flush=True)
        return
    try:
        print(json.dumps({"locked": True, "sm_mhz": mhz}), flush=True)
        sys.stdin.buffer.read()
    finally:
        pynvml.nvmlDeviceResetGpuLockedClocks(handle)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
