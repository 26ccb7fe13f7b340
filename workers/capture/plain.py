"""The program once without its tool: what the time under the tool is compared with."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profiles.capture.tools.tool import Stop
from workers.capture.execute import execute
from workers.capture.log import CaptureLog
from workers.capture.ranks import Ranks

_STOP = Stop(grace_s=2, signal=signal.SIGTERM, to_group=True)


def measure_plain(argv: Sequence[str], cwd: Path, environ: Mapping[str, str], text: CaptureLog, limit_s: float,
                  ranks: Ranks | None = None) -> dict[str, Any]:
    """Return {"s": seconds of the whole program}, {"why": …} where it did not run to its end. Raises Cancelled.

    It runs after the tool: what both compile and read is warm by then, and a program that fails alone loses no result.
    """
    text.add("ridgepoint: the program once more without the tool: what the capture cost")
    began_s = time.monotonic()
    ended = execute(argv, cwd, environ, text, limit_s, _STOP, ranks)
    took_s = round(time.monotonic() - began_s, 2)
    if ended.told or ended.status:
        why = f"ended by the {ended.told}" if ended.told else f"it ended with status {ended.status}"
        text.add(f"ridgepoint: not measured: {why}")
        return {"why": why}
    text.add(f"ridgepoint: {took_s:g} s without the tool")
    return {"s": took_s}
