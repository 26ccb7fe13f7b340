"""Results that several analyses of one frame share: made once, gone with the frame."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from profiles.analysis.core.frame import Frame

T = TypeVar("T")


def once_a_frame(make: Callable[[Frame], T]) -> Callable[[Frame], T]:
    """Return `make`, which is called once for each frame."""
    kept: WeakKeyDictionary[Frame, T] = WeakKeyDictionary()

    @wraps(make)
    def of(frame: Frame) -> T:
        if frame not in kept:
            kept[frame] = make(frame)
        return kept[frame]

    return of
