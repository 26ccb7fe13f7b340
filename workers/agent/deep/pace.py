"""What a capture cost a job: its steps before, during and after, by seconds that the job's own agent told of.

A job tells the steps that ended in each of its last seconds; their mean length is one value. Where a job tells none, the cost is
unknown and `why` says so."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

TOLD_S = 60                         # seconds of which a job tells
KEPT_S = 900
BESIDE_S = 30.0                     # before and after a capture
FEWEST = 5                          # seconds with steps, before and after; during: one
MOST_STEPS = 10_000_000             # in a second
UNTOLD = "the job tells no steps: start it with RIDGEPOINT_AGENT=1"


def seconds_of(moments_ns: npt.NDArray[np.int64]) -> list[tuple[int, int, float]]:
    """Return (second since 1970, steps that ended in it, their time in ms) of whole seconds, from moments at which steps ended."""
    if moments_ns.size < 2:
        return []
    second, took_ms = moments_ns[1:] // 10**9, np.diff(moments_ns) / 1e6
    found, first = np.unique(second, return_index=True)
    sums = np.add.reduceat(took_ms, first)
    counts = np.diff(np.append(first, second.size))
    return [(int(at), int(count), float(total)) for at, count, total in zip(found, counts, sums, strict=True)][:-1][-TOLD_S:]


class Paces:
    """Seconds of processes, as they were told."""

    def __init__(self) -> None:
        self._seconds: dict[int, dict[int, tuple[int, float]]] = {}

    def take(self, pid: int, told: object, now_s: float | None = None) -> None:
        """Note what a job told; what is no list of seconds is left out."""
        now_s = time.time() if now_s is None else now_s
        own = self._seconds.setdefault(pid, {})
        for entry in told[-TOLD_S:] if isinstance(told, list) else ():
            if isinstance(entry, list | tuple) and len(entry) == 3 and all(isinstance(number, int | float) for number in entry):
                moment_s, steps, total = entry
                if now_s - KEPT_S < moment_s < now_s + 60 and 0 < steps < MOST_STEPS and math.isfinite(total) and 0 < total < 1e9:
                    own[int(moment_s)] = (int(steps), float(total))
        for moment_s in [moment_s for moment_s in own if moment_s < now_s - KEPT_S]:
            del own[moment_s]

    def forget(self, living: Iterable[int]) -> None:
        for pid in set(self._seconds) - set(living):
            del self._seconds[pid]

    def is_complete(self, pid: int, whole_s: float) -> bool:
        """Return whether the time after a capture was told."""
        return max(self._seconds.get(pid, {}), default=0) >= whole_s + BESIDE_S

    def cost(self, pid: int, began_s: float, whole_s: float) -> dict[str, Any]:
        """Return {"before_ms", "during_ms", "after_ms"} as [mean, half of its 95 % interval], {"during_pct", "after_pct"} against
        before as [low, middle, high], and "lost_s"; or {"why"}. Moments, since 1970: the process's question and its whole trace.
        """
        own = self._seconds.get(pid, {})
        if not own:
            return {"why": UNTOLD}
        before = _between(own, began_s - BESIDE_S, began_s - 1)
        during = _between(own, began_s, whole_s)
        after = _between(own, whole_s + 1, whole_s + 1 + BESIDE_S)
        if len(before) < FEWEST or len(after) < FEWEST or not during:
            return {"why": f"too few seconds with steps: {len(before)} before, {len(during)} during, {len(after)} after"}
        return compare(before, during, after)


Rows = list[tuple[int, float]]          # of seconds: steps, their time in ms


def compare(before: Rows, during: Rows, after: Rows) -> dict[str, Any]:
    """Return the cost of what happened during some seconds, as `Paces.cost` says it. None of the three is empty."""
    steps = sum(count for count, _ in during)
    return {"before_ms": _said(before), "during_ms": _said(during), "after_ms": _said(after),
            "during_pct": _more(before, during), "after_pct": _more(before, after),
            "lost_s": round((sum(total for _, total in during) - steps * _mean(before)) / 1e3, 3)}


def _between(own: Mapping[int, tuple[int, float]], low_s: float, high_s: float) -> Rows:
    return [own[moment_s] for moment_s in sorted(own) if low_s <= moment_s < high_s]


def _mean(rows: Rows) -> float:
    return sum(total for _, total in rows) / sum(count for count, _ in rows)


def _half(rows: Rows) -> float:
    """Half of the 95 % interval of the mean, from the spread between seconds; NaN of one."""
    means = np.array([total / count for count, total in rows])
    return float(2.1 * means.std(ddof=1) / math.sqrt(means.size)) if means.size > 1 else math.nan


def _said(rows: Rows) -> list[float | None]:
    half = _half(rows)
    return [round(_mean(rows), 4), None if math.isnan(half) else round(half, 4)]


def _more(before: Rows, now: Rows) -> list[float | None]:
    base, half = _mean(before), math.hypot(_half(before), _half(now))
    middle = 100 * (_mean(now) / base - 1)
    return [None, round(middle, 2), None] if math.isnan(half) else \
        [round(middle - 100 * half / base, 2), round(middle, 2), round(middle + 100 * half / base, 2)]
