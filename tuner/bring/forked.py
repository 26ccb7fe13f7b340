"""One piece of work in a fork that is ended when its time is up."""

from __future__ import annotations

import multiprocessing
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
