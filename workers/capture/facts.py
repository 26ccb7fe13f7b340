"""What is found out while a capture runs, kept on its row: metrics that wildcards named, step times, the time without the tool."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profiles.capture.tools.tool import Stop
from profiles.models import Capture
from profiles.rows import json_safe
from workers.capture.execute import execute
from workers.capture.log import CaptureLog
from workers.capture.ranks import Ranks

NAME = "ridgepoint.json"        # as the launchers write it beside their results
MAX_BYTES = 64 << 10


def said_by_tool(folder: Path) -> dict[str, Any]:
    """Return what a launcher measured of itself (a small JSON object in its folder), {} without."""
    path = folder / NAME
    try:
        facts = json.loads(path.read_text()) if path.is_file() and path.stat().st_size <= MAX_BYTES else {}
    except ValueError:                  # the program ended in the middle of it, or wrote a file of that name itself
        return {}
    return dict(json_safe(facts)) if isinstance(facts, dict) else {}


def facts_store(capture: Capture, worker: str, facts: Mapping[str, Any]) -> None:
    """Add facts to the row where it is still the worker's."""
    if facts:
        capture.facts = {**capture.facts, **facts}
        Capture.objects.filter(pk=capture.pk, worker=worker).update(facts=capture.facts)


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
