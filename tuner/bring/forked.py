"""One piece of work in a fork that is ended when its time is up."""

from __future__ import annotations

import multiprocessing
import resource
import time
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
    result: dict[str, Any] = {"error": f"{ENDLESS} {limit_s:.0f} s"}
    try:
        if ours.poll(limit_s):
            result = ours.recv()
    except EOFError:
        result = {"error": "the compiler died: more memory than it may take, or a fault of its own"}
    finally:
        process.kill()
        process.join()
    return result


def told_in_fork(work: Callable[..., None], *args: Any, limit_s: float) -> tuple[list[dict[str, Any]], bool]:
    """Return what `work(say, …)` says, and whether its process died before it was done; one that takes longer is ended."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: work(theirs.send, *args), daemon=True)
    process.start()
    theirs.close()
    messages: list[dict[str, Any]] = []
    end_s = time.monotonic() + limit_s
    try:
        while ours.poll(max(0.0, end_s - time.monotonic())):
            messages.append(ours.recv())
    except EOFError:
        process.join()
        return messages, process.exitcode != 0
    finally:
        process.kill()
        process.join()
    return messages, False


def bound_data(most_bytes: int) -> None:
    """Bound the private memory of this process and its forks, within the bound that it may have already."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most_bytes = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
