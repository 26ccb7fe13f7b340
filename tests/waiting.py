"""Waiting for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], within_s: float = 60, every_s: float = 0.1) -> Any:
    """Return the first true value of `condition`; an AssertionError where none comes in time."""
    end = time.monotonic() + within_s
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(every_s)
    assert found, f"not within {within_s:g} s"
    return found
