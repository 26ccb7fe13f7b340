"""Clocks held still and persistence mode on while a tune job or a suite measures, where an owner allows it on the GPU.

A process of its own holds them (`workers.clocks.guardian`) and puts them back when its input closes: this worker may be killed
meanwhile. What that process leaves, killed itself or by a power cut, the next worker on the host puts back (`put_back_left`).
"""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from django.conf import settings

from profiles.base.refused import Refused
from tuner.clocks import selectors
from tuner.clocks.wish import ClockWish
from workers.clocks import held
from workers.core.child import PROJECT, SandboxError, safe_environment

log = logging.getLogger(__name__)
ASKED = "RIDGEPOINT_LOCK_CLOCKS"           # of a worker whose GPU no owner named on the page: a graphics clock, as 1410 or 75%
ANSWER_S = 40.0                            # a turn at the lock file, and a driver that wakes its GPU
REQUIRED_HINT = "Give the worker what it lacks, or let the job run unlocked: Workers, Clocks."


def folder() -> Path:
    """Return where this installation's workers keep what they must put back."""
    return Path(settings.HOME) / "clocks"


@contextmanager
def hold_clocks(uuid: str, by: str) -> Iterator[dict[str, Any]]:
    """Hold the clocks of a GPU in the block as owners ask; yield the conditions, `clock_lock`, for what is measured in it.

    {"locked", "why"} and, where it was asked for: "asked", "sm_mhz", "memory_mhz", "persistence", "by", "found". Raises
    SandboxError where the driver refuses what is required.
    """
    try:
        wish = selectors.wish_of(uuid) or wish_of_environment()
    except Refused as refused:
        yield {"locked": False, "why": f"{ASKED}: {refused.what}"}
        return
    if wish is None:
        yield {"locked": False, "why": "not asked for"}
        return
    with hold_as(wish, uuid, by) as conditions:
        yield conditions


@contextmanager
def hold_as(wish: ClockWish, uuid: str, by: str) -> Iterator[dict[str, Any]]:
    """Hold them as `wish` says; see `hold_clocks`."""
    lock = held.lock_file(uuid)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "workers.clocks.guardian", uuid, str(folder()), str(lock)], cwd=PROJECT, env=safe_environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, pass_fds=(lock,))
        try:
            conditions = _ask(process, {"wish": wish.as_json(), "by": by})
            if wish.required and conditions["why"]:
                raise SandboxError(f"an owner requires that this GPU's clocks are held, and they are not: {conditions['why']}",
                                   REQUIRED_HINT)
            yield conditions
        finally:
            _end(process)
    finally:
        os.close(lock)
    if process.returncode:                 # it was killed, or the driver refused: nobody holds the lock now, try once more
        put_back_left()


def wish_of_environment() -> ClockWish | None:
    """Return what the worker's environment asks for; None where it does not. Raises Refused."""
    text = os.environ.get(ASKED, "").strip()
    return ClockWish.read(text, persistence=False) if text else None


def put_back_left() -> None:
    """Put back what nobody holds any more; called when a worker starts, and now and then."""
    for uuid, why in held.put_back_left(folder()).items():
        if why:
            log.error("clocks of %s: %s", uuid, why)
        else:
            log.warning("clocks of %s: put back, the process that held them is gone", uuid)


def present(uuid: str) -> dict[str, Any]:
    """Return what the page of workers shows of a GPU's clocks."""
    return held.present(uuid, folder())


def compact(lock: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each measurement keeps of the conditions: {} where nobody asked for them."""
    if not lock.get("asked"):
        return {}
    return {"clock_lock": {name: lock[name] for name in ("locked", "sm_mhz", "memory_mhz", "persistence", "by") if name in lock}}


def _ask(process: subprocess.Popen[bytes], question: Mapping[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
    answer = None
    if select.select([process.stdout], [], [], ANSWER_S)[0]:
        with suppress(ValueError):
            answer = json.loads(process.stdout.readline())
    if isinstance(answer, dict) and "why" in answer:
        return answer
    return {"locked": False, "asked": ClockWish(**question["wish"]).text, "by": question["by"],
            "why": "the process that holds the clocks did not answer"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let it put back."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(ANSWER_S)
    except subprocess.TimeoutExpired:      # a driver that hangs: it puts back when that answers
        log.error("pid %s still puts clocks back", process.pid)
    process.stdout.close()
