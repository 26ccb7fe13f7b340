"""Results that several analyses of one frame share: made once, kept with the frame."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

from profiles.analysis.core.frame import Frame

T = TypeVar("T")


def once_a_frame(make: Callable[[Frame], T]) -> Callable[[Frame], T]:
    """Return `make`, which is called once for each frame; what it returned may hold the frame, and goes with it."""
    @wraps(make)
    def of(frame: Frame) -> T:
        if of not in frame.results:
            frame.results[of] = make(frame)
        return cast(T, frame.results[of])

    return of
