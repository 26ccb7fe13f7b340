"""The step of each kernel, in both senses: the one in which its launch call began, and the one in which it began to run.

They differ where the host is ahead of the GPU: the last kernels of a step run while the host is in the next. What a step launched
is its work, whatever waits before it; what ran in it is what the GPU did in that time. Neither is the other's error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiles.analysis.core.correlate import NONE
from profiles.analysis.core.frame import Frame, Ints
from profiles.analysis.trace.time.steps import Span, Steps


@dataclass(frozen=True)
class KernelSteps:
    """Number of the step (among the spans) of every kernel of a frame, in order of start; NONE: outside every step.

    `launched` is also NONE where the launch call is not known; None where steps are stretches of the GPU's work: no call is in one.
    """

    launched: Ints | None
    ran: Ints

    @property
    def elsewhere(self) -> Ints:
        """Return the places of the kernels that began in another step than the one that launched them."""
        if self.launched is None:
            return np.empty(0, np.int64)
        return np.flatnonzero((self.launched >= 0) & (self.launched != self.ran))

    def sums(self, dur_ns: Ints, steps: int) -> tuple[Ints | None, Ints]:
        """Return kernels and ns by step, shape (2, steps + 1) each, of both senses; the last is outside every step."""
        def of(step: Ints) -> Ints:
            place = np.where(step >= 0, step, steps)
            out = np.zeros((2, steps + 1), np.int64)
            np.add.at(out[0], place, 1)
            np.add.at(out[1], place, dur_ns)
            return out
        return None if self.launched is None else of(self.launched), of(self.ran)


def kernel_steps(frame: Frame, steps: Steps) -> KernelSteps:
    """Return the steps of a frame's kernels, each among those of its own rank."""
    rows = frame.kernels
    rank = np.array(frame.rank_of_track or [""])[frame["track"][rows]] if rows.size else np.empty(0, np.str_)
    call = frame.call[rows]
    launched = np.where(call >= 0, frame["start_ns"][np.maximum(call, 0)], -1) if rows.size else np.empty(0, np.int64)
    ran = _steps_at(steps.spans, frame["start_ns"][rows].astype(np.int64), rank)
    return KernelSteps(None if steps.source == "detected" else _steps_at(steps.spans, launched, rank), ran)


def _steps_at(spans: Sequence[Span], moments: Ints, rank: np.ndarray[tuple[int], np.dtype[np.str_]]) -> Ints:
    """Return the step around each moment; of steps that overlap, the one that began last."""
    out = np.full(moments.size, NONE, np.int64)
    for own in dict.fromkeys(span.rank for span in spans):
        numbers = np.array([at for at, span in enumerate(spans) if span.rank == own], np.int64)
        start, end = (np.array([getattr(spans[at], name) for at in numbers.tolist()], np.int64) for name in ("start_ns", "end_ns"))
        order = np.argsort(start, kind="stable")
        numbers, start, end = numbers[order], start[order], end[order]
        mine = np.flatnonzero(rank == own) if own else np.arange(moments.size)
        at = np.searchsorted(start, moments[mine], side="right") - 1
        inside = (at >= 0) & (moments[mine] < end[np.maximum(at, 0)])
        out[mine[inside]] = numbers[at[inside]]
    return out
