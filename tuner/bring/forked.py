"""One piece of work in a fork that is ended when its time is up."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from typing import Any

ENDLESS = "no end of the compile within"


def in_fork(work: Callable[..., dict[str, Any]], *args: Any, limit_s: float) -> dict[str, Any]:
    """Return what `work` returns; {"error": why} where its process dies or is not done after `limit_s` seconds."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: theirs.send(work(*args)), daemon=True)
    process.start()
    theirs.close()
    told: dict[str, Any] = {"error": f"{ENDLESS} {limit_s:.0f} s"}
    try:
        if ours.poll(limit_s):
            told = ours.recv()
    except EOFError:
        told = {"error": "the compiler died: more memory than it may take, or a fault of its own"}
    finally:
        process.kill()
        process.join()
    return told


def bound_data(most_bytes: int) -> None:
    """Bound the private memory of this process and its forks, within the bound that it may have already."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most_bytes = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
