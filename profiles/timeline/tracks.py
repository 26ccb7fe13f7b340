"""What a timeline's tracks are to a person: whose rank they are, and which stand aside because they tell of no work."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

PROFILER, EMPTY = "profiler", "empty"       # why a track stands aside
# what libkineto writes of itself: its spans, its own trace records, buffer requests and flushes, marks without a process
_KINETO_PIDS = frozenset({"Spans", "Traces", "-1", ""})
_OVERHEAD = re.compile(r"(?:profiler|CUPTI) overhead\b")         # what Nsight Systems measured of itself, per thread


def described(tracks: Sequence[Mapping[str, Any]], ranks: Sequence[str], format_: str) -> list[dict[str, Any]]:
    """Return the tracks with `rank` (one of `ranks`, the labels that a joined job's groups begin with, or None) and `aside`.

    `aside` is "profiler" for what the profiler says of itself, "empty" for a counter that never left zero, else None.
    """
    longest_first = sorted(ranks, key=len, reverse=True)        # "1" and "10: a.json" begin alike
    return [{**track, "rank": next((rank for rank in longest_first if str(track["group"]).startswith(f"{rank}: ")), None),
             "aside": _aside(track, format_)} for track in tracks]


def _aside(track: Mapping[str, Any], format_: str) -> str | None:
    if track["kind"] == "counter":
        return EMPTY if track.get("greatest", 1) == 0 == track.get("least", 1) else None
    own = format_ == "kineto" and track["kind"] == "other" and track["pid"] in _KINETO_PIDS
    return PROFILER if own or _OVERHEAD.match(track["name"]) else None
